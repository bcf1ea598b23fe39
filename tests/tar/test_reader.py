"""Every variant of the format, read as GNU tar and Python's tarfile read it."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile

import pytest

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def tarfile_archive(files: list[tuple[str, bytes]], format: int, **changes: object) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in changes.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


@pytest.mark.parametrize("format", FORMATS)
def test_members_come_out_with_their_names_and_bytes(kit, format):
    files = [("a.txt", b"one"), ("dir/b.txt", b""), ("c.bin", bytes(range(256)) * 9), ("d", b"x" * 512)]
    assert kit.read(tarfile_archive(files, FORMATS[format])) == files


@pytest.mark.parametrize("format", ["gnu", "pax"])
def test_long_names_come_out_whole(kit, format):
    files = [("n" * length, b"%d" % length) for length in (99, 100, 101, 255, 256, 1000, 10_000)]
    assert kit.read(tarfile_archive(files, FORMATS[format])) == files


def test_a_ustar_prefix_is_part_of_the_name(kit):
    name = "p" * 150 + "/" + "n" * 90
    assert kit.read(tarfile_archive([(name, b"x")], tarfile.USTAR_FORMAT)) == [(name, b"x")]


def test_a_v7_archive_is_read(kit):
    archive = kit.member(b"a", b"one", magic=kit.V7, type=b"\0") + kit.member(b"b", b"two", magic=kit.V7) + kit.END
    assert kit.read(archive) == [("a", b"one"), ("b", b"two")]


@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_what_gnu_tar_wrote_is_read(kit, tmp_path, format):
    for name, data in [("a.txt", b"hello"), ("b" * 90, b"x" * 10_000), ("empty", b"")]:
        (tmp_path / name).write_bytes(data)
    (tmp_path / "sub").mkdir()
    os.symlink("a.txt", tmp_path / "link")
    os.link(tmp_path / "a.txt", tmp_path / "zhard")
    if format != "v7":
        os.mkfifo(tmp_path / "fifo")
    command = ["tar", "-c", f"--format={format}", "--sort=name", "-C", str(tmp_path), "."]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    assert kit.read(archive) == [("./a.txt", b"hello"), ("./" + "b" * 90, b"x" * 10_000), ("./empty", b"")]


def test_names_may_be_any_bytes(kit):
    archive = (
        kit.member(b"caf\xe9", b"1") + kit.member("\u00e9\u4e2d".encode(), b"2") + kit.member(b"a\nb\t", b"3") + kit.END
    )
    assert kit.read(archive) == [("caf\udce9", b"1"), ("\u00e9\u4e2d", b"2"), ("a\nb\t", b"3")]


def test_a_name_ends_at_a_nul(kit):
    assert kit.read(kit.member(b"a\0junk", b"1") + kit.END) == [("a", b"1")]


def test_the_offset_is_that_of_the_first_header(kit):
    archive = (
        kit.member(b"a", b"1") + kit.pax((b"path", b"b")) + kit.member(b"x", b"2") + kit.member(b"c", b"3") + kit.END
    )
    members, error, _ = kit.outcome(archive)
    assert [(name, offset) for name, offset, _ in members] == [("a", 0), ("b", 1024), ("c", 3072)]
    assert error is None
