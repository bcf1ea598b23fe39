"""wl index."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from webdataset.cli import main
from webdataset.gopen import gopen
from webdataset.indices.catalogue import Catalogue
from webdataset.indices.files import load_index


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))


def test_indices_stand_beside_their_shards(make_shards: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]):
    shards = make_shards(3, samples=4)
    assert main(["index", *shards]) == 0
    assert "3 shards, 12 samples" in capsys.readouterr().err
    assert [load_index(f"{shard}.wdx").samples for shard in shards] == [4, 4, 4]


def test_progress_is_shown_if_asked_for(make_shards: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]):
    shards = make_shards(2, samples=4)
    assert main(["index", "--progress", *shards]) == 0
    assert "50%  1 shard  " in capsys.readouterr().err
    assert main(["index", "-q", *shards]) == 0
    assert capsys.readouterr().err == ""


def test_one_list_of_all_shards(make_shards: Callable[..., list[str]], tmp_path: Path):
    make_shards(2, samples=4)
    out = tmp_path / "all.json"
    assert main(["index", "-q", "--where", "cache", "-o", str(out), f"{tmp_path}/shard-*.tar"]) == 0
    listed = json.loads(out.read_text())["shardlist"]
    assert [(shard["url"], shard["nsamples"]) for shard in listed] == [("shard-000000.tar", 4), ("shard-000001.tar", 4)]
    assert list(tmp_path.glob("*.wdx")) == []


@pytest.fixture(params=["s3", "ais"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "ais":
        return str(request.getfixturevalue("ais_bucket").url("")).rstrip("/")
    request.getfixturevalue("nobody")
    server = request.getfixturevalue("moto_server")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return str(server.bucket())


def test_the_list_of_all_shards_is_written_where_the_shards_are(
    make_shards: Callable[..., list[str]], tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for number, shard in enumerate(make_shards(2, samples=4)):
        with gopen(f"{bucket}/train-{number}.tar", "wb") as stream:
            stream.write(Path(shard).read_bytes())
    before = sorted(os.listdir())
    assert main(["index", "-q", "--where", "cache", "-o", f"{bucket}/all.json", f"{bucket}/train-{{0..1}}.tar"]) == 0
    with gopen(f"{bucket}/all.json") as stream:
        listed = json.load(stream)
    assert listed["name"] == "all"
    assert [shard["url"] for shard in listed["shardlist"]] == [f"{bucket}/train-{number}.tar" for number in (0, 1)]
    assert Catalogue.load(f"{bucket}/all.json").total == 8
    assert set(os.listdir()) - set(before) <= {"cache"}


def test_a_list_that_cannot_be_written_is_one_line(
    make_shard: Callable[..., str], bucket: str, capsys: pytest.CaptureFixture[str]
):
    target = bucket.rpartition("/")[0] + "/no-such-bucket/all.json"
    assert main(["index", "-q", "-o", target, make_shard(samples=3)]) == 1
    assert f"[url {target}]" in capsys.readouterr().err


def test_what_cannot_be_indexed_is_an_error_that_leaves_nothing(
    make_shard: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shard = make_shard(files=[("a b.txt", b"x")])
    assert main(["index", "--format", "dali", shard]) == 1
    assert "name with spaces" in capsys.readouterr().err
    assert not Path(shard).with_suffix(".idx").exists()
    assert main(["index", shard]) == 0
    assert main(["index", str(tmp_path / "gone.tar")]) == 1
    assert "no such file" in capsys.readouterr().err
    assert main(["index", "--format", "none", shard]) != 0
    assert "--format must be of wdx, dali, energon" in capsys.readouterr().err


def test_bad_shards_can_be_left_out(make_shards: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]):
    shards = make_shards(3, samples=4)
    Path(shards[1]).write_bytes(b"x" * 1024)
    assert main(["index", "--on-error", "skip", *shards]) == 1
    told = capsys.readouterr().err
    assert "not a tar archive" in told
    assert "2 shards, 8 samples" in told
    assert os.path.exists(f"{shards[2]}.wdx")
