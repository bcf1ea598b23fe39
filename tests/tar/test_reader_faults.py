"""Damaged and hostile archives: an error with its place, never a wrong result, never unbounded memory."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset.base.reports import Report
from webdataset.errors import LimitError, ShardError
from webdataset.tar import read_members

HEADERS = [0, 1024, 2048, 3584, 4608, 5120]
"""Where the headers of the small archive are."""


def small_archive(kit) -> bytes:
    return (
        kit.member(b"a.txt", b"one")
        + kit.pax((b"path", b"b" * 120))
        + kit.member(b"x", b"two" * 300)
        + kit.long(b"c" * 150)
        + kit.member(b"x", b"", magic=kit.GNU)
        + kit.member(b"d.txt", b"d" * 512)
        + kit.END
    )


# -- no archive at all ---------------------------------------------------------------------------


def test_a_shard_of_zero_bytes_is_an_error(kit):
    with pytest.raises(ShardError, match="empty") as raised:
        kit.read(b"", url="a.tar")
    assert raised.value.url == "a.tar"


def test_a_zip_named_tar_is_recognised(kit):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "x" * 1000)
    with pytest.raises(ShardError, match="zip") as raised:
        kit.read(file.getvalue(), url="a.tar")
    assert (raised.value.url, raised.value.offset) == ("a.tar", 0)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (gzip.compress(random.Random(1).randbytes(2000), mtime=0), "gzip"),
        (b"<!doctype html><title>Not found</title>", "HTML"),
        (b'{"error": "expired"}' * 100, "JSON"),
        (b"not found\n" * 100, "text"),
        (random.Random(1).randbytes(2000), "checksum"),
        (b"\x01\x02\x03", "3 of 512"),
        (bytes(100), "100 of 512"),
    ],
)
def test_what_is_no_archive_says_what_it_looks_like(kit, data, complaint):
    with pytest.raises(ShardError, match=complaint):
        kit.read(data)


# -- cuts and changed bytes ----------------------------------------------------------------------


def test_every_cut_is_an_error_or_a_warning_with_all_complete_members(kit):
    archive = small_archive(kit)
    whole, _, _ = kit.outcome(archive)
    boundaries = {1024: 1, 3584: 2, 5120: 3}
    for cut in range(len(archive) - 512):
        members, error, warned = kit.outcome(archive[:cut])
        assert members == whole[: len(members)]
        if error is None:
            assert warned == 1
            assert len(members) == (4 if cut >= 6144 else boundaries[cut])
        else:
            assert "early" in error.text or cut == 0
    assert kit.outcome(archive[: len(archive) - 512]) == (whole, None, 0)


def test_a_cut_member_says_how_much_of_it_is_there(kit):
    archive = kit.member(b"a", b"1") + kit.member(b"b", b"x" * 1000)
    members, error, _ = kit.outcome(archive[: 1024 + 512 + 300])
    assert members == [("a", 0, b"1")]
    assert (error.kind, error.offset, error.member) == (ShardError, 1024, "b")
    assert "300 of 1000" in error.text


def test_every_changed_byte_of_a_header_is_an_error_or_changes_nothing(kit):
    archive = small_archive(kit)
    whole, _, _ = kit.outcome(archive)
    for start in HEADERS:
        for place in range(start, start + 512):
            for change in (1, 0x20, 0x80):
                damaged = bytearray(archive)
                damaged[place] ^= change
                members, error, _ = kit.outcome(bytes(damaged))
                assert members == whole if error is None else members == whole[: len(members)]


def test_a_changed_byte_among_many_members_is_an_error(kit):
    archive = b"".join(kit.member(b"%06d" % i, b"%d" % i) for i in range(2000)) + kit.END
    for number in (0, 1, 777, 1023, 1024, 1999):
        damaged = bytearray(archive)
        damaged[number * 1024 + 10] ^= 1
        members, error, _ = kit.outcome(bytes(damaged))
        assert len(members) == number
        assert error.offset == number * 1024


def test_members_before_the_fault_come_first(kit):
    archive = kit.member(b"a", b"1") + kit.member(b"b", b"2") + b"garbage" * 100
    lists = read_members(io.BytesIO(archive))
    assert [name for name, _, _ in next(lists)] == ["a", "b"]
    with pytest.raises(ShardError, match="checksum"):
        next(lists)


def test_members_before_a_failing_read_come_first(kit):
    class Failing(io.RawIOBase):
        def __init__(self) -> None:
            self.file = io.BytesIO(kit.member(b"a", b"1") + kit.header(b"b", 2000))

        def read(self, size: int = -1) -> bytes:
            data = self.file.read(size)
            if not data:
                raise ConnectionResetError("gone")
            return data

    lists = read_members(Failing())
    assert [name for name, _, _ in next(lists)] == ["a"]
    with pytest.raises(ConnectionResetError, match="gone"):
        next(lists)


def test_strict_mode_makes_a_missing_end_marker_an_error(kit):
    lists = read_members(io.BytesIO(kit.member(b"a", b"1")), report=Report(strict=True))
    assert next(lists) == [("a", 0, b"1")]
    with pytest.raises(ShardError, match="marker") as raised:
        next(lists)
    assert raised.value.offset == 1024


def test_a_stream_without_data_yet_is_an_error(kit):
    class NonBlocking:
        def read(self, size: int) -> None:
            return None

    with pytest.raises(ShardError, match="blocking"):
        list(read_members(NonBlocking()))


# -- hostile sizes -------------------------------------------------------------------------------


class Zeros:
    """A header, then as many zeros as one asks for, up to a length."""

    def __init__(self, head: bytes, length: int) -> None:
        self.head, self.left = head, length

    def read(self, size: int) -> bytes:
        if self.head:
            data, self.head = self.head[:size], self.head[size:]
            return data
        size = min(size, self.left, 1 << 20)
        self.left -= size
        return bytes(size)


def peak(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [10**9, 8 << 30, 2**62])
def test_a_size_that_lies_needs_no_memory(kit, size):
    field = b"\x80" + size.to_bytes(11, "big")
    archive = kit.header(b"a", field, magic=kit.GNU) + b"x" * 1000
    limits = kit.limits(max_member_bytes=2**63)

    def attack() -> None:
        with pytest.raises(ShardError, match=f"1000 of {size}"):
            kit.read(archive, limits=limits)

    assert peak(attack) < 20 << 20


def test_a_lying_size_in_a_real_file_needs_no_memory(kit, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(kit.header(b"a", b"\x80" + (1 << 40).to_bytes(11, "big"), magic=kit.GNU) + b"x" * 1000)

    def attack() -> None:
        with open(path, "rb", buffering=0) as file, pytest.raises(ShardError, match=f"1000 of {1 << 40}"):
            kit.read(file, limits=kit.limits(max_member_bytes=2**63))

    assert peak(attack) < 20 << 20


def test_a_member_over_the_limit_is_refused_with_the_cure(kit):
    archive = kit.member(b"a", b"1") + kit.header(b"big", 1001)
    members, error, _ = kit.outcome(archive, limits=kit.limits(max_member_bytes=1000))
    assert members == [("a", 0, b"1")]
    assert (error.kind, error.offset, error.member) == (LimitError, 1024, "big")
    assert "1001" in error.text
    assert "WDS_MAX_MEMBER_BYTES" in error.hint
    assert "max_member_bytes=" in error.hint


def test_the_limit_holds_among_many_small_members(kit):
    archive = b"".join(kit.member(b"%06d" % i, b"x" * 10) for i in range(500)) + kit.member(b"big", b"y" * 11) + kit.END
    with pytest.raises(LimitError) as raised:
        kit.read(archive, limits=kit.limits(max_member_bytes=10))
    assert raised.value.member == "big"


def test_the_environment_sets_the_limit(kit, monkeypatch):
    monkeypatch.setenv("WDS_MAX_MEMBER_BYTES", "100")
    with pytest.raises(LimitError, match="100"):
        kit.read(kit.member(b"a", b"x" * 101) + kit.END)


def test_a_member_over_8_gib_is_passed_over_or_scanned_without_memory(kit):
    size = (8 << 30) + 1
    head = kit.header(b"big", b"\x80" + size.to_bytes(11, "big"), magic=kit.GNU)
    entry, last = kit.scan(SparseFile(head, size, kit.member(b"b", b"2") + kit.END))
    assert (entry.name, entry.size, entry.data_offset) == ("big", size, 512)
    assert (last.name, last.offset) == ("b", 512 + size + 511)


class SparseFile(io.RawIOBase):
    """A seekable file with a hole of any size between its head and its tail."""

    def __init__(self, head: bytes, hole: int, tail: bytes) -> None:
        self.head, self.tail = head, tail
        self.tail_at = len(head) + hole + -hole % 512
        self.place = 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = 0) -> int:
        self.place = offset + (self.tail_at + len(self.tail) if whence == 2 else 0)
        return self.place

    def read(self, size: int = -1) -> bytes:
        if self.place >= self.tail_at:
            start = self.place - self.tail_at
            data = self.tail[start : start + size]
        elif self.place < len(self.head):
            data = self.head[self.place : self.place + size]
        else:
            data = bytes(min(size, self.tail_at - self.place))
        self.place += len(data)
        return data


def test_a_big_member_of_a_pax_archive_has_its_size_from_the_record(kit):
    size = 9 << 30
    head = kit.pax((b"size", b"%d" % size)) + kit.header(b"big", 0)
    limits = kit.limits(max_member_bytes=2**40)
    with pytest.raises(ShardError, match=f"5242880 of {size}"):
        kit.read(Zeros(head, 5 << 20), limits=limits)


@pytest.mark.parametrize("type", [b"x", b"g", b"L", b"K", b"X"])
def test_an_extended_header_of_gigabytes_is_refused(kit, type):
    head = kit.member(b"a", b"1") + kit.header(b"h", 4 << 30, type)

    def attack() -> None:
        with pytest.raises(LimitError, match="4294967296") as raised:
            kit.read(Zeros(head, 4 << 30))
        assert raised.value.offset == 1024
        assert "max_" in raised.value.hint

    assert peak(attack) < 20 << 20


def test_a_name_over_the_limit_is_refused(kit):
    archive = kit.pax((b"path", b"n" * 70_000)) + kit.member(b"a", b"1") + kit.END
    with pytest.raises(LimitError, match="70000") as raised:
        kit.read(archive)
    assert "max_name_bytes=" in raised.value.hint
    assert kit.read(archive, limits=kit.limits(max_name_bytes=70_000)) == [("n" * 70_000, b"1")]


def test_a_chain_of_headers_without_end_is_refused(kit):
    with pytest.raises(LimitError, match="16"):
        kit.read(kit.long(b"x") * 100_000)
    assert kit.read(kit.long(b"x") * 16 + kit.member(b"a", b"1") + kit.END) == [("x", b"1")]


def test_global_headers_without_end_need_no_memory(kit):
    header = kit.pax((b"comment", b"x" * 100_000), type=b"g")

    def attack() -> None:
        assert kit.read(header * 30 + kit.END) == []

    assert peak(attack) < 12 << 20


def test_a_sparse_map_that_expands_to_terabytes_is_refused(kit):
    size = 10 << 40
    records = [(b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.map", b"0,512,%d,0" % size)]
    archive = kit.pax(*records) + kit.member(b"s", b"D" * 512) + kit.END

    def attack() -> None:
        with pytest.raises(LimitError, match="10995116277760") as raised:
            kit.read(archive)
        assert raised.value.member == "s"
        assert "WDS_MAX_MEMBER_BYTES" in raised.value.hint

    assert peak(attack) < 4 << 20


def test_an_old_gnu_sparse_map_without_end_is_refused(kit):
    head = kit.header(b"s", 512, b"S", magic=kit.GNU, put={482: b"\1", 483: b"00000001000\0"})
    more = bytearray(512)
    more[504] = 1
    with pytest.raises(LimitError, match="1048576") as raised:
        kit.read(head + bytes(more) * 60_000)
    assert (raised.value.offset, raised.value.member) == (0, "s")


def test_a_sparse_map_in_the_data_without_end_is_refused(kit):
    records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"1024")]
    data = b"99999999999\n" + b"0\n0\n" * 1_000_000
    with pytest.raises(LimitError, match="sparse"):
        kit.read(kit.pax(*records) + kit.member(b"s", data) + kit.END)


def test_a_cut_sparse_map_is_an_error(kit):
    records = [(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"1024")]
    archive = kit.pax(*records) + kit.header(b"s", 4096) + b"200\n0\n"
    with pytest.raises(ShardError, match="6 of 512"):
        kit.read(archive)


def test_a_malformed_record_names_its_place(kit):
    archive = kit.member(b"a", b"1") + kit.member(b"pax", b"99 path=x\n", type=b"x") + kit.member(b"b", b"2") + kit.END
    with pytest.raises(ShardError, match="malformed") as raised:
        kit.read(archive)
    assert raised.value.offset == 1024


def test_terminal_escapes_in_names_do_not_reach_the_message(kit):
    archive = kit.header(b"\x1b[2Jx", 1000) + b"short"
    with pytest.raises(ShardError, match=r"\\x1b\[2Jx"):
        kit.read(archive)


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_never_gives_a_wrong_member_quietly(kit, seed):
    rng = random.Random(seed)
    archive = small_archive(kit)
    whole, _, _ = kit.outcome(archive)
    data = {(name, content) for name, _, content in whole}
    for _ in range(100):
        damaged = bytearray(archive)
        # Header blocks only, as tar has no checksum over data; and one byte in each, as two may make up for each other.
        for header in rng.sample(HEADERS, rng.randint(1, 5)):
            damaged[header + rng.randrange(512)] = rng.randrange(256)
        members, error, _ = kit.outcome(bytes(damaged))
        if error is None:
            assert members == whole
        assert {(name, content) for name, _, content in members} <= data


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_fields_behind_a_right_checksum_give_members_or_a_shard_error(kit, data):
    blocks = []
    for _ in range(data.draw(st.integers(1, 4))):
        size = data.draw(st.one_of(st.integers(0, 2000), st.binary(min_size=12, max_size=12)))
        type = data.draw(st.sampled_from([bytes([byte]) for byte in b"\0" + b"0123457xgLKSDMVXA"]))
        magic = data.draw(st.sampled_from([kit.POSIX, kit.GNU, kit.V7]))
        put = {data.draw(st.integers(0, 500)): data.draw(st.binary(max_size=12)) for _ in range(2)}
        blocks.append(kit.header(data.draw(st.binary(max_size=100)), size, type, magic=magic, put=put))
        content = data.draw(st.one_of(st.binary(max_size=600), st.just(kit.records((b"GNU.sparse.map", b"0,1")))))
        blocks.append(kit.padded(content))
    kit.outcome(b"".join(blocks) + kit.END)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=3000))
def test_any_bytes_give_a_shard_error_or_nothing(kit, data):
    members, _, _ = kit.outcome(data)
    assert members == []
