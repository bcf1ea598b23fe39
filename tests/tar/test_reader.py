"""Every variant of the format, read as GNU tar and Python's tarfile read it."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile

import pytest

from webdataset.base.reports import Report
from webdataset.errors import LimitError, ShardError, ShardWarning
from webdataset.tar.scan import PlaceScan

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


# -- PAX and GNU extensions ----------------------------------------------------------------------

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


@pytest.mark.parametrize("type", [b"1", b"2", b"3", b"4", b"5", b"6"])
def test_what_is_no_file_has_no_data_whatever_its_size_says(kit, type):
    archive = kit.header(b"x", 1000, type, link=b"y") + kit.member(b"a", b"1") + kit.END
    assert kit.read(archive) == [("a", b"1")]


def test_a_link_with_data_after_all_is_an_error(kit):
    archive = kit.member(b"x", b"data", type=b"2") + kit.member(b"a", b"1") + kit.END
    with pytest.raises(ShardError, match="checksum"):
        kit.read(archive)


@pytest.mark.parametrize("data", [b"", b"x", b"\0"], ids=["no data", "data", "a zero"])
@pytest.mark.parametrize("header", [{"magic": bytes(8), "type": b"\0"}, {}], ids=["v7", "posix"])
def test_a_directory_by_its_name_is_passed_over_whatever_its_size(kit, tmp_path, data, header):
    directory = kit.header(b"d/", 1, **header) + kit.padded(data)
    archive = directory + kit.member(b"a", b"1") + kit.END
    assert kit.read(archive) == [("a", b"1")]
    assert [(entry.name, entry.type) for entry in kit.scan(archive)] == [("d/", "5"), ("a", "0")]
    scan = PlaceScan(io.BytesIO(archive))
    assert [place.name for window in scan.windows() for _, _, place in window] == ["a"]
    # GNU tar reads it, too: it lists the one kind, and extracts the other
    if data:
        assert kit.gnu_names(archive) == [b"d/", b"a"]
    else:
        assert kit.gnu_files(archive, tmp_path / "out") == {b"a": b"1"}


def test_a_directory_by_its_name_may_come_last(kit):
    for size in (1, 600, 1 << 40):
        assert kit.read(kit.member(b"a", b"1") + kit.header(b"d/", size) + kit.END) == [("a", b"1")]


def test_a_directory_by_its_name_that_is_cut_is_an_error(kit):
    with pytest.raises(ShardError, match=r"ends early: 512 of 9999 bytes of the member.*member d/"):
        kit.read(kit.header(b"d/", 9999) + b"x" * 512)


def test_a_continued_member_is_an_error(kit):
    with pytest.raises(ShardError, match=r"another volume.*offset 0, member a"):
        kit.read(kit.member(b"a", b"1", type=b"M", magic=kit.GNU) + kit.END)


def test_an_extended_header_without_its_member_is_an_error(kit):
    for header in (kit.pax((b"path", b"x")), kit.long(b"x"), kit.long(b"x", b"K")):
        with pytest.raises(ShardError, match=r"without its member.*offset 1024"):
            kit.read(kit.member(b"a", b"1") + header + kit.END)


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
    with pytest.raises(ShardError, match="malformed extended header: size="):
        kit.read(kit.pax((b"size", size)) + kit.member(b"a", b"1") + kit.END)


def test_a_global_header_may_come_last(kit):
    assert kit.read(kit.member(b"a", b"1") + kit.pax((b"comment", b"x"), type=b"g") + kit.END) == [("a", b"1")]


def test_a_global_header_ends_with_its_archive(kit):
    first = kit.pax((b"path", b"x"), type=b"g") + kit.member(b"a", b"1") + kit.END
    assert kit.read(first + kit.member(b"a", b"1") + kit.END, concatenated=True) == [("x", b"1"), ("a", b"1")]


# -- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [1, 2, 3, 20, 5000])
def test_any_number_of_zero_blocks_ends_an_archive(kit, zeros):
    assert kit.read(kit.member(b"a", b"1") + bytes(512) * zeros) == [("a", b"1")]


def test_an_archive_without_members_is_empty(kit):
    assert kit.read(kit.END) == []
    assert kit.read(bytes(10240)) == []


@pytest.mark.parametrize("zeros", [1, 2, 18, 3000])
def test_archives_one_after_another_are_read_through_if_wanted(kit, zeros):
    first, second = kit.member(b"a", b"1"), kit.member(b"b", b"2")
    archive = first + bytes(512) * zeros + second + kit.END
    assert kit.read(archive, concatenated=True) == [("a", b"1"), ("b", b"2")]
    assert [entry.name for entry in kit.scan(archive, concatenated=True)] == ["a", "b"]
    assert kit.gnu_names(archive, "-i") == [b"a", b"b"]


@pytest.mark.parametrize("zeros", [1, 2, 18, 3000])
def test_reading_stops_at_the_end_marker_as_gnu_tar_does(kit, zeros):
    archive = kit.member(b"a", b"1") + bytes(512) * zeros + kit.member(b"b", b"2") * 3 + kit.END
    byte = 1024 + 512 * zeros
    with pytest.warns(ShardWarning, match=rf"behind the archive's end marker.*concatenated=True.*offset {byte}\]"):
        assert kit.read(archive) == [("a", b"1")]
    with pytest.warns(ShardWarning, match=rf"--concatenated.*offset {byte}\]"):
        assert [entry.name for entry in kit.scan(archive)] == ["a"]
    assert kit.gnu_names(archive) == [b"a"]
    assert kit.outcome(archive) == ([("a", 0, b"1")], None, 1)


def test_stale_bytes_in_the_last_record_are_no_members(kit, tmp_path):
    """Some writers fill the last record with what their buffer held before."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    command = ["tar", "-c", "--format=ustar", "-C", str(tmp_path), "a.txt", "b.txt"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    stale = archive[: 2048 + 1024] + archive[:2048] + archive[3072 + 2048 :]
    assert len(stale) == len(archive) == 10240
    with pytest.warns(ShardWarning, match=r"offset 3072\]"):
        assert kit.read(stale) == [("a.txt", b"a.txt"), ("b.txt", b"b.txt")]
    assert kit.gnu_names(stale) == [b"a.txt", b"b.txt"]


def test_what_follows_the_end_marker_is_an_error_in_strict_mode(kit):
    archive = kit.member(b"a", b"1") + kit.END + kit.member(b"b", b"2") + kit.END
    with pytest.raises(ShardError, match=r"concatenated=True.*offset 2048"):
        kit.read(archive, report=Report(strict=True))


def test_a_stream_is_read_to_its_end_behind_the_end_marker_too(kit):
    """Whoever delivers it can then be held to the length that was announced."""
    told: list[int] = []
    archive = kit.member(b"a", b"1") + kit.END + kit.member(b"b", b"2" * 5_000_000) + kit.END
    stream = kit.stream(archive, [100_000])
    with pytest.warns(ShardWarning, match="end marker"):
        kit.read(stream, on_end=told.append)
    assert told == [len(archive)]
    assert stream.read(1) == b""


class Counted(io.BytesIO):
    """A file that counts the bytes that are read."""

    taken = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


def test_a_scan_jumps_over_what_follows_the_end_marker(kit):
    file = Counted(kit.member(b"a", b"1") + kit.END + kit.member(b"b", b"2" * 5_000_000) + kit.END)
    with pytest.warns(ShardWarning, match="end marker"):
        assert [entry.name for entry in kit.scan(file)] == ["a"]
    assert file.taken < 1 << 20


@pytest.mark.parametrize("garbage", [b"x", b"garbage" * 1000, bytes(100) + b"x", b"\n", b"x" * (3 << 20)])
def test_garbage_after_the_end_is_passed_over(kit, garbage):
    assert kit.read(kit.member(b"a", b"1") + kit.END + garbage) == [("a", b"1")]


def test_garbage_after_a_lone_zero_block_is_a_warning(kit):
    archive = kit.member(b"a", b"1") + bytes(512) + b"garbage" * 1000
    with pytest.warns(ShardWarning, match=r"a lone zero block.*offset 1536"):
        assert kit.read(archive) == [("a", b"1")]


def test_a_header_somewhere_in_the_garbage_is_a_warning(kit):
    archive = kit.member(b"a", b"1") + kit.END + b"x" * 1024 + kit.member(b"b", b"2") + kit.END
    with pytest.warns(ShardWarning, match=r"members may be lost.*offset 3072"):
        assert kit.read(archive) == [("a", b"1")]


def test_a_missing_end_marker_is_a_warning_that_names_the_byte(kit):
    archive = kit.member(b"a", b"1") + kit.member(b"b", b"2")
    with pytest.warns(ShardWarning, match=r"no end marker.*url s3://x/a.tar, offset 2048"):
        assert kit.read(archive, url="s3://x/a.tar") == [("a", b"1"), ("b", b"2")]


def test_a_missing_end_marker_after_many_members_is_a_warning(kit):
    archive = kit.member(b"a", b"1") * 3000
    with pytest.warns(ShardWarning, match="no end marker"):
        assert len(kit.read(archive)) == 3000


def test_the_end_is_told_with_the_number_of_bytes(kit):
    told: list[int] = []
    archive = kit.member(b"a", b"1") + kit.END
    kit.read(archive, on_end=told.append)
    assert told == [2048]


# -- sparse files --------------------------------------------------------------------------------


def sparse_file(path, pieces: list[tuple[int, bytes]], size: int) -> bytes:
    with open(path, "wb") as file:
        file.truncate(size)
        for offset, data in pieces:
            file.seek(offset)
            file.write(data)
    return path.read_bytes()


SPARSE = {
    "hole in the middle": ([(0, b"a" * 5000), (1 << 20, b"b" * 4096)], (1 << 20) + 4096),
    "hole at the end": ([(0, b"a" * 4096)], 1 << 20),
    "hole at the start": ([(1 << 20, b"tail")], (1 << 20) + 4),
    "only a hole": ([], 100_000),
    "many pieces": ([(i << 16, b"%d" % i * 100) for i in range(60)], 60 << 16),
}


@pytest.mark.parametrize("shape", SPARSE)
@pytest.mark.parametrize("version", ["gnu", "oldgnu", "0.0", "0.1", "1.0"])
def test_sparse_files_of_gnu_tar_come_out_whole(kit, tmp_path, shape, version):
    pieces, size = SPARSE[shape]
    (tmp_path / "in").mkdir()
    content = sparse_file(tmp_path / "in" / "s", pieces, size)
    (tmp_path / "in" / "t").write_bytes(b"after")
    options = [f"--format={version}"] if "gnu" in version else ["--format=posix", f"--sparse-version={version}"]
    command = ["tar", "-c", "-S", *options, "-C", str(tmp_path / "in"), "s", "t"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    assert len(archive) < size or shape == "only a hole"
    assert kit.read(archive) == [("s", content), ("t", b"after")]
    assert kit.gnu_files(archive, tmp_path / "out") == {b"s": content, b"t": b"after"}
    assert [(entry.name, entry.size) for entry in kit.scan(archive)] == [("s", size), ("t", 5)]


def test_a_sparse_file_with_a_long_name_keeps_it(kit, tmp_path):
    name = "long" * 60
    content = sparse_file(tmp_path / name, [(65536, b"x" * 512)], 200_000)
    for version in ("0.0", "0.1", "1.0"):
        command = ["tar", "-c", "-S", "--format=posix", f"--sparse-version={version}", "-C", str(tmp_path), name]
        archive = subprocess.run(command, capture_output=True, check=True).stdout
        assert kit.read(archive) == [(name, content)]


S = b"GNU.sparse."
BAD_SPARSE = {
    "out of order": [(S + b"size", b"2000"), (S + b"numblocks", b"2"), (S + b"map", b"1024,512,0,512")],
    "overlap": [(S + b"size", b"1024"), (S + b"numblocks", b"2"), (S + b"map", b"0,512,256,512")],
    "inside a block": [(S + b"size", b"2000"), (S + b"numblocks", b"2"), (S + b"map", b"0,100,1076,924")],
    "too much data": [(S + b"size", b"2048"), (S + b"numblocks", b"1"), (S + b"map", b"0,2048")],
    "too little data": [(S + b"size", b"512"), (S + b"numblocks", b"1"), (S + b"map", b"0,512")],
    "no end": [(S + b"size", b"9999"), (S + b"numblocks", b"1"), (S + b"map", b"0,1024")],
    "beyond the end": [(S + b"size", b"10"), (S + b"numblocks", b"1"), (S + b"map", b"0,1024")],
    "odd map": [(S + b"size", b"1024"), (S + b"numblocks", b"1"), (S + b"map", b"0,1024,5")],
    "wrong count": [(S + b"size", b"1024"), (S + b"numblocks", b"3"), (S + b"map", b"0,1024")],
    "no numbers": [(S + b"size", b"1024"), (S + b"map", b"0;1024")],
    "only a size": [(S + b"size", b"1024")],
    "no size": [(S + b"numblocks", b"1"), (S + b"map", b"0,1024")],
    "not by turns": [(S + b"size", b"1024"), (S + b"offset", b"0"), (S + b"offset", b"0")],
    "unknown version": [(S + b"major", b"2"), (S + b"minor", b"0"), (S + b"realsize", b"1024")],
    "1.0 without a map": [(S + b"major", b"1"), (S + b"minor", b"0"), (S + b"realsize", b"1024")],
}


@pytest.mark.parametrize("fault", BAD_SPARSE)
def test_a_sparse_map_that_makes_no_sense_is_an_error(kit, fault):
    archive = kit.member(b"a", b"1") + kit.pax(*BAD_SPARSE[fault]) + kit.member(b"s", b"D" * 1024) + kit.END
    members, error, _ = kit.outcome(archive)
    assert [name for name, _, _ in members] == ["a"]
    assert "sparse" in error
    assert "offset 1024" in error


def test_a_sparse_map_on_a_gnu_header_is_an_error(kit):
    records = [(S + b"size", b"3"), (S + b"numblocks", b"1"), (S + b"map", b"0,3")]
    with pytest.raises(ShardError, match=r"not in the PAX format.*member s"):
        kit.read(kit.pax(*records) + kit.member(b"s", b"abc", magic=kit.GNU) + kit.END)


def test_a_sparse_map_by_hand_is_expanded(kit):
    records = [
        (S + b"size", b"3000"),
        (S + b"numblocks", b"2"),
        (S + b"map", b"512,512,3000,0"),
        (S + b"name", b"real"),
    ]
    assert kit.read(kit.pax(*records) + kit.member(b"s", b"D" * 512) + kit.END) == [
        ("real", bytes(512) + b"D" * 512 + bytes(3000 - 1024))
    ]


@pytest.mark.parametrize(("version", "pieces"), [("oldgnu", 44_000), ("0.0", 20_000), ("0.1", 84_000), ("1.0", 84_000)])
def test_a_sparse_map_of_more_than_a_megabyte_is_read(kit, tmp_path, version, pieces):
    content = sparse_file(tmp_path / "s", [(0, (b"x" * 512 + bytes(512)) * pieces)], 1024 * pieces + (1 << 20))
    options = ["--format=oldgnu"] if version == "oldgnu" else ["--format=posix", f"--sparse-version={version}"]
    command = ["tar", "-c", "-S", "--hole-detection=raw", *options, "-C", str(tmp_path), "s"]
    archive = subprocess.run(command, capture_output=True, check=True).stdout
    assert 1 << 20 < len(archive) - 512 * pieces < len(content) // 3  # what is not data is the map
    [(name, data)] = kit.read(archive)
    assert name == "s"
    assert data == content
    with pytest.raises(LimitError, match=r"more than 10000 pieces.*offset 0.*max_sparse_pieces="):
        kit.read(archive, limits=kit.limits(max_sparse_pieces=10_000))
