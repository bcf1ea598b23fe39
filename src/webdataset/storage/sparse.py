"""A stream that can seek, over ranges of a remote object: for a few small parts that are far apart."""

from __future__ import annotations

import os
from typing import Any

BLOCK_BYTES = 64 << 10
FAR_BYTES = 4 << 20
"""A seek must skip this much to be worth a request; otherwise it is faster to read on."""
TRIALS = 8


class NotSparseError(Exception):
    """The parts are too close to each other to be read by ranges."""


class SparseStream:
    """Reads through `read(start, stop)` of a range reader, a block at a time.

    It raises NotSparseError when the first requests show that the parts are too close to each other.
    """

    def __init__(self, reader: Any, size: int) -> None:
        self._reader = reader
        self._size = size
        self._position = 0
        self._start = 0
        self._block = b""
        self._requests = 0

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to another position; nothing is requested before `read`."""
        self._position = offset + (self._size if whence == os.SEEK_END else 0)
        return self._position

    def read(self, size: int) -> bytes:
        """Up to `size` bytes from here, as many as the current block has."""
        if not self._start <= self._position < self._start + len(self._block):
            self._fetch()
        start = self._position - self._start
        data = self._block[start : start + size]
        self._position += len(data)
        return data

    def _fetch(self) -> None:
        if self._requests >= TRIALS and self._position < self._requests * FAR_BYTES:
            raise NotSparseError
        self._requests += 1
        self._start = self._position
        stop = min(self._position + BLOCK_BYTES, self._size)
        self._block = self._reader.read(self._start, stop) if stop > self._start else b""
