"""What many tests need.

Archives are made with Python's own tarfile, so that reader and writer are not each other's witness.
"""

from __future__ import annotations

import io
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

SCRIPTS = sysconfig.get_path("scripts")
"""The folder of the installed commands: `wl` and all others."""

WITHOUT_PRIVILEGES = """
import ctypes
if ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()):
    raise OSError("the privileges of root cannot be given up")
"""
"""The beginning of a program for which permissions count, root's too: it owns what root owns, and may no more."""


def python(
    *words: object,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
    timeout: float = 280,
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end; `words` follow `python`, `limits` are options of prlimit: `{"as": 4 << 30}`."""
    bounds = ["prlimit", *(f"--{name}={limit}" for name, limit in limits.items())] if limits else []
    return subprocess.run(
        [*bounds, sys.executable, *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=cwd,
        env=env,
        timeout=timeout,
    )


def tar_bytes(files: Iterable[tuple[str, bytes]], *, end: bool = True) -> bytes:
    """A tar archive of these (name, content) pairs, without its end marker if asked for."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        size = archive.offset
    return buffer.getvalue()[:size] + (bytes(1024) if end else b"")


def numbered(samples: int, start: int = 0) -> list[tuple[str, bytes]]:
    """The files of samples 000000, 000001, ...: a txt and a cls each."""
    numbers = range(start, start + samples)
    return [
        (f"{i:06d}.{ext}", f"{ext}{i}".encode() if ext == "txt" else b"%d" % i)
        for i in numbers
        for ext in ("cls", "txt")
    ]


def numbered_shards(folder: Path, sizes: Iterable[int]) -> list[str]:
    """Shards 0.tar, 1.tar, ... with so many samples each, numbered throughout; their paths."""
    paths, start = [], 0
    for number, size in enumerate(sizes):
        path = folder / f"{number}.tar"
        path.write_bytes(tar_bytes(numbered(size, start)))
        paths.append(str(path))
        start += size
    return paths


def sparse_tar(path: str | Path, members: Iterable[tuple[str, bytes | int]]) -> None:
    """An archive on a few blocks of the disk: a member with a number as its content is so many zeros."""
    with open(path, "wb") as file:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = content if isinstance(content, int) else len(content)
            file.write(member.tobuf(tarfile.GNU_FORMAT))
            file.write(b"" if isinstance(content, int) else content)
            file.truncate(file.tell() + (member.size if isinstance(content, int) else 0) + -member.size % 512)
            file.seek(0, 2)
        file.truncate(file.tell() + 1024)


def concatenated_tar(folder: Path, *sizes: int) -> str:
    """A file of several archives, with so many samples each, that GNU tar made and `cat` put together; its path."""
    archives, start = [], 0
    for size in sizes:
        for name, content in numbered(size, start):
            (folder / name).write_bytes(content)
        command = ["tar", "-b1", "--format=ustar", "--remove-files", "-cf-", "-C", str(folder)]
        command += [name for name, _ in numbered(size, start)]
        archives.append(subprocess.run(command, capture_output=True, check=True).stdout)
        start += size
    (folder / "joined.tar").write_bytes(b"".join(archives))
    return str(folder / "joined.tar")
