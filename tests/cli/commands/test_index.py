"""wl index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.object_stores import ObjectServer, asked
from tests_support import WITHOUT_PRIVILEGES
from webdataset import Catalogue
from webdataset.cli import main
from webdataset.gopen import gopen
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


# -- where they are ----------------------------------------------------------------------------------


@pytest.fixture(params=["moto", pytest.param("ceph", marks=pytest.mark.xdist_group("ceph")), "azurite", "gcs"])
def server(request: pytest.FixtureRequest, nobody: None, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    found: ObjectServer = request.getfixturevalue(f"{request.param}_server")
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    return found


def stored(folder: str, shards: list[str]) -> str:
    """Put shards into a store, and return what stands for them all."""
    for number, shard in enumerate(shards):
        with gopen(f"{folder}/train-{number}.tar", "wb") as stream:
            stream.write(Path(shard).read_bytes())
    return f"{folder}/train-{{0..{len(shards) - 1}}}.tar"


def test_indices_stand_beside_the_shards_of_a_store(
    make_shards: Callable[..., list[str]], server: ObjectServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = f"{server.bucket()}/photos"
    urls = stored(folder, make_shards(2, samples=4))
    assert main(["index", urls]) == 0
    assert "beside" in capsys.readouterr().err
    assert [load_index(f"{folder}/train-{number}.tar.wdx").samples for number in (0, 1)] == [4, 4]
    assert list((tmp_path / "cache").rglob("*.wdx")) == []


@pytest.fixture
def reader(nobody: None, ceph_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Lets everybody read a bucket of the store, and makes this program somebody who may do no more."""

    def closed(bucket: str) -> str:
        client = ceph_server.client(bucket)
        name = bucket.removeprefix("s3://")
        everything = [f"arn:aws:s3:::{name}", f"arn:aws:s3:::{name}/*"]
        rule = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": everything,
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [rule]}).encode()
        asked(client, "PUT", f"{ceph_server.address(bucket)}?policy=", body=policy, ok=(200, 204))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        return bucket

    for name, value in ceph_server.environment().items():
        monkeypatch.setenv(name, value)
    return closed


ANONYMOUS = ["--storage", "anonymous=true"]


@pytest.mark.xdist_group("ceph")
def test_indices_of_a_bucket_that_may_only_be_read_are_in_the_cache_and_that_is_said(
    make_shards: Callable[..., list[str]],
    ceph_server: ObjectServer,
    reader: Callable[[str], str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    bucket = ceph_server.bucket()
    urls = stored(bucket, make_shards(3, samples=4))
    reader(bucket)
    for _ in range(2):  # the second time they are there already
        assert main(["index", *ANONYMOUS, urls]) == 0
        told = capsys.readouterr().err
        assert told.count("\n") == 1
        assert "3 shards, 12 samples" in told
        assert str(tmp_path / "cache") in told
        assert f"{bucket}/" in told
        assert "AccessDenied" in told
        assert len(list((tmp_path / "cache").rglob("*.wdx"))) == 3
    assert main(["index", *ANONYMOUS, "--where", "beside", urls]) == 1
    assert "AccessDenied" in capsys.readouterr().err


def test_indices_of_a_folder_that_may_only_be_read_are_in_the_cache_and_that_is_said(
    make_shard: Callable[..., str], tmp_path: Path
):
    folder = Path(make_shard("photos/a.tar", samples=4)).parent
    folder.chmod(0o555)
    code = f"{WITHOUT_PRIVILEGES}\nfrom webdataset.cli import main; main(['index', {str(folder / 'a.tar')!r}])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    folder.chmod(0o755)
    assert told.count("\n") == 1
    assert str(tmp_path / "cache") in told
    assert f"{folder}/" in told
    assert len(list((tmp_path / "cache").rglob("*.wdx"))) == 1


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
    make_shard: Callable[..., str], capsys: pytest.CaptureFixture[str]
):
    shard = make_shard(files=[("a b.txt", b"x")])
    assert main(["index", "--format", "dali", shard]) == 1
    assert "spaces" in capsys.readouterr().err
    assert not Path(shard).with_suffix(".idx").exists()
    assert main(["index", shard]) == 0


def test_bad_shards_can_be_left_out(make_shards: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]):
    shards = make_shards(3, samples=4)
    Path(shards[1]).write_bytes(b"x" * 1024)
    assert main(["index", "--on-error", "skip", *shards]) == 1
    told = capsys.readouterr().err
    assert (shards[1] in told, "2 shards, 8 samples" in told) == (True, True)
    assert os.path.exists(f"{shards[2]}.wdx")
