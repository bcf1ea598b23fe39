"""Eviction from a cache folder: the least recently used files go first, files in use stay."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator

from .contents import (
    EVICTION_LOCK,
    NO_LINKS,
    CannotStoreError,
    announced_length,
    beside,
    files,
    is_bookkeeping,
    remove_unused,
    storing,
)


class Evictor:
    """Keeps a folder within `size` bytes, give or take one file; without a limit if that is not positive."""

    def __init__(self, folder: str, size: int) -> None:
        self.folder = folder
        self.size = size

    @contextlib.contextmanager
    def reserve(self, length: int | None) -> Iterator[None]:
        """Make room for a file of that many bytes, which is created inside the block."""
        if self.size <= 0:
            yield
            return
        with eviction_lock(self.folder):
            self._check(evict(self.folder, self.size - (length or 0))[0])
            yield

    def check(self, written: int) -> None:
        """Make room for a file that has grown to more bytes than were announced; CannotStoreError if there is none."""
        if self.size > 0:
            with eviction_lock(self.folder):
                self._check(evict(self.folder, self.size)[0] - written)

    def trim(self, newest: str) -> None:
        """Get back to the limit after a file was added."""
        if self.size > 0:
            with contextlib.suppress(CannotStoreError), eviction_lock(self.folder):
                evict(self.folder, self.size, keep=newest)

    def _check(self, total: int) -> None:
        if total > self.size:
            raise CannotStoreError(None, f"the shards in use take up its {self.size} bytes already")


def evict(
    folder: str, size: int, *, keep: str | None = None, keyfn: Callable[[str], float] | None = None
) -> tuple[int, list[str]]:
    """Remove the least recently used files until the rest is at most `size` bytes.

    Returns how many bytes are left, and the removed paths. Files in use stay, and files without facts, unless
    `keyfn` returns the age of any file.
    """
    found = {path: (_reserved(path, status), status.st_mtime) for path, status in files(folder)}
    names = {path for path in found if keyfn is not None or beside(path, "facts") in found}
    total = sum(bytes_ for path, (bytes_, _) in found.items() if path in names or path.endswith(".temp"))
    removed: list[str] = []

    def age(path: str) -> float:
        try:
            return found[path][1] if keyfn is None else keyfn(path)
        except OSError:
            return 0.0  # another process removed it meanwhile

    for path in sorted((path for path in names if path != keep and not is_bookkeeping(path)), key=age):
        if total <= size:
            break
        if remove_unused(path):
            total -= found[path][0]
            removed.append(path)
    return total, removed


@contextlib.contextmanager
def eviction_lock(folder: str) -> Iterator[None]:
    """Held for moments only, while files are removed and space is reserved."""
    with storing("cannot lock in the cache"):
        handle = os.open(os.path.join(folder, EVICTION_LOCK), os.O_RDWR | os.O_CREAT | NO_LINKS, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _reserved(path: str, status: os.stat_result) -> int:
    """The bytes a file has or will have."""
    return max(status.st_size, announced_length(path) or 0)
