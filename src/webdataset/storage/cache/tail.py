"""Reading a cached file while it is still being fetched, by this process or another one.

Readers get each byte as soon as it is in the temporary file. If the process that fetches is gone, the reader goes on
with what takes its place: the complete file, another process's download, its own, or the source itself. Before it does,
the bytes that it has already returned are compared with the new ones.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from typing import Any, Protocol

from webdataset.errors import StorageError
from webdataset.storage.streams import PiecewiseStream, partial_reads

from . import contents
from .contents import CHUNK_BYTES, CannotStoreError, open_regular
from .download import Download

FIRST_LOOK = 0.0005
LAST_LOOK = 0.02


class ByteSource(Protocol):
    """Where a stream gets its bytes."""

    def at(self, position: int, size: int) -> bytes | None:
        """Up to `size` bytes at this position, b"" at the end, None if the source was given up."""

    def close(self) -> None: ...


class TailStream(PiecewiseStream):
    """A stream over a source that may be replaced by another one on the way.

    `find(alone)` returns the next one, which depends on no other process if `alone` is true.
    """

    def __init__(self, source: ByteSource, find: Callable[[bool], ByteSource]) -> None:
        super().__init__()
        self.kept = not isinstance(source, DirectSource)
        self.position = 0
        self._source = source
        self._find = find

    @property
    def length(self) -> int | None:
        """The number of bytes, if it is known."""
        return getattr(self._source, "length", None)

    def read1(self, size: int = -1, /) -> bytes:
        """What is available, up to `size` bytes; waits only while nothing is."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        size = CHUNK_BYTES if size < 0 else size
        if size == 0:
            return b""
        while (data := self._source.at(self.position, size)) is None:
            self._replace_source()
        self.position += len(data)
        return data

    def close(self) -> None:
        if not self.closed:
            try:
                self._source.close()
            finally:
                super().close()

    def _replace_source(self) -> None:
        old = self._source
        new = self._find(_too_slow(old))
        try:
            while not self._agree(old, new):
                new.close()
                new = self._find(_too_slow(new))
        except BaseException:
            new.close()
            raise
        self._source = new
        old.close()

    def _agree(self, old: ByteSource, new: ByteSource) -> bool:
        """Whether the new source begins with the bytes that were returned; False if it, too, was given up."""
        position = 0
        while position < self.position:
            data = new.at(position, min(CHUNK_BYTES, self.position - position))
            if data is None:
                return False
            if not data or not _begins_with(old, position, data):
                raise StorageError(f"the object changed while it was read, before byte {position + len(data)}")
            position += len(data)
        return True


class PartialFile:
    """The temporary file of a shard that is being fetched, here (then there is a `download`) or by another process."""

    def __init__(
        self,
        handle: int,
        path: str,
        download: Download | None = None,
        *,
        length: int | None,
        wait_seconds: float,
        warn: Callable[[CannotStoreError], None],
    ) -> None:
        self.handle = handle
        self.path = path
        self.length = length
        self.download = download
        self.wait_seconds = wait_seconds
        self.too_slow = False
        self._warn = warn
        self._direct: DirectSource | None = None

    def at(self, position: int, size: int) -> bytes | None:
        if self._direct is not None:
            return self._direct.at(position, size)
        data = self.read_at(position, size)
        if data:
            return data
        if self.download is not None and self.download.owner == os.getpid():
            return self._from_this_process(self.download, position, size)
        return self._from_other_process(position, size)

    def read_at(self, position: int, size: int) -> bytes:
        """The bytes that are in the file by now."""
        return os.pread(self.handle, size, position)

    def close(self) -> None:
        os.close(self.handle)
        if self._direct is not None:
            self._direct.close()
        elif self.download is not None:
            self.download.stop()
            if self.download.refused is not None:
                self._warn(self.download.refused)

    def _from_this_process(self, download: Download, position: int, size: int) -> bytes:
        download.changed.wait(lambda: download.complete or download.done or download.written > position)
        data = self.read_at(position, size)
        if data or download.complete:
            return data
        if download.refused is None:
            raise download.error or ValueError("I/O operation on closed file")
        self._warn(download.refused)
        self._direct = DirectSource(download.source, download.rest, download.written)
        return self._direct.at(position, size)

    def _from_other_process(self, position: int, size: int) -> bytes | None:
        pause = FIRST_LOOK
        deadline = time.monotonic() + self.wait_seconds
        while time.monotonic() < deadline:
            published, abandoned = self._state()
            data = self.read_at(position, size)
            if data or published:
                return data
            if abandoned:
                return None
            time.sleep(pause)
            pause = min(2 * pause, LAST_LOOK)
        self.too_slow = True
        self._warn(too_long())
        return None

    def _state(self) -> tuple[bool, bool]:
        """Whether the file is complete, and whether it was given up."""
        mine = os.fstat(self.handle)
        with contextlib.suppress(OSError):
            if os.path.samestat(mine, os.stat(self.path, follow_symlinks=False)):
                return True, False
        if mine.st_nlink == 0:
            return False, True
        lock = contents.lock_now(contents.beside(self.path, "lock"))
        if lock is None:
            return False, False
        lock.release()  # its process is gone; it may have renamed the file just before
        with contextlib.suppress(OSError):
            return os.path.samestat(mine, os.stat(self.path, follow_symlinks=False)), True
        return False, True


class CompleteFile:
    """A complete file."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    @property
    def length(self) -> int:
        return os.fstat(self.handle).st_size

    def at(self, position: int, size: int) -> bytes:
        return os.pread(self.handle, size, position)

    def close(self) -> None:
        os.close(self.handle)


class DirectSource:
    """The source itself, without the folder: `rest` was read from it before, and begins at `start`."""

    def __init__(self, stream: Any, rest: bytes = b"", start: int = 0) -> None:
        self.stream = stream
        self.length: int | None = getattr(stream, "length", None)
        self._rest = rest
        self._position = start
        self._read = partial_reads(stream).read

    def at(self, position: int, size: int) -> bytes:
        assert position == self._position, "a source is read in order"
        if self._rest:
            data, self._rest = self._rest[:size], self._rest[size:]
        else:
            data = self._read(size)
        self._position += len(data)
        return data

    def close(self) -> None:
        self.stream.close()


def open_shared(path: str) -> int:
    """Open a file of the folder so that it is not removed while it is read."""
    handle = open_regular(path)
    with contextlib.suppress(OSError):  # some network file systems have no locks
        fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def too_long() -> CannotStoreError:
    return CannotStoreError(None, "another process has been fetching the shard for too long")


def _too_slow(source: ByteSource) -> bool:
    return isinstance(source, PartialFile) and source.too_slow


def _begins_with(old: ByteSource, position: int, data: bytes) -> bool:
    """Whether the old source has these bytes at this position."""
    while data:
        found = old.read_at(position, len(data)) if isinstance(old, PartialFile) else b""
        if not found or not data.startswith(found):
            return False
        position += len(found)
        data = data[len(found) :]
    return True
