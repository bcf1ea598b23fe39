"""The fast way through a window of plain members; it stops where anything else begins."""

from __future__ import annotations

import re
from zlib import adler32

from .cursor import Cursor
from .header import BLOCK, number
from .pax import is_telling, parse_records

MemberTuple = tuple[str, int, bytes]
"""A regular member: its name, the offset of its first header, its data."""

REGULAR, OLD_REGULAR, EXTENDED = ord("0"), 0, ord("x")
SLASH = ord("/")
CACHE = 10_000

_MTIME = re.compile(rb"(?:[0-9][0-9] mtime=[0-9]+(?:\.[0-9]+)?\n)+")


class PlainMembers:
    """Reads plain members out of windows.

    Plain is a regular file in the ustar or GNU format with a name of up to 100 bytes, perhaps behind an
    extended header that only tells times. Each header's checksum is checked.
    """

    def __init__(self, max_member_bytes: int) -> None:
        self._limit = max_member_bytes
        self._sums = _Sums()
        self._sizes = _Sizes(max_member_bytes)

    def one_by_one(self, cursor: Cursor, out: list[MemberTuple]) -> tuple[str, int, int] | None:
        """Read members until the window ends or one is not plain.

        If the reason to stop is a plain member that goes beyond the window, return its name, its offset and
        its size, with the cursor at its data.
        """
        buffer, base, place = cursor.buffer, cursor.base, cursor.place
        sums, sizes = self._sums, self._sizes
        begin = place
        last = len(buffer) - BLOCK
        while place <= last:
            header = buffer[place : place + BLOCK]
            # adler32's low half is 1 + the sum of the bytes modulo 65521: the cheapest sum there is.
            if adler32(header) & 0xFFFF != sums[header[148:156]]:
                break
            magic = header[257:263]
            if magic == b"ustar\0":
                if header[345]:
                    break
            elif magic != b"ustar ":
                break
            size = sizes[header[124:136]]
            stop = place + BLOCK + size
            following = stop + (-size & 511)
            kind = header[156]
            if kind == EXTENDED and begin == place and following <= last:
                if size <= 0 or not _only_tells_times(buffer[place + BLOCK : stop]):
                    break
                place = following
                continue
            end = header.find(b"\0", 0, 100)
            name = header[:end] if end >= 0 else header[:100]
            if (kind not in (REGULAR, OLD_REGULAR)) or size < 0 or not name or name[-1] == SLASH:
                break
            text = name.decode("utf-8", "surrogateescape")
            if following > len(buffer):
                cursor.place = place + BLOCK
                return text, base + begin, size
            out.append((text, base + begin, buffer[place + BLOCK : stop]))
            begin = place = following
        cursor.place = begin
        return None


class _Sums(dict[bytes, int]):
    """Checksum field -> what adler32's low half must be for the whole header, -1 if that cannot tell."""

    def __missing__(self, field: bytes) -> int:
        try:
            low_half = number(field) - 8 * 32 + sum(field) + 1
        except ValueError:
            low_half = -1
        return _remember(self, field, low_half if 0 < low_half < 65521 else -1)


class _Sizes(dict[bytes, int]):
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


def _only_tells_times(data: bytes) -> bool:
    if len(data) < 100 and data[:2] == b"%d" % len(data) and _MTIME.fullmatch(data) and data.count(b"\n") == 1:
        return True
    try:
        return not is_telling(parse_records(data))
    except ValueError:
        return False
