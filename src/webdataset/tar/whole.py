"""Archives that are nothing but plain members, found out by their headers alone.

Such an archive can be copied as it lies, up to `end`. Every header's checksum is checked, and that the members fill the
archive without a gap up to its end marker. Of anything else, damage too, `NotPlain` says no more than that.

>>> import io, tarfile
>>> file = io.BytesIO()
>>> with tarfile.open(fileobj=file, mode="w") as tar:
...     tar.addfile(tarfile.TarInfo("a.txt"))
>>> archive = PlainArchive(file, len(file.getvalue()))
>>> list(archive.names()), archive.end
([['a.txt']], 512)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from .cursor import Cursor
from .header import BLOCK, padding
from .limits import Limits
from .plain import MemberTuple, PlainMembers
from .vector import ENOUGH, names_at_once, numpy_or_none

SMALL = 64 << 10
LARGE = 2 << 20
"""How much to read at once where members are large, and where they are small."""
MANY = 32
"""So many members in a small window make the next one large."""
MAX_END = 1 << 20


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
        self._limit = limits.max_member_bytes
        self._plain = PlainMembers(limits)

    def names(self) -> Iterator[list[str]]:
        """The names of all members, in order."""
        many = False
        while self.end < self.size:
            self._stream.seek(self.end)
            cursor = Cursor(self._stream)
            cursor.moved(self.end)
            cursor.fill(LARGE if many else SMALL)
            begin, read = self.end, cursor.left
            names = self._at_once(cursor) if many else []
            names += self._one_by_one(cursor)
            if self.end == begin:
                break
            yield names
            many = len(names) * (SMALL // MANY) > read
        self._check_end()

    def _at_once(self, cursor: Cursor) -> list[str]:
        numpy = numpy_or_none()
        if numpy is None or cursor.left < ENOUGH:
            return []
        names = names_at_once(numpy, cursor, self._limit)
        self.end = cursor.offset
        return names

    def _one_by_one(self, cursor: Cursor) -> list[str]:
        members: list[MemberTuple] = []
        cut = self._plain.one_by_one(cursor, members)
        names = [name for name, _, _ in members]
        if cut is None:
            self.end = cursor.offset
            return names
        name, _, size = cut
        self.end = cursor.offset + size + padding(size)
        return [*names, name]

    def _check_end(self) -> None:
        """An end marker, and zeros after it."""
        if not self.end or not 2 * BLOCK <= self.size - self.end <= MAX_END:
            raise NotPlain
        self._stream.seek(self.end)
        rest = self._stream.read(MAX_END)
        if len(rest) != self.size - self.end or rest.strip(b"\0"):
            raise NotPlain
