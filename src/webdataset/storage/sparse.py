"""An object of which a few small parts are wanted, far from each other: read by ranges, as a stream that can seek."""

from __future__ import annotations

import os
from typing import Any

BLOCK_BYTES = 64 << 10
FAR_BYTES = 4 << 20
"""A jump must save this much, in the time of a request; otherwise it is better to read on."""
TRIALS = 8


class NotSparseError(Exception):
    """The jumps are too short to read by ranges."""


class SparseStream:
    """Reads through `read(start, stop)` of a range reader, a block at a time.

    It gives up with NotSparseError when the first requests show that the wanted parts are too near to each other.
    """

    def __init__(self, reader: Any, size: int) -> None:
        self._reader = reader
        self._size = size
        self._place = 0
        self._start = 0
        self._block = b""
        self._requests = 0

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to another place; nothing is read before `read`."""
        self._place = offset + (self._size if whence == os.SEEK_END else 0)
        return self._place

    def read(self, size: int) -> bytes:
        """Up to `size` bytes from here, what the block at hand has of them."""
        if not self._start <= self._place < self._start + len(self._block):
            self._fetch()
        start = self._place - self._start
        data = self._block[start : start + size]
        self._place += len(data)
        return data

    def _fetch(self) -> None:
        if self._requests >= TRIALS and self._place < self._requests * FAR_BYTES:
            raise NotSparseError
        self._requests += 1
        self._start = self._place
        stop = min(self._place + BLOCK_BYTES, self._size)
        self._block = self._reader.read(self._start, stop) if stop > self._start else b""
