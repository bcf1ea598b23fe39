"""Where plain members are: the fast way from header to header, over data that are not looked at."""

from __future__ import annotations

from typing import NamedTuple
from zlib import adler32

from .cursor import Cursor
from .header import BLOCK, until_nul
from .limits import Limits
from .plain import FIELDS, MAGICS, POSIX, REGULAR, SLASH, Sizes, Sums, told_name


class Place(NamedTuple):
    """Where a regular member is in its archive."""

    name: str
    offset: int
    """Where its first header begins."""
    data_offset: int
    size: int
    """How many bytes its content has."""
    end: int
    """Where its padding ends."""
    whole: bool = True
    """Whether its content stands in the archive as it is; a sparse file's does not."""


class PlainHeaders:
    """Follows plain headers, as `PlainMembers` does, without taking the data.

    The rules are the same, and so are some lines: a call for each member would cost more than they do.
    """

    def __init__(self, limits: Limits) -> None:
        self._sums = Sums()
        self._sizes = Sizes(limits.max_member_bytes)
        self._max_name = limits.max_name_bytes

    def one_by_one(self, cursor: Cursor, found: list[tuple[str, int, Place]]) -> int | None:
        """Note the members whose headers are in the window, and return where the last of them ends.

        The cursor then stands in the last one's data, or at the window's end. None means that there was no plain
        header here.
        """
        buffer, base, place = cursor.buffer, cursor.base, cursor.place
        sums, sizes, fields, checksum, new = self._sums, self._sizes, FIELDS, adler32, tuple.__new__
        begin, last, path = place, len(buffer) - BLOCK, b""
        before = len(found)
        while place <= last:
            name, size_field, sum_field, kind, magic, prefix = fields(buffer, place)
            if checksum(buffer[place : place + BLOCK]) & 0xFFFF != sums[sum_field] or magic not in MAGICS:
                break
            size = sizes[size_field]
            following = place + BLOCK + size + (-size & 511)
            if kind and kind != REGULAR:
                told = None
                if place == begin and following <= last and size > 0:
                    told = told_name(kind, buffer[place + BLOCK : following], size)
                if told is None or len(told) > self._max_name:
                    break
                path, place = told, following
                continue
            if path:
                name, path = path, b""
            else:
                end = name.find(b"\0")
                if end >= 0:
                    name = name[:end]
                if prefix and magic == POSIX:
                    name = until_nul(buffer[place + 345 : place + 500]) + b"/" + name
            if size < 0 or not name or name[-1] == SLASH:
                break
            text, offset = name.decode("utf-8", "surrogateescape"), base + begin
            found.append((text, offset, new(Place, (text, offset, base + place + BLOCK, size, base + following, True))))
            begin = place = following
        cursor.place = min(begin, len(buffer))
        return base + begin if len(found) > before else None
