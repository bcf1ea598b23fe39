"""Some bytes of an object: `RangeReader(url).read(start, stop)`, from files, web servers and object stores.

>>> import tempfile
>>> with tempfile.NamedTemporaryFile() as file:
...     _ = file.write(b"0123456789"), file.flush()
...     with RangeReader(file.name) as reader:
...         reader.read(2, 5), reader.size
(b'234', 10)
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from webdataset.base.reports import current_report
from webdataset.base.stops import Bell, Stop
from webdataset.errors import NoRangesError, StorageError

from .stores.lookup import STORES, stored_object
from .streams import count_received
from .urls import as_url, is_local, opened_scheme

if TYPE_CHECKING:
    from .http.stream import HttpStream, ObjectVersion, RangedObject


class PartStream(Protocol):
    """Some bytes of an object, in order."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to `size` of the next bytes; none at the end."""

    def rewind(self) -> None:
        """Start again at the first byte."""


class RangeReader:
    """Reads any bytes of one object, which stays the same for all reads: one that was replaced is an error.

    `options` are those of the scheme, as `gopen(url, **options)` takes them. Several threads may read at once, each
    over a connection that is kept for the next read. A reader belongs to the process that made it.

    `cached=True` is for a file of a cache folder, which never changes under its name; its time is that of its last use.
    """

    def __init__(self, url: str, *, proxy: str | None = None, cached: bool = False, **options: object) -> None:
        self.url = as_url(url)
        given = options if proxy is None else {**options, "proxy": proxy}
        self._source = _File(self.url, timeless=True) if cached else _source(self.url, given)

    @property
    def size(self) -> int | None:
        """The number of bytes of the object, if its server says so."""
        return self._source.size

    @property
    def version(self) -> str | None:
        """What changes when the object does: an ETag or `Last-Modified`; size and time of a file."""
        return self._source.version

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to before `stop`, all of them or an error."""
        if not 0 <= start <= stop:
            raise ValueError(f"a range is 0 <= start <= stop, got {start} to {stop}")
        if start == stop:
            return b""
        try:
            return self._source.read(start, stop)
        except StorageError as exn:
            exn.at(url=self.url, offset=start)
            raise

    def stream(self, start: int, stop: int, memory: bytearray | None = None) -> PartStream:
        """The same bytes as a stream; a file is read as the stream is.

        What a server sends is put into `memory`, if that is given, which may grow: using it again for the next stream
        saves most of the cost of receiving.
        """
        return self._source.stream(start, stop, memory)

    def close(self) -> None:
        """Close the connections or the file, also under reads of other threads."""
        self._source.close()

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a RangeReader belongs to one process; send the url and open it there")


def object_size_and_version(url: str, *, proxy: str | None = None, **options: Any) -> tuple[int | None, str | None]:
    """The size of an object in bytes and its version, each None where the server does not say.

    >>> object_size_and_version(__file__)[0] == os.path.getsize(__file__)
    True
    """
    with RangeReader(url, proxy=proxy, **options) as reader:
        return reader.size, reader.version


def _source(url: str, options: dict[str, Any]) -> _File | _Remote:
    if url != "-" and is_local(url):
        return _File(url)
    connections: int | None = options.pop("connections", None)
    scheme = opened_scheme(url)
    if scheme in ("http", "https"):
        from .http.connect import ConnectionOptions  # http.client and ssl take 40 ms to import
        from .http.stream import HttpObject

        return _Remote(HttpObject(url, ConnectionOptions(**options)), url, connections)
    if url == "-" or scheme not in STORES:
        what = "standard input" if url == "-" else f"{scheme}: urls"
        raise NoRangesError(f"{what} cannot be read in parts", url=url)
    found = stored_object(url, **options)
    if not found.has_ranges:
        raise NoRangesError("what the cluster generates on request cannot be read in parts", url=url)
    return _Remote(found, url, connections)


class _File:
    """A file of this machine, read without a position, so that threads do not disturb each other."""

    def __init__(self, url: str, *, timeless: bool = False) -> None:
        from .local import open_local

        self._url = url
        self._timeless = timeless
        self._report = current_report()
        self._counting = threading.Lock()
        self._file = open_local(url, buffering=0)
        self.number = self._file.fileno()
        self._size_and_time = self._current()

    @property
    def size(self) -> int:
        return self._size_and_time[0]

    @property
    def version(self) -> str | None:
        return None if self._timeless else "{}-{}".format(*self._size_and_time)

    def read(self, start: int, stop: int) -> bytes:
        part = self.stream(start, stop)
        data = part.read()
        while len(data) < stop - start:
            data += part.read()
        return data

    def stream(self, start: int, stop: int, _memory: bytearray | None = None) -> _FilePart:
        return _FilePart(self, start, stop)

    def check(self, start: int, stop: int, position: int) -> None:
        """After a part was read up to a position: raise if the file has changed or is too short."""
        if self._current() != self._size_and_time:
            raise StorageError("the file changed while it was read", url=self._url)
        if position < stop:
            raise StorageError(f"the file has {self.size} bytes, {stop} were expected", url=self._url)
        with self._counting:
            self._report.count("bytes_read", stop - start)

    def close(self) -> None:
        self._file.close()

    def _current(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_size, 0 if self._timeless else found.st_mtime_ns


class _FilePart:
    """Some bytes of a file, in order, each read once."""

    def __init__(self, file: _File, start: int, stop: int) -> None:
        self._file = file
        self._number = file.number
        self._start = self._position = start
        self._stop = stop

    def read(self, size: int = -1) -> bytes:
        position, stop = self._position, self._stop
        left = stop - position
        if left <= 0:
            return b""
        data = os.pread(self._number, left if size < 0 or size > left else size, position)
        self._position = position = position + len(data)
        if position >= stop or not data:
            self._file.check(self._start, stop, position)
        return data

    def rewind(self) -> None:
        self._position = self._start


class _Remote:
    """An object of a server; all responses must be of the version of the first one."""

    def __init__(self, found: RangedObject, url: str, connections: int | None = None) -> None:
        from .http.pool import kept_alive

        self._most = math.inf if connections is None else connections
        self._fetching: set[object] = set()
        self._fetched_one = Bell()

        self._object = found
        self._url = url
        self._report = current_report()
        self._version: ObjectVersion | None = None
        self._finding = threading.Lock()
        self._changing = threading.Lock()
        self._under_way: set[HttpStream] = set()
        self._closed = False
        self._stop = Stop.apart()  # threads come and go
        self._connections = ExitStack()
        self._connections.enter_context(kept_alive())

    @property
    def size(self) -> int | None:
        return self._current_version().length

    @property
    def version(self) -> str | None:
        return self._current_version().validator

    def read(self, start: int, stop: int) -> bytes:
        return bytes(self._received(start, stop))

    def stream(self, start: int, stop: int, memory: bytearray | None = None) -> _ReceivedPart:
        try:
            return _ReceivedPart(self._received(start, stop, memory))
        except StorageError as exn:
            exn.at(url=self._url, offset=start)
            raise

    def close(self) -> None:
        self._stop.set()
        with self._changing:
            self._closed = True
            for part in self._under_way:
                part.abort()
        self._connections.close()

    def _current_version(self) -> ObjectVersion:
        if self._version is None:
            with self._finding:
                if self._version is None:
                    with self._report.in_force(), self._stop.in_force():
                        self._version = self._object.head()
        return self._version

    def _received(self, start: int, stop: int, memory: bytearray | None = None) -> memoryview:
        view = _view(memory, stop - start)
        if self._version is None:
            with self._finding:
                if self._version is None:
                    self._first(start, stop, view)
                    return view
        with self._place():
            self._fetch(start, stop, view)
        return view

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Be one of those who may use a connection at the same time."""
        place = object()
        try:
            self._fetched_one.wait(lambda: self._is_taken(place))
            yield
        finally:
            self._fetching.discard(place)
            self._fetched_one.ring()

    def _is_taken(self, place: object) -> bool:
        with self._changing:
            if len(self._fetching) < self._most:
                self._fetching.add(place)
            return place in self._fetching

    def _first(self, start: int, stop: int, view: memoryview) -> None:
        try:
            self._fetch(start, stop, view)
        except StorageError as exn:
            with self._stop.in_force():
                may_work_now = self._object.raise_reason(exn)
            if not may_work_now:
                raise
            self._fetch(start, stop, view)

    def _fetch(self, start: int, stop: int, view: memoryview) -> None:
        length = None if self._version is None else self._version.length
        if length is not None and stop > length:
            raise StorageError(f"the object has {length} bytes, {stop} were expected", url=self._url)
        # a thread of a pool has no report, and would make one for every part
        with self._report.in_force(), self._stop.in_force():
            part = self._object.part(start, stop, self._version)
        part.report = None  # counted here, by one thread at a time
        with self._changing:
            if self._closed:
                raise ValueError("I/O operation on closed file")
            self._under_way.add(part)
        try:
            got = part.readinto(view)
            part.readinto1(bytearray(1))  # reaches the end, so that the connection is kept
        finally:
            part.close()
            with self._changing:
                self._under_way.discard(part)
                count_received(self._report, part.position - start, part.retried)
        if got < stop - start:
            raise StorageError(f"ends early: got {got} of {stop - start} bytes", url=self._url)
        self._version = self._version or part.version


def _view(memory: bytearray | None, size: int) -> memoryview:
    """That many bytes of the memory, which may grow; of new memory if it is in use."""
    if memory is not None and len(memory) < size:
        try:
            memory.extend(bytes(size - len(memory)))
        except BufferError:
            memory = None
    return memoryview(bytearray(size) if memory is None else memory)[:size]


class _ReceivedPart:
    """Bytes that were received from a server."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._place = 0

    def read(self, size: int = -1) -> bytes:
        place = self._place
        part = self._data[place:] if size < 0 else self._data[place : place + size]
        self._place += len(part)
        return bytes(part)

    def rewind(self) -> None:
        self._place = 0
