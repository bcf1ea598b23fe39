"""Archives that are nothing but plain members, found out by their headers alone."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset.tar import read_members
from webdataset.tar.whole import LARGE, NotPlain, PlainArchive

Members = list[tuple[str, int]]


def archive(members: Members, *, form: int = tarfile.USTAR_FORMAT, **fields: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name, size in members:
            member = tarfile.TarInfo(name)
            member.size = size
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(bytes(range(256)) * (size // 256 + 1)))
    return file.getvalue()


def names_in(data: bytes) -> tuple[list[str], int]:
    found = PlainArchive(io.BytesIO(data), len(data))
    return [name.decode() for names in found.names() for name in names], found.end


def test_the_names_and_the_end() -> None:
    data = archive([("a.txt", 1), ("b.bin", 512)])
    assert names_in(data) == (["a.txt", "b.bin"], 4 * 512)


def test_members_of_all_sizes() -> None:
    members = [(f"{n}.bin", size) for n, size in enumerate([3 * LARGE, *[10] * 5000, LARGE, 100_000, 0, *[5000] * 300])]
    data = archive(members)
    assert names_in(data)[0] == [name for name, _ in members]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, b"V"])
def test_other_kinds_of_members_are_not_plain(kind: bytes) -> None:
    with pytest.raises(NotPlain):
        names_in(archive([("a.txt", 1)])[:1024] + archive([("b.txt", 0)], type=kind))


@pytest.mark.parametrize(
    "data", [b"", bytes(1024), b"x" * 2048, archive([("a", 9)])[:1024], archive([("a", 9)])[:1536]]
)
def test_what_is_no_whole_archive_is_not_plain(data: bytes) -> None:
    with pytest.raises(NotPlain):
        names_in(data)


NAMES = st.sampled_from(["a.txt", "b/c.txt", "d-é.txt", "e" * 99, "f" * 100, "g" * 90 + "/" + "h" * 90 + ".txt", "."])
SIZES = st.sampled_from([0, 1, 511, 512, 513, 5000, 100_000])
FORMS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
MEMBERS = st.lists(st.tuples(NAMES, SIZES), min_size=1, max_size=12)


@settings(deadline=None)
@given(members=MEMBERS, form=FORMS, mtime=st.sampled_from([0, 1234567890, 1234567890.5]))
def test_the_names_are_those_that_the_reader_gives(members: Members, form: int, mtime: float) -> None:
    data = archive(members, form=form, mtime=mtime if form == tarfile.PAX_FORMAT else int(mtime))
    read = [member[0] for window in read_members(io.BytesIO(data)) for member in window]
    assert names_in(data)[0] == read == [name for name, _ in members]


@settings(deadline=None, max_examples=300)
@given(members=MEMBERS, form=FORMS, place=st.integers(0, 10**9), bit=st.integers(0, 7), header=st.integers(0, 100))
def test_a_changed_bit_in_a_header_is_noticed(members: Members, form: int, place: int, bit: int, header: int) -> None:
    whole = archive(members, form=form)
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        offsets = [member.offset_data - 512 for member in tar]
    data = bytearray(whole)
    data[offsets[header % len(offsets)] + place % 512] ^= 1 << bit
    try:
        names, _ = names_in(bytes(data))
    except NotPlain:
        return
    # only where the bit makes no difference: in what is left of the checksum's own field
    assert names == [name for name, _ in members]
    assert 148 <= place % 512 < 156
