"""PAX and GNU extensions, read as GNU tar reads them."""

from __future__ import annotations

import os

import pytest

from webdataset.errors import ShardError

EXTENDED = {
    "path": lambda k: k.pax((b"path", b"new")) + k.member(b"old", b"1"),
    "path with nul": lambda k: k.pax((b"path", b"new\0rest")) + k.member(b"old", b"1"),
    "path in bytes": lambda k: k.pax((b"path", b"n\xffw")) + k.member(b"old", b"1"),
    "size": lambda k: k.pax((b"size", b"3")) + k.header(b"a", 0) + k.padded(b"abc"),
    "size twice": lambda k: k.pax((b"size", b"1"), (b"size", b"3")) + k.header(b"a", 0) + k.padded(b"abc"),
    "other records": lambda k: (
        k.pax((b"mtime", b"1.5"), (b"comment", b"a=b\nc"), (b"SCHILY.x", b"\0\1")) + k.member(b"a", b"1")
    ),
    "two headers": lambda k: k.pax((b"path", b"one")) + k.pax((b"mtime", b"5")) + k.member(b"a", b"1"),
    "solaris": lambda k: k.pax((b"path", b"new"), type=b"X") + k.member(b"old", b"1"),
    "empty header": lambda k: k.pax() + k.member(b"a", b"1"),
    "global path": lambda k: k.pax((b"path", b"all"), type=b"g") + k.member(b"a", b"1"),
    "global size": lambda k: k.pax((b"size", b"2"), type=b"g") + k.header(b"a", 0) + k.padded(b"ab"),
    "global comment": lambda k: k.pax((b"comment", b"x"), type=b"g") + k.member(b"a", b"1"),
    "global replaced": lambda k: (
        k.pax((b"path", b"x"), type=b"g") + k.pax((b"comment", b"x"), type=b"g") + k.member(b"a", b"1")
    ),
    "global path twice": lambda k: k.pax((b"path", b"x"), (b"path", b"y"), type=b"g") + k.member(b"a", b"1"),
    "path twice": lambda k: k.pax((b"path", b"x"), (b"path", b"y")) + k.member(b"a", b"1"),
    "global and own": lambda k: k.pax((b"path", b"x"), type=b"g") + k.pax((b"path", b"own")) + k.member(b"a", b"1"),
    "own, then global": lambda k: k.pax((b"path", b"own")) + k.pax((b"path", b"x"), type=b"g") + k.member(b"a", b"1"),
    "long name": lambda k: k.long(b"n" * 200) + k.member(b"old", b"1", magic=k.GNU),
    "long name twice": lambda k: k.long(b"one") + k.long(b"two") + k.member(b"old", b"1", magic=k.GNU),
    "long name, size short": lambda k: k.header(b"L", 3, b"L") + k.padded(b"longer") + k.member(b"old", b"1"),
    "long name and path": lambda k: k.long(b"long") + k.pax((b"path", b"pax")) + k.member(b"old", b"1"),
    "path and long name": lambda k: k.pax((b"path", b"pax")) + k.long(b"long") + k.member(b"old", b"1"),
    "path on gnu": lambda k: k.pax((b"path", b"new")) + k.member(b"old", b"1", magic=k.GNU),
    "path on v7": lambda k: k.pax((b"path", b"new")) + k.member(b"old", b"1", magic=k.V7),
    "base 256 size": lambda k: k.member(b"a", b"abc", size=b"\x80" + (3).to_bytes(11, "big"), magic=k.GNU),
    "negative mtime": lambda k: k.member(b"a", b"abc", put={136: b"\xff" * 12}, magic=k.GNU),
    "blank size": lambda k: k.member(b"a", b"", size=bytes(12)),
    "signed checksum": lambda k: k.member(b"\xe9\xe9", b"1", signed=True),
    "contiguous": lambda k: k.member(b"a", b"1", type=b"7"),
    "unknown type": lambda k: k.member(b"a", b"1", type=b"Z"),
    "unknown type with slash": lambda k: k.member(b"a/", b"1", type=b"Z"),
    "S in posix": lambda k: k.member(b"a", b"1", type=b"S"),
    "volume label": lambda k: k.member(b"label", b"", type=b"V", magic=k.GNU),
    "dump directory": lambda k: k.member(b"a/", b"Yx\0\0", type=b"D", magic=k.GNU),
    "directory by slash": lambda k: k.member(b"a/", b"", type=b"\0", magic=k.V7),
    "directory by slash in path": lambda k: k.pax((b"path", b"a/")) + k.member(b"old", b""),
    "directory with size": lambda k: k.header(b"a/", 100, b"5"),
    "symlink": lambda k: k.header(b"a", 0, b"2", link=b"b"),
    "device": lambda k: k.header(b"f", 0, b"6"),
}


@pytest.mark.parametrize("kind", EXTENDED)
def test_extended_members_are_what_gnu_tar_extracts(kit, tmp_path, kind):
    archive = EXTENDED[kind](kit) + kit.pax((b"path", b"last")) + kit.member(b"z", b"last") + kit.END
    files = (
        kit.gnu_files(archive, tmp_path / "out", "--warning=no-unknown-keyword")
        if "directory with" not in kind
        else None
    )
    ours = {os.fsencode(name): data for name, data in kit.read(archive)}
    assert ours == (files or {b"last": b"last"})


def test_an_extended_header_without_its_member_is_an_error(kit):
    for header in (kit.pax((b"path", b"x")), kit.long(b"x"), kit.long(b"x", b"K")):
        with pytest.raises(ShardError, match="member") as raised:
            kit.read(kit.member(b"a", b"1") + header + kit.END)
        assert raised.value.offset == 1024


@pytest.mark.parametrize("zeros", [16, 17, 100, 5000])
def test_a_size_in_an_extended_header_may_have_leading_zeros(kit, tmp_path, zeros):
    header = kit.pax((b"size", b"0" * zeros + b"1234"))
    archive = header + kit.header(b"a", 0) + kit.padded(b"x" * 1234) + kit.member(b"b", b"2") + kit.END
    assert kit.read(archive) == [("a", b"x" * 1234), ("b", b"2")]
    assert kit.gnu_files(archive, tmp_path / "out") == {b"a": b"x" * 1234, b"b": b"2"}


def test_a_record_of_an_extended_header_may_have_leading_zeros_in_its_length(kit, tmp_path):
    record = b"0" * 28 + b"38 path=x\n"
    assert len(record) == 38
    archive = kit.member(b"pax", record, type=b"x") + kit.member(b"a", b"1") + kit.END
    assert kit.read(archive) == [("x", b"1")]
    assert kit.gnu_files(archive, tmp_path / "out") == {b"x": b"1"}


@pytest.mark.parametrize("size", [b"", b"0x10", b"-1", b"+1", b"1" + b"0" * 20, b"9223372036854775808"])
def test_a_size_that_is_no_number_in_range_is_an_error(kit, size):
    with pytest.raises(ShardError, match="size="):
        kit.read(kit.pax((b"size", size)) + kit.member(b"a", b"1") + kit.END)


def test_a_global_header_may_come_last(kit):
    assert kit.read(kit.member(b"a", b"1") + kit.pax((b"comment", b"x"), type=b"g") + kit.END) == [("a", b"1")]
