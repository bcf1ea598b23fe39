"""Indices in our own format and those of DALI and Energon, and how they are checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from webdataset import TarWriter
from webdataset.cli import main
from webdataset.indices.files import load_index


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))


def test_dalis_index_says_where_the_bytes_are(make_shard: Callable[..., str]):
    shard = make_shard(samples=3)
    assert main(["index", "-q", "--format", "dali", shard]) == 0
    first, *lines = Path(shard).with_suffix(".idx").read_text().splitlines()
    assert (first, len(lines)) == ("v1.2 3", 3)
    content = Path(shard).read_bytes()
    words = lines[1].split()
    fields = {words[i]: content[int(words[i + 1]) :][: int(words[i + 2])] for i in range(0, len(words), 4)}
    assert fields == {"cls": b"1", "txt": b"txt1"}
    assert not os.path.exists(f"{shard}.wdx")


def test_energons_index_says_where_samples_begin_and_end(make_shard: Callable[..., str]):
    shard = make_shard(samples=3)
    assert main(["index", "-q", "--format", "energon,wdx", shard]) == 0
    assert np.fromfile(f"{shard}.idx", "<u8").tolist() == [0, 2048, 4096, 6144]
    assert load_index(f"{shard}.wdx").starts.tolist() == [0, 2048, 4096, 6144]


def test_they_are_the_indices_that_the_writer_writes(tmp_path: Path):
    with TarWriter(tmp_path / "a.tar", index=["wdx", "dali", "energon"]) as sink:
        for i in range(5):
            sink.write({"__key__": f"k{i}", "cls": i, "seg.txt": "x" * i})
    names = ("a.idx", "a.tar.idx", "a.tar.wdx")
    written = {name: (tmp_path / name).read_bytes() for name in names}
    assert main(["index", "-q", "--force", "--format", "wdx,dali,energon", str(tmp_path / "a.tar")]) == 0
    assert {name: (tmp_path / name).read_bytes() for name in names} == written


@pytest.mark.parametrize("format", ["wdx", "dali", "energon"])
def test_an_index_of_another_shard_is_found(
    make_shard: Callable[..., str], capsys: pytest.CaptureFixture[str], format: str
):
    shard = make_shard(samples=3)
    assert main(["index", "--check", "--format", format, shard]) == 1
    main(["index", "-q", "--format", format, shard])
    assert main(["index", "--check", "--format", format, shard]) == 0
    make_shard(samples=4)
    assert main(["index", "--check", "--format", format, shard]) == 1
    assert "wl index" in capsys.readouterr().out


def test_an_index_that_only_pretends_to_fit_is_found(make_shard: Callable[..., str], tmp_path: Path):
    shard = make_shard(samples=3)
    main(["index", "-q", shard])
    status = os.stat(shard)
    other = Path(shard).read_bytes()
    Path(shard).write_bytes(other[2048:4096] + other[:2048] + other[4096:])
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert main(["index", "--check", shard]) == 1
