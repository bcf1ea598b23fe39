"""A cursor over a stream that is read in windows."""

from __future__ import annotations

from io import BytesIO
from typing import Protocol

from webdataset.errors import ShardError

DIRECT = 16 << 20
"""The most that is asked for in one read; only what has arrived makes a later allocation larger."""
PIECE = 1 << 20


class Readable(Protocol):
    """What can be read: `read` may return less than asked for, and returns nothing at the end."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes."""


class Cursor:
    """The current window of a stream, and the place in it.

    >>> cursor = Cursor(BytesIO(b"abcdefgh"))
    >>> cursor.fill(4), cursor.take(6), cursor.offset
    (True, b'abcdef', 6)
    """

    __slots__ = ("_read", "base", "buffer", "pad", "place")

    def __init__(self, stream: Readable) -> None:
        self._read = stream.read
        self.buffer = b""
        self.place = 0
        self.base = 0
        """The offset of the buffer's first byte in the stream."""
        self.pad = 0
        """How many bytes to pass over before the next window."""

    @property
    def offset(self) -> int:
        """The place, counted from the stream's beginning."""
        return self.base + self.place

    @property
    def left(self) -> int:
        """How many bytes of the window are still ahead."""
        return len(self.buffer) - self.place

    def fill(self, size: int) -> bool:
        """Make the next bytes of the stream the window, padding passed over; False at the end."""
        pad = self.pad
        data = self.read(size + pad)
        self.base += len(self.buffer)
        self.buffer = data
        if len(data) > pad:
            self.place = pad
            self.pad = 0
            return True
        self.place = len(data)
        return self._pass_padding(len(data)) and self.fill(size)

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer only where the stream ends."""
        start = self.place
        stop = start + size
        if stop <= len(self.buffer):
            self.place = stop
            return self.buffer[start:stop]
        rest = self.buffer[start:]
        data = self._from_stream(rest, size)
        self.base += start + len(data)
        self.buffer = b""
        self.place = 0
        return data

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, which stay ahead; fewer only where the stream ends.

        >>> cursor = Cursor(BytesIO(b"abcdefgh"))
        >>> cursor.peek(3), cursor.take(2), cursor.peek(9), cursor.offset
        (b'abc', b'ab', b'cdefgh', 2)
        """
        offset, data = self.offset, self.take(size)
        self.buffer = data + self.buffer[self.place :]
        self.base, self.place = offset, 0
        return data

    def skip(self, size: int) -> int:
        """Pass over `size` bytes and return how many there were."""
        passed = min(size, self.left)
        self.place += passed
        while passed < size and (data := self.read(min(size - passed, PIECE))):
            self.base += len(self.buffer) + len(data)
            self.buffer = b""
            self.place = 0
            passed += len(data)
        return passed

    def moved(self, offset: int) -> None:
        """Note that the stream itself was moved to this offset."""
        self.base, self.buffer, self.place = offset, b"", 0

    def read(self, size: int) -> bytes:
        """One read of the stream."""
        data: bytes = self._read(size)
        if type(data) is bytes:
            return data
        if data is None:
            raise ShardError("the stream returned no data: it must be a blocking one")
        return bytes(data)

    def _pass_padding(self, got: int) -> bool:
        """Read the rest of the padding, of which some bytes were got; False if there was none to read."""
        pad, self.pad = self.pad, 0
        got += len(self.take(pad - got))
        if got < pad:
            raise ShardError(
                f"the archive ends early: {pad - got} bytes of padding after a member are missing", offset=self.offset
            )
        return pad > 0

    def _from_stream(self, rest: bytes, size: int) -> bytes:
        """`rest` and what follows it in the stream, `size` bytes in all if there are that many."""
        if size - len(rest) <= DIRECT:
            data = self.read(size - len(rest))
            if len(data) == size - len(rest):
                return rest + data if rest else data
            rest = rest + data if rest else data
            if not data:
                return rest
        collected = BytesIO()
        collected.write(rest)
        missing = size - len(rest)
        while missing and (data := self.read(min(missing, PIECE))):
            collected.write(data)
            missing -= len(data)
        return collected.getvalue()
