"""The fast way through a window of plain members; it stops where anything else begins."""

from __future__ import annotations

import re
from struct import Struct
from zlib import adler32

from .cursor import Cursor
from .header import BLOCK, number, octal, until_nul
from .limits import Limits
from .pax import is_telling, parse_records

MemberTuple = tuple[str, int, bytes]
"""A regular member: its name, the offset of its first header, its data."""

REGULAR, OLD_REGULAR, EXTENDED, LONG_NAME = ord("0"), 0, ord("x"), ord("L")
POSIX = b"ustar\0"
MAGICS = frozenset({POSIX, b"ustar "})
SLASH = ord("/")
CACHE = 10_000

# Name, size, checksum, type, magic, and the first byte of the prefix.
FIELDS = Struct("100s24x12s12x8sB100x6s82xB166x").unpack_from
_MTIME = re.compile(rb"(?:[0-9][0-9] mtime=[0-9]+(?:\.[0-9]+)?\n)+")


class PlainMembers:
    """Reads plain members out of windows.

    Plain is a regular file in the ustar or GNU format, perhaps behind one extended header that tells its name
    or its times. Every header's checksum is checked.
    """

    def __init__(self, limits: Limits) -> None:
        self._sums = Sums()
        self._sizes = Sizes(limits.max_member_bytes)
        self._max_name = limits.max_name_bytes

    def one_by_one(self, cursor: Cursor, out: list[MemberTuple]) -> tuple[str, int, int] | None:
        """Read members until the window ends or one is not plain.

        If the reason to stop is a plain member that goes beyond the window, return its name, its offset and
        its size, with the cursor at its data.
        """
        buffer, base, place = cursor.buffer, cursor.base, cursor.place
        sums, sizes, fields, checksum = self._sums, self._sizes, FIELDS, adler32
        begin, last, path = place, len(buffer) - BLOCK, b""
        while place <= last:
            name, size_field, sum_field, kind, magic, prefix = fields(buffer, place)
            # adler32's low half is 1 + the sum of the bytes modulo 65521: the cheapest sum there is.
            if checksum(buffer[place : place + BLOCK]) & 0xFFFF != sums[sum_field]:
                break
            if magic not in MAGICS:
                break
            size = sizes[size_field]
            stop = place + BLOCK + size
            following = stop + (-size & 511)
            if kind and kind != REGULAR:
                if place != begin or following > last or size <= 0:
                    break
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
            text = name.decode("utf-8", "surrogateescape")
            if following > len(buffer):
                cursor.place = place + BLOCK
                return text, base + begin, size
            out.append((text, base + begin, buffer[place + BLOCK : stop]))
            begin = place = following
        cursor.place = begin
        return None


class Sums(dict[bytes, int]):
    """Checksum field -> what adler32's low half must be for the whole header, -1 if that cannot tell."""

    def __missing__(self, field: bytes) -> int:
        try:
            low_half = octal(field) - 8 * 32 + sum(field) + 1
        except ValueError:
            low_half = -1
        return _remember(self, field, low_half if 0 < low_half < 65521 else -1)


class Sizes(dict[bytes, int]):
    """Size field -> size, -1 if it is unusual."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __missing__(self, field: bytes) -> int:
        digits = field[:11]
        try:
            size = int(digits, 8) if digits.isdigit() and field[11] in b"\0 " else number(field)
        except ValueError:
            size = -1
        return _remember(self, field, size if 0 <= size <= self._limit else -1)


def _remember(cache: dict[bytes, int], field: bytes, value: int) -> int:
    if len(cache) >= CACHE:
        cache.clear()
    cache[field] = value
    return value


def told_name(kind: int, data: bytes, size: int) -> bytes | None:
    """The name that an extended header tells, empty if it tells none; None if it tells something else."""
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
    told = b""
    for keyword, value in records:
        if keyword == b"path":
            told = until_nul(value)
            if not told:
                return None
        elif is_telling([(keyword, value)]):
            return None
    return told
