"""For any archive: what tarfile sees, whatever the reads, whichever way through the window."""

from __future__ import annotations

import io
import random
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from by_tarfile import build, by_tarfile

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
TYPES = [tarfile.REGTYPE] * 6 + [tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]

names = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=20),
    st.text("ab.", min_size=90, max_size=300),
    st.builds("/".join, st.lists(st.text("xy", min_size=1, max_size=60), min_size=2, max_size=6)),
    st.sampled_from(["__key__", "a.txt", "ustar", "a.b.c.txt"]),
)
sizes = st.one_of(st.sampled_from([0, 1, 511, 512, 513, 1024]), st.integers(0, 3000), st.integers(30_000, 70_000))
members = st.lists(st.tuples(names, sizes, st.sampled_from(TYPES), st.floats(0, 2e9)), max_size=12)


@settings(max_examples=150, deadline=None)
@given(specs=members, format=st.sampled_from(FORMATS))
def test_members_are_those_that_tarfile_sees(kit, specs, format):
    archive = build(specs, format)
    assert kit.outcome(archive) == (by_tarfile(archive), None, 0)


@settings(max_examples=60, deadline=None)
@given(specs=members, format=st.sampled_from(FORMATS), chunks=st.lists(st.integers(1, 5000), min_size=1, max_size=5))
def test_the_reads_do_not_matter(kit, specs, format, chunks):
    archive = build(specs, format)
    assert kit.outcome(kit.stream(archive, chunks)) == kit.outcome(archive)


@settings(max_examples=60, deadline=None)
@given(specs=members, cut=st.floats(0, 1), chunks=st.lists(st.integers(1, 5000), min_size=1, max_size=5))
def test_the_reads_do_not_matter_for_a_cut_archive(kit, specs, cut, chunks):
    archive = build(specs, tarfile.PAX_FORMAT)
    archive = archive[: int(cut * len(archive))]
    assert kit.outcome(kit.stream(archive, chunks)) == kit.outcome(archive)


@settings(max_examples=40, deadline=None)
@given(specs=members, format=st.sampled_from(FORMATS))
def test_two_archives_in_a_row_give_the_members_of_both_if_wanted(kit, specs, format):
    archive = build(specs, format)
    alone = kit.read(archive)
    assert kit.read(archive + archive, concatenated=True) == alone + alone


@settings(max_examples=60, deadline=None)
@given(specs=members, format=st.sampled_from(FORMATS), chunks=st.lists(st.integers(1, 70_000), max_size=5))
def test_of_two_archives_in_a_row_the_first_is_read_and_the_second_warned_of(kit, specs, format, chunks):
    archive = build(specs, format)
    alone = kit.outcome(archive)[0]
    assert kit.outcome(kit.stream(archive + archive, chunks)) == (alone, None, 1 if archive.strip(b"\0") else 0)


@settings(max_examples=60, deadline=None)
@given(specs=members, format=st.sampled_from(FORMATS))
def test_scanning_finds_what_reading_finds(kit, specs, format):
    archive = build(specs, format)
    found = [
        (entry.name, entry.offset, archive[entry.data_offset : entry.data_offset + entry.size])
        for entry in kit.scan(archive)
        if entry.is_regular
    ]
    assert found == kit.outcome(archive)[0]


def test_every_size_of_reads_gives_the_same(kit):
    archive = build([("a", 3, b"0", 0.5), ("n" * 150, 700, b"0", 0), ("c", 0, b"0", 0)], tarfile.PAX_FORMAT)
    whole = kit.outcome(archive)
    for size in range(1, 1100):
        assert kit.outcome(kit.stream(archive, [size])) == whole


# -- the ways through a window -------------------------------------------------------------------


@pytest.mark.parametrize(
    "sizes", [[88_000, 200, 1], [1_000_000], [40_000, 40_000, 3], [20 << 20, 5], [33_000, 0, 0, 0]]
)
def test_big_members_arrive_whole(kit, sizes):
    files = [(f"{i}", random.Random(i).randbytes(size)) for i, size in enumerate(sizes * 3)]
    archive = b"".join(kit.member(name.encode(), data) for name, data in files) + kit.END
    assert kit.read(archive) == files
    assert kit.read(kit.stream(archive, [65536, 1, 4000])) == files


def test_big_members_are_read_with_one_read_each(kit):
    asked: list[int] = []

    class Watched(io.BytesIO):
        def read(self, size: int = -1) -> bytes:
            asked.append(size)
            return super().read(size)

    archive = b"".join(kit.member(b"%d" % i, bytes(1_000_000)) for i in range(6)) + kit.END
    kit.read(Watched(archive))
    assert asked.count(1_000_000) >= 4
    assert max(asked[4:10]) == 1_000_000


def test_giga_zeros_at_the_end_are_passed_over_quickly(kit):
    assert kit.read(kit.member(b"a", b"1") + bytes(64 << 20)) == [("a", b"1")]
