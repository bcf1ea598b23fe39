"""Base classes of streams; reads that return what has arrived instead of waiting until they are full."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO

from webdataset.base.reports import Report
from webdataset.errors import LimitError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_INDEX_BYTES = 1 << 30
"""Of an index, or a list of lengths, of one shard."""
MOST_LIST_BYTES = 256 << 20
"""Of a list of shards: a million of them have about 100 MB."""
MOST_TEXT_BYTES = 4 << 20
"""Of a file that people write: a list of classes or of datasets, credentials."""
_PIECE = 1 << 20


def read_up_to(most_bytes: int, stream: BinaryIO, url: str, hint: str = "") -> bytes:
    """The whole contents of a stream; an error if it goes on beyond that many bytes.

    >>> read_up_to(10, io.BytesIO(b"hello"), "a.txt")
    b'hello'
    """
    whole, left = io.BytesIO(), most_bytes  # which gives its contents without a copy
    while piece := stream.read(min(_PIECE, left + 1)):
        whole.write(piece)
        left -= len(piece)
        if left < 0:
            what = f"it has more than {most_bytes} bytes, the most that is read of such a file"
            raise LimitError(what, url=url, hint=hint)
    return whole.getvalue()


class PartialReads:
    """A stream whose `read(n)` returns what is available, at most n bytes; it waits only while nothing is."""

    def __init__(self, stream: Any, report: Report | None = None) -> None:
        self.stream = stream
        self.read = stream.read1 if report is None else _timed(stream.read1, report)
        self.close = stream.close
        if hasattr(stream, "peek"):
            self.peek = stream.peek


class QuietStream(io.BufferedIOBase):
    """A stream that is closed, without a word, when nothing refers to it any more.

    Since Python 3.13 a finalizer prints what `close()` raises, if only that a failed constructor left something unset.
    """

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


class AbortableStream(io.BufferedIOBase):
    """A stream that is aborted by an exception in its `with` block, and when nobody closes it."""

    def abort(self) -> None:
        raise NotImplementedError

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self.abort()
        self.close()

    def __del__(self) -> None:
        # nobody would hear of a failure, and the collector must not wait
        with contextlib.suppress(Exception):
            self.abort()


class PiecewiseStream(QuietStream):
    """A stream to read, made from `read1` alone, which returns what is available and waits only while nothing is."""

    position = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def read1(self, size: int = -1, /) -> bytes:
        raise NotImplementedError

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        return read_whole(self.read1, -1 if size is None or size < 0 else size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        count = got = 0
        while count < len(view) and (got := self.readinto1(view[count:])):
            count += got
        return count

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read1(len(view))
        view[: len(data)] = data
        return len(data)


def partial_reads(stream: object, report: Report | None = None) -> Any:
    """The stream with reads that return what is available, if it can do that; the report is told how long they take.

    A reader of large windows then gets the first samples of a slow source at once.

    >>> from .shell.commands import CommandStream
    >>> with CommandStream("echo hello; sleep 1000") as stream:
    ...     partial_reads(stream).read(1 << 20)
    b'hello\\n'
    """
    return PartialReads(stream, report) if hasattr(stream, "read1") else stream


def _timed(read1: Callable[[int], bytes], report: Report) -> Callable[[int], bytes]:
    counts, stage = report.counts, "time:first_byte"

    def read(size: int) -> bytes:
        nonlocal stage
        began = perf_counter()
        data = read1(size)
        counts[stage] += perf_counter() - began  # type: ignore[assignment]  # seconds are not whole
        stage = "time:read"
        return data

    return read


def count_received(report: Report, received: int, retried: int = 0) -> None:
    """Count the bytes of a stream, and whether it was retried."""
    if received:
        report.count("bytes_read", received)
    if retried:
        report.count("shards_retried")


def read_whole(read1: Callable[[int], bytes], size: int) -> bytes:
    """`size` bytes from reads that may return fewer, fewer only at the end; all of them for -1."""
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
