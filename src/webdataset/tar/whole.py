"""Archives that are nothing but plain members, found out by their headers alone.

Such an archive can be copied as it is, up to `end`. Every header's checksum is checked, and that the members fill the
archive without a gap up to its end marker. Anything else, damage included, raises `NotPlain`.

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
from typing import BinaryIO

from .cursor import Cursor
from .header import BLOCK
from .limits import Limits
from .plain import PlainMembers

SMALL = 4 << 10
LARGE = 1 << 20
"""How much to read at once where members are large, and where they are small."""
WORTH_READING = 32 << 10
"""Members that are smaller on average are passed over more cheaply by reading them than by seeking."""
MAX_END = 1 << 20


class NotPlain(Exception):  # noqa: N818 - an answer, not an error
    """There is something else than plain members."""


class PlainArchive:
    """An archive of `size` bytes in a stream that can seek."""

    def __init__(self, stream: BinaryIO, size: int, limits: Limits | None = None) -> None:
        limits = Limits.default() if limits is None else limits
        self.size = size
        self.end = 0
        """Where the members end that were found so far."""
        self._stream = stream
        self._plain = PlainMembers(limits)

    def names(self) -> Iterator[list[bytes]]:
        """The names of all members, in order."""
        many = False
        while self.end < self.size:
            self._stream.seek(self.end)
            cursor = Cursor(self._stream)
            cursor.moved(self.end)
            cursor.fill(LARGE if many else SMALL)
            found = self._plain.rows(cursor)
            if not found:
                break
            begin, self.end = self.end, self.end + found[-1][-1]
            yield [row[0] for row in found]
            many = self.end - begin < len(found) * WORTH_READING
        self._check_end()

    def _check_end(self) -> None:
        """An end marker, and zeros after it."""
        if not self.end or not 2 * BLOCK <= self.size - self.end <= MAX_END:
            raise NotPlain
        self._stream.seek(self.end)
        rest = self._stream.read(MAX_END)
        if len(rest) != self.size - self.end or rest.strip(b"\0"):
            raise NotPlain
