"""Uploads: sent in parts in the background, visible when complete, or not at all.

A part is at least 8 MiB; after every thousand parts the next ones are twice as large, so that ten thousand of
them, the most that stores take, make more than the largest object (5 TB).
"""

from __future__ import annotations

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from webdataset.base.reports import current_report
from webdataset.base.stops import Bell, Stop
from webdataset.errors import StorageError
from webdataset.storage.streams import AbortableStream

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

MIB = 1 << 20
FIRST_PART_BYTES = 8 * MIB
PARTS_PER_SIZE = 1000
IN_FLIGHT_BYTES = 32 * MIB
ABORT_SECONDS = 30.0


@dataclass
class Publication:
    """What is asked before an object appears, when all of it has been sent, and what is known of it afterwards.

    >>> versions: dict[str, str] = {}
    >>> with Publication(check=lambda: None, versions=versions).in_force():
    ...     publication.get().versions is versions
    True
    """

    check: Callable[[], None]
    """Raises an error if nothing may appear any more."""
    versions: dict[str, str]
    """By url: the versions that the store gave to what was written."""

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Let all uploads of this thread ask."""
        token = publication.set(self)
        try:
            yield
        finally:
            publication.reset(token)


publication: ContextVar[Publication | None] = ContextVar("publication", default=None)


class Upload(AbortableStream):
    """A stream to write to: `close()` completes the object, `abort()` leaves nothing of it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.version = ""
        """What the store calls the object that is complete, if it says so."""
        self._owner = os.getpid()
        self._failed: BaseException | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._owner != os.getpid():
            raise StorageError("an upload belongs to the process that began it", url=self.url)
        self._check()
        try:
            return self._write(data)
        except BaseException:
            self.abort()
            raise

    def close(self) -> None:
        """Complete the object; in a forked copy, only forget it."""
        if self.closed:
            return
        if self._owner != os.getpid():
            super().close()
            return
        try:
            self._check()
            asked = publication.get()
            if asked is not None:
                self._send_all()
                asked.check()
            self._finish()
        except BaseException:
            self.abort()
            raise
        if asked is not None and self.version:
            asked.versions[self.url] = self.version
        self._release()
        super().close()

    def abort(self) -> None:
        """Leave nothing behind; the object that was there before stays as it is."""
        if self.closed:
            return
        if self._owner == os.getpid():
            self._discard()
            self._release()
        super().close()

    def _check(self) -> None:
        if self._failed is not None:
            failed = self._failed
            self.abort()
            raise failed

    def _write(self, data: bytes | memoryview) -> int:
        raise NotImplementedError

    def _send_all(self) -> None:
        """Send what can be discarded by others until the object is complete."""

    def _finish(self) -> None:
        raise NotImplementedError

    def _discard(self) -> None:
        """Undo what was sent; never raises."""

    def _release(self) -> None:
        """Free memory, threads and files."""


class Parts(ABC):
    """The requests of an upload in parts to one store; a part may be sent from any thread."""

    parallel = 3
    is_revocable = False
    """Whether others can discard what was sent, until it is complete."""

    @abstractmethod
    def whole(self, data: bytes) -> str:
        """Store a small object with one request; returns its version if lists have the same."""

    @abstractmethod
    def begin(self) -> None:
        """Announce an object in parts."""

    @abstractmethod
    def part(self, number: int, data: bytes, last: bool) -> str:
        """Send a part, numbered from 1; returns the store's name for it."""

    @abstractmethod
    def complete(self, names: list[str]) -> str:
        """Make the object of these parts; returns its version if lists have the same."""

    @abstractmethod
    def abort(self) -> None:
        """Discard the parts, without much patience for a store that is down."""


class PartsUpload(Upload):
    """An object sent in parts; no more than a few parts are in memory."""

    def __init__(self, url: str, parts: Parts, *, part_bytes: int = FIRST_PART_BYTES) -> None:
        super().__init__(url)
        self.parts = parts
        self._first_bytes = part_bytes
        self._buffer = bytearray()
        self._is_multipart = self._is_sent = False
        self._pool: ThreadPoolExecutor | None = None
        self._sent: list[Future[str]] = []
        self._in_flight = 0
        self._lock = threading.Lock()
        self._sent_one = Bell()
        self._stop = Stop()
        self._report = current_report()

    def _write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            # A part goes out when the next byte is there, so that the last one is never empty.
            wanted = part_size(len(self._sent), self._first_bytes)
            if len(self._buffer) >= wanted:
                self._send(last=False)
                continue
            piece = view[done : done + wanted - len(self._buffer)]
            self._buffer += piece
            done += len(piece)
        return len(view)

    def _send_all(self) -> None:
        if self.parts.is_revocable and self._buffer:
            from concurrent.futures import wait

            self._send(last=True)
            wait(self._sent)
            self._is_sent = True

    def _finish(self) -> None:
        if not self._is_multipart:
            self.version = self.parts.whole(bytes(self._buffer))
            return
        from concurrent.futures import wait

        if not self._is_sent:
            self._send(last=True)
        wait(self._sent)
        self._check()  # the part that failed first says why, not those that were not sent for it
        self.version = self.parts.complete([future.result() for future in self._sent])

    def _send(self, *, last: bool) -> None:
        """Hand a part to the background; waits while too many bytes are on their way."""
        if not self._is_multipart:
            self.parts.begin()
            self._is_multipart = True
        data, self._buffer = bytes(self._buffer), bytearray()
        self._sent_one.wait(lambda: self._failed is not None or self._has_room(len(data)))
        self._check()
        with self._lock:
            self._in_flight += len(data)
        self._sent.append(self._threads().submit(self._send_part, len(self._sent) + 1, data, last))

    def _has_room(self, size: int) -> bool:
        return not self._in_flight or self._in_flight + size <= IN_FLIGHT_BYTES

    def _send_part(self, number: int, data: bytes, last: bool) -> str:
        """Runs in a thread of the pool."""
        try:
            if self._failed is not None:
                raise StorageError("not sent, since the upload has failed", url=self.url)
            with self._stop.in_force(), self._report.in_force():
                return self.parts.part(number, data, last)
        except BaseException as exn:
            self._failed = self._failed or exn
            raise
        finally:
            with self._lock:
                self._in_flight -= len(data)
            self._sent_one.ring()

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self.parts.parallel, thread_name_prefix="upload")
        return self._pool

    def _discard(self) -> None:
        from concurrent.futures import wait

        self._failed = self._failed or StorageError("this upload was aborted", url=self.url)
        self._stop.set()  # no part waits for a store that is down
        for future in self._sent:
            future.cancel()
        # A part that arrives after the others were discarded would stay there for ever.
        wait(self._sent, ABORT_SECONDS)
        if self._is_multipart:
            with contextlib.suppress(Exception):
                self.parts.abort()

    def _release(self) -> None:
        self._buffer = bytearray()
        self._sent = []
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class FileUpload(Upload):
    """An object that is collected in a temporary file and sent by `send(file, size)` when it is complete."""

    def __init__(self, url: str, send: Callable[[BinaryIO, int], object]) -> None:
        import tempfile

        super().__init__(url)
        self._send = send
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _release

    def _write(self, data: bytes | memoryview) -> int:
        return self._file.write(data)

    def _finish(self) -> None:
        size = self._file.tell()
        self._file.seek(0)
        self._send(self._file, size)

    def _release(self) -> None:
        self._file.close()


class FileBody:
    """A file as the body of a request, in large pieces, from its beginning whenever it is sent."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(MIB):
            yield piece


def part_size(number: int, first: int = FIRST_PART_BYTES) -> int:
    """The size of the part with this number, counted from 0.

    >>> part_size(0) == 8 * MIB, part_size(999) == 8 * MIB, part_size(1000) == 16 * MIB
    (True, True, True)
    >>> sum(part_size(number) for number in range(10_000)) > 5 * 1000**4
    True
    """
    return first << number // PARTS_PER_SIZE
