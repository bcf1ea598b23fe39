"""Reading ahead: the bytes of a remote object are fetched in the background, so that the socket never waits.

Small objects are read as they are, and others as long as their reader does nothing else. One that works on the bytes
gets a thread that fills a bounded number of buffers meanwhile. Where one connection cannot fill the link, several
connections fetch parts of the object side by side: from the start if the server is far away, else as soon as the first
connection has turned out to be slow.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webdataset.base.stops import Bell, Thread
from webdataset.errors import StorageError
from webdataset.storage.streams import PiecewiseStream, QuietStream, count_received

from .pool import kept_alive
from .stream import HttpStream, ObjectVersion
from .verified import VerifiedStream

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER_BYTES = 1 << 20
BUFFERS = 8
"""Measured on loopback: 8 of 1 MiB are 10 % faster than 32 of 256 KiB; more bring nothing."""
DIRECT_BYTES = 64 << 10
"""Reads of at least this size go straight to the socket, which saves a copy."""
BUSY_SHARE = 0.5
"""The thread starts when the reader spends more than this part of the receiving time on other work. A reader that only
copies would lose half of the rate by it: what another thread received has left the processor's cache."""
PART_BYTES = 8 << 20
CONNECTIONS = 4
FAR_SECONDS = 0.02
"""A server that takes this long to answer is far away."""
SLOW_BYTES_PER_SECOND = 64e6
"""Below this rate more connections are opened."""
LARGE_BYTES = 32 << 20
"""Smaller objects are read over one connection unless a number is given."""
CLOSE_SECONDS = 0.09


def open_http(url: str, mode: str = "rb", *, connections: int | None = None, **options: Any) -> QuietStream:
    """Open an `http:` or `https:` url for reading ahead, over as many `connections` as help.

    The options are those of HttpStream.
    """
    if mode != "rb":
        raise StorageError(
            "writing to a web server is not supported", url=url, hint="write a file, or pipe: to a command that uploads"
        )
    return reading_ahead(HttpStream(url, **options), connections)


def reading_ahead(stream: HttpStream, connections: int | None = None) -> QuietStream:
    """The same bytes, read ahead, over that many `connections`; else as size, distance and rate suggest."""
    if connections is not None and connections < 1:
        stream.close()
        raise ValueError(f"connections must be at least 1, got {connections}")
    version = stream.version
    found = _reader(stream, connections)
    return found if version is None or version.md5 is None else VerifiedStream(found, version.md5)


def _reader(stream: HttpStream, connections: int | None) -> ReadAhead | ParallelReader:
    version, length = stream.version, stream.length or 0
    if connections == 1 or length <= PART_BYTES or version is None or not version.strong:
        return ReadAhead(stream)
    if connections is not None:
        return ParallelReader(stream, connections)
    if length < LARGE_BYTES or stream.proxied:  # proxies keep whole objects, not parts of them
        return ReadAhead(stream)
    return ParallelReader(stream, when_slow=stream.waited < FAR_SECONDS or stream.has_low_rtt())


class ReadAhead(PiecewiseStream):
    """One stream, read by a thread into buffers that are used again and again.

    The thread starts when the reader turns out to be busy with what it got, in the process that reads. An error is
    raised at the byte where it happened.
    """

    def __init__(self, source: HttpStream, buffers: int = BUFFERS, buffer_bytes: int = BUFFER_BYTES) -> None:
        super().__init__()
        self.url = source.url
        self.source = source
        self._report, source.report = source.report, None  # counted here, by the thread that reads the data
        self._start = self.position = source.position
        self._buffer_bytes = buffer_bytes
        self._buffers_left = buffers
        self._free: list[memoryview] = []
        self._ready: deque[_Filled] = deque()
        self._current: _Filled | None = None
        self._view = memoryview(b"")
        self._place = self._end = 0
        self._error: BaseException | None = None
        self._at_end = False
        self._closing = False
        self._lock = threading.Lock()
        self._changed = Bell()
        self._thread: Thread | None = None
        self._process = os.getpid()
        self._receiving = 0.0
        self._away = 0.0
        self._returned_at = 0.0  # when the reader got its last bytes

    @property
    def length(self) -> int | None:
        return self.source.length

    @property
    def version(self) -> ObjectVersion | None:
        return self.source.version

    @property
    def retried(self) -> int:
        return self.source.retried

    @property
    def received(self) -> int:
        """The number of bytes received."""
        return self.source.position - self._start

    @property
    def is_slow(self) -> bool:
        """Whether the connection is slow, whatever the reader does."""
        return self.received < SLOW_BYTES_PER_SECOND * self._receiving

    def read1(self, size: int = -1, /) -> bytes:
        """What is available, up to `size` bytes; waits only while nothing is."""
        place = self._place
        if place == self._end or self.closed:
            if size == 0 or not self._next():
                return b""
            place = self._place
        stop = self._end if size < 0 else min(place + size, self._end)
        self._place = stop
        self.position += stop - place
        return bytes(self._view[place:stop])

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        fits = size is not None and DIRECT_BYTES <= size <= self._buffer_bytes
        if not fits or self._place < self._end or not self._is_direct():
            return super().read(size)
        view = self._own_view()[:size]
        count = got = 0
        while count < len(view) and (got := self._receive(view[count:])):
            count += got
        self.position += count
        return bytes(view[:count])

    def readinto1(self, buffer: WriteableBuffer, /) -> int:
        """What is available, copied once, or not at all while there is no thread."""
        view = memoryview(buffer).cast("B")
        if self._place == self._end or self.closed:
            if len(view) >= DIRECT_BYTES and self._is_direct():
                count = self._receive(view)
                self.position += count
                return count
            if not len(view) or not self._next():
                return 0
        place, stop = self._place, min(self._place + len(view), self._end)
        view[: stop - place] = self._view[place:stop]
        self._place = stop
        self.position += stop - place
        return stop - place

    def start(self) -> None:
        """Begin to read ahead now."""
        if self._thread is None:
            self._process = os.getpid()
            self._thread = Thread(target=self._fill, name=f"reading {id(self):x}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the thread and the connection, whatever the server does."""
        if self.closed:
            return
        super().close()
        self._view, self._place, self._end = memoryview(b""), 0, 0
        if self._thread is None or self._process != os.getpid():
            if not self._at_end:
                self.source.abort()  # another thread may be in the middle of a read
            self.source.close()  # a forked copy has no thread
        else:
            self._stop(self._thread)
        if self._report is not None:
            count_received(self._report, self.received, self.retried)

    def _next(self) -> bool:
        """Take the next filled buffer; False at the end."""
        if self._is_direct():
            self._place, self._end = 0, self._receive(self._own_view())
            return self._end > 0
        if self._at_end and not self._ready:
            return False
        self._check_process()
        while self._changed.wait(self._has_news) and (piece := self._taken()) is not None:
            if piece.start < piece.stop:
                self._view, self._place, self._end = piece.view, piece.start, piece.stop
                return True
        if self._closing:
            raise ValueError("I/O operation on closed file")
        if self._error is not None:
            raise self._error
        return False

    def _has_news(self) -> bool:
        """Whether there is something to take, or never will be; the buffer before it may be filled again."""
        with self._lock:
            done, self._current = self._current, None
            if done is not None and done.last:
                self._free.append(done.view)
                self._changed.ring()
            return bool(self._ready or self._error or self._at_end or self._closing)

    def _taken(self) -> _Filled | None:
        with self._lock:
            self._current = self._ready.popleft() if self._ready else None
            return self._current

    def _is_direct(self) -> bool:
        """Whether the reader receives by itself; starts the thread when that helps."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._thread is None and self._away > BUSY_SHARE * self._receiving and self._is_long():
            self.start()
        return self._thread is None

    def _check_process(self) -> None:
        """Refuse to read in a forked process: two that read from one connection would each get a part of it."""
        if self._process != os.getpid():
            raise StorageError("a stream that is being read cannot be read on in a forked process", url=self.url)

    def _is_long(self) -> bool:
        """Whether more than a buffer is still to come, or may be."""
        length = self.source.length
        return self.source.position > 0 and (length is None or length - self.source.position > self._buffer_bytes)

    def _own_view(self) -> memoryview:
        if not len(self._view):
            self._view = memoryview(bytearray(self._buffer_bytes))
        return self._view

    def _receive(self, view: memoryview) -> int:
        """Some bytes, straight from the connection."""
        if self._error is not None:
            raise self._error
        if self._at_end:
            return 0
        if not self._returned_at:
            self._process = os.getpid()
        self._check_process()
        start = time.perf_counter()
        self._away += start - (self._returned_at or start)
        try:
            count = self.source.readinto1(view)
        except Exception as exn:
            self._error = exn
            raise
        self._returned_at = time.perf_counter()
        self._receiving += self._returned_at - start
        self._at_end = not count
        return count

    def _stop(self, thread: Thread) -> None:
        self._closing = True
        self._changed.ring()
        deadline = time.monotonic() + CLOSE_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            self.source.abort()  # again: the thread may have been just about to open a connection
            thread.join(CLOSE_SECONDS / 4)
        # a thread that still asks for the host's address ends by itself as soon as that is answered

    # -- the thread that reads ahead ---------------------------------------------------------------

    def _fill(self) -> None:
        try:
            with contextlib.closing(self.source):
                while (view := self._empty()) is not None and self._filled(view):
                    pass
        except BaseException as exn:
            self._error = exn
        else:
            self._at_end = True
        self._changed.ring()

    def _empty(self) -> memoryview | None:
        """A buffer to fill; None when the stream is closed."""
        self._changed.wait(lambda: self._free or self._buffers_left or self._closing)
        if self._closing:
            return None
        with self._lock:
            if self._free:
                return self._free.pop()  # the one used last, which is still in the processor's cache
        self._buffers_left -= 1
        return memoryview(bytearray(self._buffer_bytes))

    def _filled(self, view: memoryview) -> bool:
        """Fill a buffer, every piece handed over as soon as it arrives; False at the end."""
        count, got = 0, 1
        while got and count < len(view):
            start = time.perf_counter()
            got = self.source.readinto1(view[count:])
            self._receiving += time.perf_counter() - start
            with self._lock:
                self._hand_over(_Filled(view, count, count + got, last=not got or count + got == len(view)))
            self._changed.ring()
            count += got
        return got > 0

    def _hand_over(self, piece: _Filled) -> None:
        """Queue the piece, or extend the last one if it has not been taken yet."""
        before = self._ready[-1] if self._ready else None
        if before is not None and before.view is piece.view and not before.last:
            before.stop, before.last = piece.stop, piece.last
        else:
            self._ready.append(piece)


@dataclass
class _Filled:
    """A filled piece of a buffer; after the last one the buffer is free."""

    view: memoryview
    start: int
    stop: int
    last: bool


class ParallelReader(PiecewiseStream):
    """Parts of one object, fetched side by side over several connections and returned in order.

    The first connection receives the first part; every other part is requested and resumed by itself. With `when_slow`
    the first connection receives the whole object, unless it turns out to be slow.
    """

    def __init__(
        self,
        first: HttpStream,
        connections: int = CONNECTIONS,
        part_bytes: int = PART_BYTES,
        *,
        when_slow: bool = False,
    ) -> None:
        super().__init__()
        self.url = first.url
        self._length = first.length or 0
        self._report, first.report = first.report, None
        self._first = first
        self._part_bytes = part_bytes
        self._connections = connections
        self._when_slow = when_slow
        self._requested = self._length
        self._parts: deque[ReadAhead] = deque()
        self._current = ReadAhead(first) if when_slow else ReadAhead(first, _buffers(part_bytes))
        if not when_slow:
            self._leave_rest_at(min(part_bytes, self._length))
        self.position = 0
        self._retried = 0
        self._received = 0
        self._kept_alive: contextlib.ExitStack | None = None

    @property
    def length(self) -> int | None:
        return self._length

    @property
    def version(self) -> ObjectVersion | None:
        return self._first.version

    @property
    def retried(self) -> int:
        return self._retried + sum(part.retried for part in (self._current, *self._parts))

    def read1(self, size: int = -1, /) -> bytes:
        """What is available, up to `size` bytes; waits only while nothing is."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if size == 0:
            return b""
        if self._kept_alive is None:
            self._kept_alive = contextlib.ExitStack()
            self._kept_alive.enter_context(kept_alive())
            self._current.start()
            self._request_parts()
        while not (data := self._current.read1(size)):
            if not self._parts:
                return b""
            self._finish(self._current)
            self._current = self._parts.popleft()
            self._request_parts()
        self.position += len(data)
        if self._when_slow and self.position >= self._part_bytes:
            self._help_if_slow()
        return data

    def close(self) -> None:
        """End all connections at once."""
        if self.closed:
            return
        super().close()
        for part in self._parts:
            part.source.abort()  # all of them before the first is waited for
        for part in (self._current, *self._parts):
            self._finish(part)
        self._parts.clear()
        if self._kept_alive is not None:
            self._kept_alive.close()
        if self._report is not None:
            count_received(self._report, self._received, self._retried)

    def _help_if_slow(self) -> None:
        self._when_slow = False
        # the first connection is ahead of the reader by what its buffers hold, and never by more
        place = self.position + BUFFERS * BUFFER_BYTES
        if self._current.is_slow and place + self._part_bytes <= self._length:
            self._leave_rest_at(place)
            self._request_parts()

    def _leave_rest_at(self, place: int) -> None:
        """Leave what follows this byte to other connections."""
        self._first.stop_at(place)
        self._requested = place

    def _request_parts(self) -> None:
        """Request parts, as many at a time as there may be connections."""
        while self._requested < self._length and len(self._parts) < self._connections - 1:
            stop = min(self._requested + self._part_bytes, self._length)
            source = self._first.part(self._requested, stop)
            source.report = None
            part = ReadAhead(source, _buffers(self._part_bytes))
            part.start()
            self._parts.append(part)
            self._requested = stop

    def _finish(self, part: ReadAhead) -> None:
        part.close()
        self._retried += part.retried
        self._received += part.received


def _buffers(part_bytes: int) -> int:
    """Buffers for a whole part, so that its connection never waits for the parts before it."""
    return -(-part_bytes // BUFFER_BYTES) + 1
