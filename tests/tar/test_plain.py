"""The rule for plain headers: where it holds, members are those that tarfile sees; elsewhere it stops."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest

from webdataset.tar.cursor import Cursor
from webdataset.tar.limits import Limits
from webdataset.tar.plain import PlainMembers


def archive(*names: str, form: int = tarfile.USTAR_FORMAT, size: int = 5, **fields: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = size
            for field, value in fields.items():
                setattr(member, field, value)
            tar.addfile(member, io.BytesIO(b"x" * size))
    return file.getvalue()


def cursor_over(data: bytes) -> Cursor:
    cursor = Cursor(io.BytesIO(data))
    cursor.fill(len(data))
    return cursor


def plain(**limits: int) -> PlainMembers:
    return PlainMembers(Limits(**{"max_member_bytes": 1000, **limits}))


LONG = "d" * 60 + "/" + "e" * 60


@pytest.mark.parametrize(
    "data",
    [
        archive("a.txt", LONG),
        archive("a.txt", LONG, form=tarfile.GNU_FORMAT),
        archive("a.txt", "é.txt", form=tarfile.PAX_FORMAT, mtime=1.5),
        archive("a.txt", "b" * 120, form=tarfile.GNU_FORMAT),
        archive("a.txt", type=tarfile.AREGTYPE),
    ],
)
def test_places_and_members_are_those_that_tarfile_sees(data: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        expected = [(member.name, member.offset_data, member.size) for member in tar]
    places = plain().places(cursor_over(data))
    assert [(name, place.data_offset, place.size) for name, _, place in places] == expected
    members: list[tuple[str, int, bytes]] = []
    assert plain().members(cursor_over(data), members) is None
    assert members == [(name, offset, b"xxxxx") for name, offset, _ in places]


@pytest.mark.parametrize(
    "data",
    [
        bytes(1024),
        archive("a/", size=0),
        archive("a", size=0, type=tarfile.SYMTYPE, linkname="b"),
        archive("a", size=1001),
        archive("a", form=tarfile.PAX_FORMAT, pax_headers={"size": "5"}),
        archive("n" * 200, form=tarfile.GNU_FORMAT),
        archive("a")[:100] + b"1" + archive("a")[101:],
        archive("a")[:511],
    ],
)
def test_anything_else_is_left_at_the_cursor(data: bytes) -> None:
    cursor = cursor_over(data)
    assert plain(max_name_bytes=150).places(cursor) == []
    assert cursor.place == 0


def test_a_member_beyond_the_window_is_told_with_the_cursor_at_its_data() -> None:
    cursor = Cursor(io.BytesIO(archive("a.txt", "b.txt", size=600)))
    cursor.fill(3 * 512 + 700)
    members: list[tuple[str, int, bytes]] = []
    assert plain().members(cursor, members) == ("b.txt", 3 * 512, 600)
    assert (members, cursor.place) == ([("a.txt", 0, b"x" * 600)], 4 * 512)


def test_an_extended_header_without_its_member_is_left_at_the_cursor() -> None:
    data = archive("a.txt", form=tarfile.PAX_FORMAT, mtime=1.5)
    cursor = cursor_over(data[:1024])
    assert (plain().places(cursor), cursor.place) == ([], 0)
