"""Streams read as their bytes arrive, instead of waiting until a large read is full."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from webdataset.base.reports import Report

WHOLE_ONLY = "give cache_dir=... so that a local copy is read"
"""The cure where parts cannot be read."""


class Arriving:
    """A stream whose `read(n)` gives what is there, at most n bytes; it waits only while nothing is."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.read = stream.read1  # the method itself: no cost per read
        self.close = stream.close
        if hasattr(stream, "peek"):
            self.peek = stream.peek


class QuietStream(io.BufferedIOBase):
    """A stream that is closed when nobody holds it any more, and then complains of nothing.

    Since Python 3.13 a finalizer prints what `close()` raises, if only that a failed constructor left something unset.
    """

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class PiecewiseStream(QuietStream):
    """A stream to read, all of it made from `read1`, which gives what is there and waits only while nothing is."""

    def readable(self) -> bool:
        return True

    def read1(self, size: int = -1, /) -> bytes:
        raise NotImplementedError

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        return read_whole(self.read1, -1 if size is None or size < 0 else size)

    def readinto(self, buffer: Any, /) -> int:
        return _put(buffer, self.read)

    def readinto1(self, buffer: Any, /) -> int:
        return _put(buffer, self.read1)


def arriving(stream: Any) -> Any:
    """The same stream, read as its bytes arrive where it can do that.

    A reader of large windows then gets the first samples of a slow source at once.

    >>> from .commands import CommandStream
    >>> with CommandStream("echo hello; sleep 1000") as stream:
    ...     arriving(stream).read(1 << 20)
    b'hello\\n'
    """
    return Arriving(stream) if hasattr(stream, "read1") else stream


def count_received(report: Report, received: int, retried: int = 0) -> None:
    """Count what a stream brought, and whether that took more than one try."""
    if received:
        report.count("bytes_read", received)
    if retried:
        report.count("shards_retried")


def read_whole(read1: Callable[[int], bytes], size: int) -> bytes:
    """`size` bytes from reads that may give less, fewer only at the end; all of them for -1."""
    data = read1(size)
    if not data or len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while size < 0 or missing > 0:
        data = read1(missing if size >= 0 else -1)
        if not data:
            break
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _put(buffer: Any, read: Callable[[int], bytes]) -> int:
    view = memoryview(buffer).cast("B")
    data = read(len(view))
    view[: len(data)] = data
    return len(data)
