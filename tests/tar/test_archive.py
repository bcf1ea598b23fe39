"""What comes between members and after them: directories, links, end markers, garbage."""

from __future__ import annotations

import io
import subprocess

import pytest

from webdataset.base.reports import Report
from webdataset.errors import ShardError, ShardWarning
from webdataset.tar.scan import PlaceScan


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
    with pytest.raises(ShardError, match="512 of 9999") as raised:
        kit.read(kit.header(b"d/", 9999) + b"x" * 512)
    assert (raised.value.offset, raised.value.member) == (0, "d/")


def test_a_continued_member_is_an_error(kit):
    with pytest.raises(ShardError, match="volume") as raised:
        kit.read(kit.member(b"a", b"1", type=b"M", magic=kit.GNU) + kit.END)
    assert (raised.value.offset, raised.value.member) == (0, "a")


def test_a_global_header_ends_with_its_archive(kit):
    first = kit.pax((b"path", b"x"), type=b"g") + kit.member(b"a", b"1") + kit.END
    assert kit.read(first + kit.member(b"a", b"1") + kit.END, concatenated=True) == [("x", b"1"), ("a", b"1")]


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
    with pytest.warns(ShardWarning, match=rf"concatenated=.*\b{byte}\b"):
        assert kit.read(archive) == [("a", b"1")]
    with pytest.warns(ShardWarning, match=rf"--concatenated.*\b{byte}\b"):
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
    with pytest.warns(ShardWarning, match="3072"):
        assert kit.read(stale) == [("a.txt", b"a.txt"), ("b.txt", b"b.txt")]
    assert kit.gnu_names(stale) == [b"a.txt", b"b.txt"]


def test_what_follows_the_end_marker_is_an_error_in_strict_mode(kit):
    archive = kit.member(b"a", b"1") + kit.END + kit.member(b"b", b"2") + kit.END
    with pytest.raises(ShardError, match="concatenated=True") as raised:
        kit.read(archive, report=Report(strict=True))
    assert raised.value.offset == 2048


def test_a_stream_is_read_to_its_end_behind_the_end_marker_too(kit):
    """Whoever delivers it can then be held to the length that was announced."""
    told: list[int] = []
    archive = kit.member(b"a", b"1") + kit.END + kit.member(b"b", b"2" * 5_000_000) + kit.END
    stream = kit.stream(archive, [100_000])
    with pytest.warns(ShardWarning, match="marker"):
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
    with pytest.warns(ShardWarning, match="marker"):
        assert [entry.name for entry in kit.scan(file)] == ["a"]
    assert file.taken < 1 << 20


@pytest.mark.parametrize("garbage", [b"x", b"garbage" * 1000, bytes(100) + b"x", b"\n", b"x" * (3 << 20)])
def test_garbage_after_the_end_is_passed_over(kit, garbage):
    assert kit.read(kit.member(b"a", b"1") + kit.END + garbage) == [("a", b"1")]


def test_garbage_after_a_lone_zero_block_is_a_warning(kit):
    archive = kit.member(b"a", b"1") + bytes(512) + b"garbage" * 1000
    with pytest.warns(ShardWarning, match="1536"):
        assert kit.read(archive) == [("a", b"1")]


def test_a_header_somewhere_in_the_garbage_is_a_warning(kit):
    archive = kit.member(b"a", b"1") + kit.END + b"x" * 1024 + kit.member(b"b", b"2") + kit.END
    with pytest.warns(ShardWarning, match="3072"):
        assert kit.read(archive) == [("a", b"1")]


def test_a_missing_end_marker_is_a_warning_that_names_the_byte(kit):
    archive = kit.member(b"a", b"1") + kit.member(b"b", b"2")
    with pytest.warns(ShardWarning, match=r"s3://x/a\.tar.*\b2048\b"):
        assert kit.read(archive, url="s3://x/a.tar") == [("a", b"1"), ("b", b"2")]


def test_a_missing_end_marker_after_many_members_is_a_warning(kit):
    archive = kit.member(b"a", b"1") * 3000
    with pytest.warns(ShardWarning, match="3072000"):
        assert len(kit.read(archive)) == 3000


def test_the_end_is_told_with_the_number_of_bytes(kit):
    told: list[int] = []
    archive = kit.member(b"a", b"1") + kit.END
    kit.read(archive, on_end=told.append)
    assert told == [2048]
