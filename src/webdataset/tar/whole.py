"""Archives that are nothing but plain members, found out by their headers alone.

Such an archive can be copied as it lies, up to `end`. Every header's checksum is checked, and that the members fill the
archive without a gap up to its end marker. Of anything else, damage too, `NotPlain` says no more than that.

>>> import io, tarfile
>>> file = io.BytesIO()
>>> with tarfile.open(fileobj=file, mode="w") as tar:
...     tar.addfile(tarfile.TarInfo("a.txt"))
>>> archive = PlainArchive(file, len(file.getvalue()))
>>> list(archive.names()), archive.end
([[b'a.txt']], 512)
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import BinaryIO
from zlib import adler32

from .cursor import Cursor
from .header import BLOCK, padding
from .limits import Limits
from .plain import MAGICS, OLD_REGULAR, POSIX, REGULAR, MemberTuple, PlainMembers, Sizes, Sums

SMALL = 4 << 10
LARGE = 1 << 20
"""How much to read at once where members are large, and where they are small."""
WORTH_READING = 32 << 10
"""Members that are smaller on average are passed over more cheaply by reading them than by seeking."""
MAX_END = 1 << 20

# Name, size, checksum, and all that follows, which is mostly the same in a whole archive.
_FIELDS = Struct("100s24x12s12x8s356s").unpack_from
_TAIL = 156


class NotPlain(Exception):  # noqa: N818 - an answer, not an error
    """There is something else than plain members."""


class PlainArchive:
    """An archive of `size` bytes in a stream that can seek."""

    def __init__(self, stream: BinaryIO, size: int, limits: Limits | None = None) -> None:
        limits = Limits.default() if limits is None else limits
        self.size = size
        self.end = 0
        """Up to where all is well: the members' end, after all names were given."""
        self._stream = stream
        self._plain = PlainMembers(limits)
        self._sums = Sums()
        self._sizes = Sizes(limits.max_member_bytes)
        self._tail = (b"", 0)

    def names(self) -> Iterator[list[bytes]]:
        """The names of all members, in order."""
        many = False
        while self.end < self.size:
            self._stream.seek(self.end)
            cursor = Cursor(self._stream)
            cursor.moved(self.end)
            cursor.fill(LARGE if many else SMALL)
            begin = self.end
            names = self._plainest(cursor)
            if cursor.left >= BLOCK:
                names += self._one_by_one(cursor)
            if self.end == begin:
                break
            yield names
            many = self.end - begin < len(names) * WORTH_READING
        self._check_end()

    def _plainest(self, cursor: Cursor) -> list[bytes]:
        """The names of members with one plain header each; the last one may go beyond the window."""
        buffer, place = cursor.buffer, cursor.place
        sums, sizes, fields, checksum = self._sums, self._sizes, _FIELDS, adler32
        known, begun = self._tail
        names = []
        last = len(buffer) - BLOCK
        while place <= last:
            name, size_field, sum_field, tail = fields(buffer, place)
            if tail != known:
                if not _is_plain(tail):
                    break
                known, begun = self._tail = tail, checksum(tail)
            # adler32's low half is 1 + the sum of the bytes modulo 65521
            if checksum(buffer[place : place + _TAIL], begun) & 0xFFFF != sums[sum_field]:
                break
            size = sizes[size_field]
            if size < 0:
                break
            names.append(name.partition(b"\0")[0])
            place += BLOCK + size + (-size & 511)
        cursor.place = place
        self.end = cursor.offset
        return names

    def _one_by_one(self, cursor: Cursor) -> list[bytes]:
        members: list[MemberTuple] = []
        cut = self._plain.one_by_one(cursor, members)
        names = [name.encode("utf-8", "surrogateescape") for name, _, _ in members]
        if cut is None:
            self.end = cursor.offset
            return names
        name, _, size = cut
        self.end = cursor.offset + size + padding(size)
        return [*names, name.encode("utf-8", "surrogateescape")]

    def _check_end(self) -> None:
        """An end marker, and zeros after it."""
        if not self.end or not 2 * BLOCK <= self.size - self.end <= MAX_END:
            raise NotPlain
        self._stream.seek(self.end)
        rest = self._stream.read(MAX_END)
        if len(rest) != self.size - self.end or rest.strip(b"\0"):
            raise NotPlain


def _is_plain(tail: bytes) -> bool:
    """Whether a header that ends so is a regular file's, in the ustar or GNU format, its name in the header's name."""
    kind, magic, prefix = tail[0], tail[257 - _TAIL : 263 - _TAIL], tail[345 - _TAIL]
    return kind in (REGULAR, OLD_REGULAR) and magic in MAGICS and not (prefix and magic == POSIX)
