"""Plain members, found by the one rule for their headers; where anything else begins, the full rules take over.

Plain is a regular file in the ustar or GNU format, perhaps behind one extended header that has its name or its times.
Every header's checksum is checked. (`vector` has the same rule for many headers at once, without extended names.)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import NamedTuple, TypeVar
from zlib import adler32

from .cursor import Cursor
from .header import BLOCK, decoded, number, octal, until_nul
from .limits import Limits
from .pax import changes_members, parse_records

MemberTuple = tuple[str, int, bytes]
"""A regular member: its name, the offset of its first header, its data."""

Row = tuple[bytes, int, int, int, int]
"""A member in a window: its name, where its first header and its data begin, its size, and where its padding ends."""

REGULAR, OLD_REGULAR, EXTENDED, LONG_NAME = ord("0"), 0, ord("x"), ord("L")
POSIX, GNU = b"ustar\0", b"ustar "
SLASH = ord("/")
CACHE = 10_000

T = TypeVar("T")

# Name, size, checksum, and all that follows, which is mostly the same in a whole archive.
_FIELDS = Struct("100s24x12s12x8s356s").unpack_from
_TAIL = 156
_MTIME = re.compile(rb"(?:[0-9][0-9] mtime=[0-9]+(?:\.[0-9]+)?\n)+")


class MemberPlace(NamedTuple):
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


_place = partial(tuple.__new__, MemberPlace)


class PlainMembers:
    """Finds plain members in windows; what headers have in common is remembered from one window to the next."""

    def __init__(self, limits: Limits) -> None:
        self._sums = _Cache(_expected_sum)
        self._sizes = _Cache(partial(_size, limits.max_member_bytes))
        self._tails = _Cache(_tail)
        self._last = _tail(bytes(BLOCK - _TAIL))
        self._max_name = limits.max_name_bytes

    def places(self, cursor: Cursor) -> list[tuple[str, int, MemberPlace]]:
        """The members whose headers are in the window, up to one that is not plain: name, offset, place.

        The cursor then stands at the end of the last one; if that lies beyond the window, at the window's end.
        """
        base = cursor.base
        return [
            (text := str(name, "utf-8", "surrogateescape"), offset := base + begin,
             _place((text, offset, base + data, size, base + end, True)))
            for name, begin, data, size, end in self.rows(cursor)
        ]  # fmt: skip

    def members(self, cursor: Cursor, out: list[MemberTuple]) -> tuple[str, int, int] | None:
        """Read members until the window ends or one is not plain.

        If the last one goes beyond the window, return its name, its offset and its size, with the cursor at its data.
        """
        buffer, base, cut = cursor.buffer, cursor.base, None
        found = self.rows(cursor)
        if found and found[-1][-1] > len(buffer):
            name, begin, cursor.place, size, _ = found.pop()
            cut = decoded(name), base + begin, size
        out += [
            (str(name, "utf-8", "surrogateescape"), base + begin, buffer[data : data + size])
            for name, begin, data, size, _ in found
        ]
        return cut

    def rows(self, cursor: Cursor) -> list[Row]:
        """As `places`, but cheaper: as rows, with offsets from the window's beginning."""
        buffer, place = cursor.buffer, cursor.place
        sums, sizes, tails, fields, checksum = self._sums, self._sizes, self._tails, _FIELDS, adler32
        found: list[Row] = []
        begin, last, path = place, len(buffer) - BLOCK, b""
        known, kind, begun, prefix = self._last
        while place <= last:
            name, size_field, sum_field, tail = fields(buffer, place)
            if tail != known:
                known, kind, begun, prefix = self._last = tails[tail]
            # adler32's low half is 1 + the sum of the bytes modulo 65521: the cheapest sum there is.
            if checksum(buffer[place : place + _TAIL], begun) & 0xFFFF != sums[sum_field]:
                break
            size = sizes[size_field]
            if size < 0:
                break
            data = place + BLOCK
            end = data + size + (-size & 511)
            if kind != REGULAR:
                extended = None
                if size and place == begin and end <= last:
                    extended = extended_name(kind, buffer[data:end], size)
                if extended is None or len(extended) > self._max_name:
                    break
                path, place = extended, end
                continue
            if path:
                name, path = path, b""
            else:
                name = prefix + name.partition(b"\0")[0]
            if not name or name[-1] == SLASH:
                break
            found.append((name, begin, data, size, end))
            begin = place = end
        cursor.place = min(begin, len(buffer))
        return found


class _Cache(dict[bytes, T]):
    """A function of the contents of a field, cached."""

    def __init__(self, function: Callable[[bytes], T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, field: bytes) -> T:
        if len(self) >= CACHE:
            self.clear()
        value = self[field] = self._function(field)
        return value


def _expected_sum(checksum: bytes) -> int:
    """What adler32's low half must be for a header with this checksum field, -1 if there is none."""
    try:
        low_half = octal(checksum) - 8 * 32 + sum(checksum) + 1
    except ValueError:
        return -1
    return low_half if 0 < low_half < 65521 else -1


def _size(limit: int, field: bytes) -> int:
    """The size in a size field, -1 if it is unusual."""
    digits = field[:11]
    try:
        size = int(digits, 8) if digits.isdigit() and field[11] in b"\0 " else number(field)
    except ValueError:
        return -1
    return size if 0 <= size <= limit else -1


def _tail(tail: bytes) -> tuple[bytes, int, int, bytes]:
    """The end of a header; its type, -1 if it is not plain; the sum of its bytes; what stands before the name."""
    kind, magic, prefix = tail[0] or REGULAR, tail[257 - _TAIL : 263 - _TAIL], tail[345 - _TAIL : 500 - _TAIL]
    named = magic == POSIX and prefix[0]
    known = kind if magic in (POSIX, GNU) else -1
    return tail, known, adler32(tail), until_nul(prefix) + b"/" if named else b""


def extended_name(kind: int, data: bytes, size: int) -> bytes | None:
    """The name in an extended header, empty if it has none; None if it changes anything else of its member."""
    if kind == LONG_NAME:
        return until_nul(data) or None
    if kind != EXTENDED:
        return None
    data = data[:size]
    if size < 100 and data[:2] == b"%d" % size and data.count(b"\n") == 1 and _MTIME.fullmatch(data):
        return b""
    try:
        records = parse_records(data)
    except ValueError:
        return None
    name = b""
    for keyword, value in records:
        if keyword == b"path":
            name = until_nul(value)
            if not name:
                return None
        elif changes_members([(keyword, value)]):
            return None
    return name
