"""A folder of complete files that many processes fill: each file is fetched once, and the oldest make room.

- A file appears under its name only when it is complete: it is written under a random name and renamed.
- One process fetches, under a lock beside the file; a lock goes with its process, however that ends.
- Leftovers of a process that was killed are removed by the next one that fetches the same file.
- A file that is open for reading is not removed to make room.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from webdataset.errors import SecurityError

LOCK_SECONDS = 3600.0
LOOK_SECONDS = 0.02
CHUNK_BYTES = 1 << 20

Fetch = Callable[[], Any]
Check = Callable[[str], None]


class CannotStoreError(OSError):
    """The folder does not take the file: the disk is full or read-only, or another process holds on to it."""


class Folder:
    """The files of one folder, at most `size` bytes in all if that is positive."""

    def __init__(self, path: str, size: int = -1, lock_seconds: float = LOCK_SECONDS) -> None:
        self.path = path
        self.size = size
        self.lock_seconds = lock_seconds

    def path_of(self, name: str) -> str:
        """Where a file of this name lies; a name that leads out of the folder is refused."""
        path = os.path.normpath(os.path.join(self.path, name))
        inside = os.path.join(os.path.normpath(self.path), "")
        if "\0" in name or not path.startswith(inside) or path == inside:
            raise SecurityError(f"the cache name {name!r} leads out of the cache folder")
        return path

    def get(self, name: str, fetch: Fetch, check: Check) -> str:
        """The path of the complete file, fetched now if it is not there or not what it should be.

        `fetch()` opens the source; `check(path)` raises if a file is not what it should be.
        """
        path = self.path_of(name)
        if _is_good(path, check):
            return path
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as exn:
            raise CannotStoreError(exn.errno, f"cannot make the cache folder: {exn.strerror}") from exn
        with _locked(_beside(path, "lock"), self.lock_seconds):
            if _is_good(path, check):
                return path
            _remove(*glob.glob(glob.escape(_beside(path, "")) + "*.temp"))
            _store(path, fetch, check)
        if self.size > 0:
            make_room(self.path, self.size, keep=path)
        return path


def open_in_use(path: str) -> BinaryIO:
    """Open a file of the folder so that it is not removed while it is read."""
    stream = open(path, "rb")  # noqa: SIM115 - the caller closes it
    with contextlib.suppress(OSError):  # some network file systems have no locks
        fcntl.flock(stream.fileno(), fcntl.LOCK_SH)
    return stream


def make_room(
    folder: str, size: int, *, keep: str | None = None, keyfn: Callable[[str], float] = os.path.getctime
) -> list[str]:
    """Remove the least recently used files until the rest is at most `size` bytes; returns what was removed."""
    found = list(_files(folder))
    total = sum(bytes_ for _, bytes_ in found)
    removed: list[str] = []
    if total <= size:
        return removed
    for path in sorted((path for path, _ in found if path != keep and not _is_ours(path)), key=_or_zero(keyfn)):
        if total <= size:
            break
        gone = _remove_unused(path)
        if gone is not None:
            total -= gone
            removed.append(path)
    return removed


def write_whole(stream: Any, path: str, check: Check | None = None, chunk_size: int = CHUNK_BYTES) -> None:
    """Copy a stream into a file that appears under its name only when it is complete and passes the check."""
    temporary = _beside(path, f"{os.urandom(8).hex()}.temp")
    try:
        _copy(stream, temporary, chunk_size)
        stream.close()  # a command that failed says so here
        if check is not None:
            check(temporary)
        with _storing():
            os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _store(path: str, fetch: Fetch, check: Check) -> None:
    stream = fetch()
    try:
        write_whole(stream, path, check)
    finally:
        with contextlib.suppress(Exception):
            stream.close()


def _copy(stream: Any, path: str, chunk_size: int) -> None:
    """Errors of the source stay what they are; errors of the folder are CannotStoreError."""
    with _storing():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data := stream.read(chunk_size):
            view = memoryview(data)
            with _storing():
                while view:
                    view = view[os.write(handle, view) :]
        with _storing():
            os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except OSError as exn:
        raise CannotStoreError(exn.errno, f"cannot write to the cache: {exn.strerror}") from exn


@contextlib.contextmanager
def _locked(path: str, seconds: float) -> Iterator[None]:
    """Hold the lock of this name; the file that carries it is gone afterwards."""
    handle = _lock(path, time.monotonic() + seconds)
    try:
        yield
    finally:
        _remove(path)
        os.close(handle)


def _lock(path: str, deadline: float) -> int:
    while True:
        with _storing():
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(handle, path):
                return handle
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(handle)
                raise CannotStoreError(None, "another process has been fetching the shard for too long") from None
            time.sleep(LOOK_SECONDS)
        except OSError as exn:
            os.close(handle)
            raise CannotStoreError(exn.errno, f"cannot lock in the cache: {exn.strerror}") from exn
        os.close(handle)


def _same_file(handle: int, path: str) -> bool:
    """Whether the lock is still the one that others will find: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _is_good(path: str, check: Check) -> bool:
    """A whole file lies there, and no link to elsewhere; being asked for counts as use."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        check(path)
        os.utime(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        return os.access(path, os.R_OK)  # a folder of somebody else
    except Exception:
        return False
    return True


def _beside(path: str, ending: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


def _is_ours(path: str) -> bool:
    """A lock, or a file on its way in."""
    name = os.path.basename(path)
    return name.startswith(".") and name.endswith((".lock", ".temp"))


def _files(folder: str) -> Iterator[tuple[str, int]]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield path, status.st_size


def _remove_unused(path: str) -> int | None:
    """Remove a file that nobody reads, and say how many bytes that freed."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(file.fileno()).st_size
            os.unlink(path)
            return size
    except OSError:
        return None


def _remove(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _or_zero(keyfn: Callable[[str], float]) -> Callable[[str], float]:
    def key(path: str) -> float:
        try:
            return keyfn(path)
        except OSError:
            return 0.0  # another process removed it meanwhile

    return key
