"""Scanning: every member of every type, without its data."""

from __future__ import annotations

import io
import os
import subprocess

import pytest

from webdataset.errors import ShardError, ShardWarning


def test_every_type_of_member_is_listed(kit, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "d").mkdir()
    os.link(tmp_path / "a", tmp_path / "h")
    os.symlink("a" * 150, tmp_path / "l")
    os.mkfifo(tmp_path / "p")
    command = ["tar", "-c", "--format=gnu", "--mtime=@1234567890", "-C", str(tmp_path), "a", "d", "h", "l", "p"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    entries = kit.scan(archive)
    assert [(entry.name, entry.type, entry.size) for entry in entries] == [
        ("a", "0", 1000),
        ("d/", "5", 0),
        ("h", "1", 0),
        ("l", "2", 0),
        ("p", "6", 0),
    ]
    assert entries[2].linkname == "a"
    assert entries[3].linkname == "a" * 150
    assert {entry.mtime for entry in entries} == {1234567890}
    assert entries[0].mode & 0o444


def test_records_of_extended_headers_are_told(kit):
    pax = kit.pax((b"mtime", b"1.5"), (b"path", b"new"), (b"linkpath", b"to"), (b"comment", b"caf\xe9"))
    (entry,) = kit.scan(pax + kit.member(b"old", b"12") + kit.END)
    assert (entry.name, entry.linkname, entry.mtime, entry.offset, entry.data_offset) == ("new", "to", 1.5, 0, 1536)
    assert entry.pax == {"mtime": "1.5", "path": "new", "linkpath": "to", "comment": "caf\udce9"}


def test_a_stream_that_cannot_seek_is_read_through(kit):
    archive = kit.member(b"a", b"x" * 200_000) + kit.member(b"b", b"y") + kit.END
    entries = kit.scan(kit.stream(archive, [1000]))
    assert entries == kit.scan(archive)
    assert [(entry.name, entry.offset) for entry in entries] == [("a", 0), ("b", 200_704)]


def test_scanning_starts_where_the_file_stands(kit):
    file = io.BytesIO(b"before" + kit.member(b"a", b"x" * 200_000) + kit.member(b"b", b"y") + kit.END)
    file.seek(6)
    assert [entry.offset for entry in kit.scan(file)] == [0, 200_704]


@pytest.mark.parametrize("seekable", [True, False])
def test_a_cut_is_found_even_by_seeking(kit, seekable):
    archive = kit.member(b"a", b"1") + kit.header(b"b", 200_000) + bytes(100_000)
    with pytest.raises(ShardError, match="100000 of 200192") as raised:
        kit.scan(io.BytesIO(archive) if seekable else kit.stream(archive, [5000]), url="u")
    assert (raised.value.url, raised.value.offset, raised.value.member) == ("u", 1024, "b")


def test_a_missing_end_marker_is_a_warning_when_scanning_too(kit):
    with pytest.warns(ShardWarning, match="1024"):
        assert len(kit.scan(kit.member(b"a", b"1"))) == 1


def test_members_over_the_limit_are_scanned(kit):
    archive = kit.member(b"a", b"x" * 1000) + kit.END
    assert kit.scan(archive, limits=kit.limits(max_member_bytes=10))[0].size == 1000


def test_garbage_is_refused_when_scanning(kit):
    with pytest.raises(ShardError, match="HTML"):
        kit.scan(b"<html>" + b" " * 1000)
