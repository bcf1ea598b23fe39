"""How commands end: exit codes, errors of one line, streams that are closed."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inspected import Capture, mixed_shard, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def run(*words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "webdataset", *words]
    return subprocess.run(command, capture_output=True, check=False, **options)  # type: ignore[call-overload]


def test_an_archive_can_be_piped_in(shard: str) -> None:
    with open(shard, "rb") as stream:
        assert run("extract", "-f", "cls", "-c", "1", stdin=stream).stdout == b"__key__\tcls\ns0\t0\n"


def test_a_reader_that_leaves_early_is_no_error(make_shard: Callable[..., str]) -> None:
    path = make_shard("a.tar", 20_000)
    command = f"{sys.executable} -m webdataset ls {path} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"000000.cls\n", b"")


def test_a_compressed_shard_is_read_like_any_other(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    subprocess.run(["gzip", "-k", shard], check=True)
    assert wl(capsysbinary, "ls", f"{shard}.gz")[1] == wl(capsysbinary, "ls", shard)[1]
    assert wl(capsysbinary, "cat", f"{shard}.gz", "txt")[1] == b"hello"


@pytest.mark.parametrize("command", ["concat", "extract", "info", "show"])
def test_a_member_of_ten_gigabytes_is_refused(command: str, tmp_path: Path, capsysbinary: Capture) -> None:
    member = tarfile.TarInfo("a.bin")
    member.size = 10 * 2**30
    path = tmp_path / "large.tar"
    path.write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    code, _, err = wl(capsysbinary, command, str(path))
    assert code == 1
    assert ("a.bin" in err, "large.tar" in err) == (True, True)
