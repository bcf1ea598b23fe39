"""The download of one shard into a cache folder, by a thread of one process, while any process reads along.

The bytes go into a temporary file, which gets its name when the source has ended without error and everything is
checked. When the folder is full, the rest of the source is left to the reader in this process.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Callable
from typing import Any

from webdataset.base.stops import Bell, Thread
from webdataset.errors import StorageError
from webdataset.storage.streams import partial_reads

from . import contents
from .checks import TarChecks
from .contents import CHUNK_BYTES, NO_LINKS, CannotStoreError, Facts, Lock, storing
from .eviction import Evictor

START_BYTES = 512
END_BYTES = 1024
CHECKED_BYTES = 32 << 20
"""The size of the folder is checked again whenever this many more bytes have come than were announced."""
STOP_SECONDS = 0.05
GRACE_SECONDS = 0.04
GRACE_BYTES = 1 << 20


class Download:
    """A file being fetched under a lock, which is released at the end, however it ends."""

    def __init__(
        self, path: str, lock: Lock, source: Any, checks: TarChecks, evictor: Evictor, *, url: str | None = None
    ) -> None:
        self.path = path
        self.temporary = ""
        self.source = source
        self.length: int | None = getattr(source, "length", None)
        self.owner = os.getpid()
        self.changed = Bell()
        self.complete = False  # the source has ended without error: everything is written
        self.published = False  # the file has its name
        self.done = False  # nothing more will happen
        self.error: BaseException | None = None
        self.refused: CannotStoreError | None = None  # why the folder did not take it
        self.written = 0
        self.rest = b""  # bytes that the folder did not take
        self._url = url
        self._lock = lock
        self._checks = checks
        self._evictor = evictor
        self._handle = -1
        self._crc32 = 0
        self._first_bytes = self._last_bytes = b""
        self._stopping = False
        self._reader_left = False  # its reader has gone, but others read along
        self._thread: Thread | None = None
        self._read = partial_reads(source).read

    def begin(self) -> bool:
        """Read the first bytes and make the temporary file; False if the folder refuses: the source stays open."""
        try:
            while len(self.rest) < START_BYTES and (data := self._read(CHUNK_BYTES)):
                self.rest += data
            self._checks.check_start(self.rest)
            self.temporary = contents.temporary_name(self.path, self.length)
            with self._evictor.reserve(self.length), storing():
                self._handle = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, 0o600)
        except CannotStoreError as exn:
            self.refused = exn
            self._finish()
            return False
        except BaseException:
            self.give_up()
            raise
        return True

    def run(self) -> None:
        """Fetch everything and give the file its name. Errors are left in `error` and `refused`."""
        try:
            self._copy()
            self._publish()
        except CannotStoreError as exn:
            self.refused = exn
        except BaseException as exn:  # the reader raises it
            self.error = exn
        finally:
            self._finish()
            if self._reader_left:
                _quietly(self._end_source)

    def start(self) -> None:
        """Run in the background."""
        self._thread = Thread(target=self.run, name="webdataset-cache", daemon=True)
        self._thread.start()

    def give_up(self) -> None:
        """Clean up a download that was not run."""
        self._finish()
        _quietly(self.source.close)

    def stop(self) -> None:
        """The reader leaves: a file that others read, or that is almost complete, is completed, else given up."""
        thread = self._thread
        if self.owner != os.getpid():
            self._lock.release()  # a forked copy: the file belongs to the parent
            return
        if thread is None or thread is threading.current_thread():
            return
        if not self.complete and (self.length is None or self.length - self.written <= GRACE_BYTES):
            thread.join(GRACE_SECONDS)
        if self.complete:
            thread.join()
            return
        if contents.is_in_use(self.temporary):
            self._reader_left = True
            if self.done:
                _quietly(self._end_source)
            return
        self._stopping = True
        if thread.is_alive():
            # closing may have to wait for a read that is under way, which the reader must not
            closer = Thread(target=_quietly, args=(self._end_source,), name="webdataset-close", daemon=True)
            closer.start()
            thread.join(STOP_SECONDS)
        else:
            _quietly(self._end_source)

    def _copy(self) -> None:
        data, self.rest = self.rest, b""
        self._first_bytes = data[:START_BYTES]
        next_check = CHECKED_BYTES + (self.length or 0)
        while data:
            self._write(data)
            if self.written > next_check:
                self._evictor.check(self.written)
                next_check += CHECKED_BYTES
            data = self._read(CHUNK_BYTES)
            if self._stopping or (self._reader_left and not contents.is_in_use(self.temporary)):
                raise _Stopped
        self.source.close()  # a command that failed says so here
        if self.length is not None and self.written != self.length:
            raise StorageError(f"ends early: got {self.written} of {self.length} bytes", url=self._url)

    def _write(self, data: bytes) -> None:
        self._crc32 = zlib.crc32(data, self._crc32)
        self._last_bytes = (self._last_bytes + data[-END_BYTES:])[-END_BYTES:]
        view = memoryview(data)
        try:
            with storing():
                while view:
                    count = os.write(self._handle, view)
                    self.written += count
                    view = view[count:]
        except CannotStoreError:
            self.rest = bytes(view)
            raise
        self.changed.ring()

    def _publish(self) -> None:
        self._checks.check_file(self.temporary)
        keep = self.length is not None or self._checks.is_complete(self._first_bytes, self._last_bytes)
        self.complete = True
        self.changed.ring()
        if not keep:
            return
        facts = Facts(self.written, self._crc32, self._url, _validator_of(self.source))
        with storing():
            os.fsync(self._handle)
            contents.remove(self.path)  # these are not the facts about a bad file that is still there
            contents.write_facts(self.path, facts)
            os.replace(self.temporary, self.path)
        self.published = True
        self._evictor.trim(self.path)

    def _finish(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        if not self.published and self.temporary:
            contents.remove(self.temporary)
        self._lock.release()
        self.done = True
        self.changed.ring()

    def _end_source(self) -> None:
        getattr(self.source, "abort", self.source.close)()


class _Stopped(Exception):  # noqa: N818 - control flow, not an error
    """The reader has left."""


def _validator_of(source: object) -> str | None:
    """The server's validator of this version of the object, for example its ETag."""
    found = getattr(source, "validator", None) or getattr(getattr(source, "version", None), "validator", None)
    return found if isinstance(found, str) else None


def _quietly(function: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):
        function()
