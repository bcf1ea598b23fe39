"""Partial files: continued by a later run, and by one process at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.nginx import Nginx
from tests_support import tar_bytes
from webdataset.tools.make.copying import copy_shards
from webdataset.tools.make.partfiles import PartFile


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "copies"
    target.mkdir()
    return target


SIZE = 4_000_000


@pytest.fixture
def large(nginx: Nginx) -> str:
    """A shard of 4 MB, which comes with 1 MB a second."""
    nginx.put("large.tar", tar_bytes([("a.bin", os.urandom(SIZE))]))
    return nginx.url("/slow/large.tar")


def killed(url: str, folder: Path, number: int, after: int = 1_500_000) -> list[Path]:
    """What a copy leaves that gets a signal after so many bytes."""
    with subprocess.Popen([sys.executable, "-m", "webdataset", "cp", url, f"{folder}/"], stderr=subprocess.PIPE) as run:
        while not [path for path in folder.iterdir() if path.stat().st_size > after]:
            assert run.poll() is None
        run.send_signal(number)
        run.wait(60)
    return list(folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_copy_goes_on_where_it_was(nginx: Nginx, large: str, folder: Path, number: int) -> None:
    (part,) = killed(large, folder, number)
    assert (part.name[:11], part.suffix) == (".large.tar.", ".part")
    there, sent = part.stat().st_size, nginx.sent("slow/large.tar")
    (copy,) = copy_shards([large], f"{folder}/", checksum=number == signal.SIGTERM)
    assert not copy.skipped
    assert [path.name for path in folder.iterdir()] == ["large.tar"]
    assert (folder / "large.tar").read_bytes() == (nginx.files / "large.tar").read_bytes()
    if number != signal.SIGTERM:
        assert nginx.sent("slow/large.tar") - sent <= copy.size - there + (1 << 20) + 1


def test_a_part_of_another_version_is_not_gone_on_with(nginx: Nginx, large: str, folder: Path) -> None:
    killed(large, folder, signal.SIGKILL)
    nginx.put("large.tar", tar_bytes([("a.bin", os.urandom(SIZE))]))
    assert len(list(copy_shards([large], f"{folder}/"))) == 1
    assert [path.name for path in folder.iterdir()] == ["large.tar"]
    assert (folder / "large.tar").read_bytes() == (nginx.files / "large.tar").read_bytes()


def test_a_part_with_a_damaged_end_is_fetched_anew(make_shard: Callable[..., str], folder: Path) -> None:
    shard = make_shard(files=[("a.bin", os.urandom(SIZE))])
    for content in (bytes(2_000_000), bytes(9_000_000)):
        (copy,) = copy_shards([shard], f"{folder}/", force=True)
        part = part_of(shard, copy.target)
        part.write(content)
        part.leave()
        assert len(list(folder.iterdir())) == 2
        list(copy_shards([shard], f"{folder}/", force=True))
        assert [path.name for path in folder.iterdir()] == ["a.tar"]
        assert (folder / "a.tar").read_bytes() == Path(shard).read_bytes()


def part_of(shard: str, target: str) -> PartFile:
    from webdataset.tools.make.copying import _part_file

    found = os.stat(shard)
    part = _part_file(shard, target, found.st_size, f"{found.st_size}-{found.st_mtime_ns}")
    assert part is not None
    return part


def test_two_copies_of_one_shard_at_the_same_time_do_not_meet(make_shard: Callable[..., str], folder: Path) -> None:
    shard = make_shard(files=[("a.bin", os.urandom(SIZE))])
    part = part_of(shard, f"{folder}/a.tar")
    part.write(b"of the other")
    list(copy_shards([shard], f"{folder}/"))
    assert (folder / "a.tar").read_bytes() == Path(shard).read_bytes()
    part.abort()


def test_a_part_that_is_a_link_is_left_alone(make_shard: Callable[..., str], folder: Path) -> None:
    shard = make_shard(files=[("a.bin", os.urandom(SIZE))])
    part = part_of(shard, f"{folder}/a.tar")
    part.abort()
    (folder / "precious").write_bytes(b"precious")
    os.symlink(folder / "precious", part.temporary)
    list(copy_shards([shard], f"{folder}/"))
    assert (folder / "precious").read_bytes() == b"precious"
    assert (folder / "a.tar").read_bytes() == Path(shard).read_bytes()


def test_a_full_disk_leaves_no_part(make_shard: Callable[..., str], folder: Path) -> None:
    shard = make_shard(files=[("a.bin", os.urandom(SIZE))])
    line = f"ulimit -f 3000; {sys.executable} -m webdataset cp {shard} {folder}/"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (ended.returncode, "full" in ended.stderr) == (1, True)
    assert list(folder.iterdir()) == []
