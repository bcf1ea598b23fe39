"""A cache folder that many processes fill: each file is fetched once, the least recently used ones are evicted.

- A file appears under its name only when it is complete and checked: it is written under a random name and renamed.
- One process fetches, under a lock beside the file; a lock goes with its process, however that ends. Others read along.
- Leftovers of a process that was killed are removed by the next one that fetches.
- A file that is open for reading is not evicted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple, cast

from webdataset.errors import SecurityError
from webdataset.storage.local import ReadFile

from . import contents
from .checks import TarChecks
from .contents import CHUNK_BYTES, NO_LINKS, CannotStoreError, Facts, Lock, storing
from .download import Download
from .eviction import Evictor
from .tail import (
    FIRST_LOOK,
    LAST_LOOK,
    ByteSource,
    CompleteFile,
    DirectSource,
    PartialFile,
    TailStream,
    open_shared,
    too_long,
)

WAIT_SECONDS = 120.0
"""How long to wait for another process that receives no byte, before the source is read without the folder."""


class CacheRequest(NamedTuple):
    """A request for a file: its name, how it is fetched and checked.

    `warn` is called with the reason if the folder does not take it; `url` is noted beside the file; `is_current` says
    whether a file with these facts is still what would be fetched.
    """

    name: str
    fetch: Callable[[], Any]
    checks: TarChecks
    warn: Callable[[CannotStoreError], None]
    url: str | None = None
    is_current: Callable[[Facts], bool] | None = None


class Folder:
    """The files of one folder, at most `size` bytes in all, give or take one file, if that is positive."""

    def __init__(self, path: str, size: int = -1, wait_seconds: float = WAIT_SECONDS) -> None:
        self.path = path
        self.evictor = Evictor(path, size)
        self.wait_seconds = wait_seconds
        self.is_swept = False

    def path_of(self, name: str) -> str:
        """The path of a file of this name; a name that leads out of the folder is refused."""
        path = os.path.normpath(os.path.join(self.path, name))
        inside = os.path.join(os.path.normpath(self.path), "")
        if "\0" in name or not path.startswith(inside) or path == inside:
            raise SecurityError(f"the cache name {name!r} leads out of the cache folder")
        return path

    def get(self, request: CacheRequest) -> str:
        """The path of the complete file, fetched now if it is missing, damaged or out of date."""
        path = self.path_of(request.name)
        waiting = _Waiting(self.wait_seconds)
        while not self._is_good(path, request):
            lock = self._lock(path)
            if lock is None:
                waiting.wait(path)
            elif self._is_good(path, request):
                lock.release()
            else:
                return self._fetch(path, lock, request)
        return path

    def open(self, request: CacheRequest) -> ReadFile | TailStream:
        """The file as a stream; one that is missing is read while this or another process fetches it.

        The stream has the attribute `kept`: False if the folder did not take the file from the start.
        """
        path = self.path_of(request.name)
        source = self._source(path, request, False)
        if isinstance(source, CompleteFile):
            return ReadFile(source.handle)
        return TailStream(source, lambda alone: self._source(path, request, alone))

    def _source(self, path: str, request: CacheRequest, alone: bool) -> ByteSource:
        """The complete file, or another source of its bytes."""
        try:
            if not alone:
                return self._shared_source(path, request)
        except CannotStoreError as exn:
            request.warn(exn)
        return DirectSource(request.fetch())

    def _shared_source(self, path: str, request: CacheRequest) -> ByteSource:
        waiting = _Waiting(self.wait_seconds)
        while True:
            handle = self._good_handle(path, request)
            if handle is not None:
                return CompleteFile(handle)
            lock = self._lock(path)
            if lock is not None:
                if not self._is_good(path, request):
                    return self._start_download(path, lock, request)
                lock.release()
                continue
            for temporary in contents.temporaries(path):
                with contextlib.suppress(OSError):
                    return self._partial_file(temporary, path, None, request)
            waiting.wait(path)

    def _partial_file(self, temporary: str, path: str, download: Download | None, request: CacheRequest) -> PartialFile:
        handle = open_shared(temporary)
        length = contents.announced_length(temporary)
        return PartialFile(handle, path, download, length=length, wait_seconds=self.wait_seconds, warn=request.warn)

    def _start_download(self, path: str, lock: Lock, request: CacheRequest) -> ByteSource:
        """Fetch the file in the background, and read along."""
        download = self._download(path, lock, request)
        if not download.begin():
            assert download.refused is not None
            request.warn(download.refused)
            return DirectSource(download.source, download.rest)
        try:
            with storing("cannot read from the cache"):
                partial = self._partial_file(download.temporary, path, download, request)
        except BaseException:
            download.give_up()
            raise
        download.start()
        return partial

    def _fetch(self, path: str, lock: Lock, request: CacheRequest) -> str:
        """Fetch the file while the caller waits."""
        download = self._download(path, lock, request)
        if download.begin():
            download.run()
        with contextlib.suppress(Exception):
            download.source.close()
        failure = download.error or download.refused
        if failure is not None:
            raise failure
        if not download.published:
            raise CannotStoreError(None, "the shard came without its length, and may have been cut")
        return path

    def _download(self, path: str, lock: Lock, request: CacheRequest) -> Download:
        """A download of the file; what other processes have left of it is removed."""
        try:
            contents.remove(*contents.temporaries(path))
            if not self.is_swept:
                self.is_swept = True
                contents.remove_leftovers(self.path)
            return Download(path, lock, request.fetch(), request.checks, self.evictor, url=request.url)
        except BaseException:
            lock.release()
            raise

    def _lock(self, path: str) -> Lock | None:
        with storing("cannot make the cache folder"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return contents.lock_now(contents.beside(path, "lock"))

    def _is_good(self, path: str, request: CacheRequest) -> bool:
        """Whether the file is complete, no link to elsewhere, and of the current version if that can be asked."""
        if not contents.is_whole(path):
            return False
        facts = None if request.is_current is None else contents.read_facts(path)
        if request.is_current is not None and facts is not None and not request.is_current(facts):
            return False
        try:
            request.checks.check_file(path)
        except PermissionError as exn:
            raise CannotStoreError(exn.errno, "a file there belongs to somebody else") from exn
        except Exception:
            return False
        contents.touch(path)
        return True

    def _good_handle(self, path: str, request: CacheRequest) -> int | None:
        if not self._is_good(path, request):
            return None
        with storing("cannot read from the cache"), contextlib.suppress(FileNotFoundError):
            return open_shared(path)
        return None  # another process evicted it just now


class _Waiting:
    """Waits for another process as long as its file grows."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.pause = FIRST_LOOK
        self.seen: list[tuple[str, int]] = []

    def wait(self, path: str) -> None:
        now = time.monotonic()
        seen = [(name, _size(name)) for name in contents.temporaries(path)]
        if seen != self.seen:
            self.seen, self.deadline = seen, now + self.seconds
        if now > self.deadline:
            raise too_long()
        time.sleep(self.pause)
        self.pause = min(2 * self.pause, LAST_LOOK)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def open_in_use(path: str) -> BinaryIO:
    """Open a file of the folder so that it is not removed while it is read."""
    return cast(BinaryIO, ReadFile(open_shared(path)))


def write_whole(stream: BinaryIO, path: str, chunk_size: int = CHUNK_BYTES) -> None:
    """Copy a stream into a file that appears under its name only when it is complete."""
    temporary = contents.temporary_name(path, None)
    try:
        with storing():
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, 0o600)
        with open(handle, "wb", buffering=0) as file:
            while data := stream.read(chunk_size):
                view = memoryview(data)
                with storing():
                    while view:
                        view = view[file.write(view) :]
            with storing():
                os.fsync(handle)
        stream.close()  # a command that failed says so here
        with storing():
            os.replace(temporary, path)
    except BaseException:
        contents.remove(temporary)
        raise
