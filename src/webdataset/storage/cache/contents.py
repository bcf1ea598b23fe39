"""The contents of a cache folder: complete files with their facts, locks, and files being fetched.

Beside a file `NAME` there may be, hidden:

- `.NAME.facts`: where it came from, its size and checksum; a file that disagrees is not used
- `.NAME.lock`: held by the process that fetches it, for as long as that lives
- `.NAME.RANDOM.LENGTH.temp`: what it has fetched so far; LENGTH is the announced number of bytes, or 0

A file without facts was put there by somebody else: it is used, but neither counted nor evicted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator
from typing import NamedTuple

CHUNK_BYTES = 1 << 20
NO_LINKS = os.O_NOFOLLOW | os.O_CLOEXEC
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}(?:\.(\d+))?\.temp")
FACTS = re.compile(r"\.(.+)\.facts")
_OURS = (".lock", ".temp", ".facts")
EVICTION_LOCK = ".room"


class CannotStoreError(OSError):
    """The folder does not take the file: the disk is full or read-only, or another process holds on to it."""


@contextlib.contextmanager
def storing(what: str = "cannot write to the cache") -> Iterator[None]:
    """Raise errors of the folder as CannotStoreError, unlike errors of the source."""
    try:
        yield
    except CannotStoreError:
        raise
    except OSError as exn:
        raise CannotStoreError(exn.errno, f"{what}: {exn.strerror or exn}") from exn


def beside(path: str, ending: str) -> str:
    """The hidden name for something about a file.

    >>> beside("cache/a.tar", "lock")
    'cache/.a.tar.lock'
    """
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{ending}")


def temporary_name(path: str, length: int | None) -> str:
    """A new random name for a file being fetched."""
    return beside(path, f"{os.urandom(8).hex()}.{length or 0}.temp")


def announced_length(temporary: str) -> int | None:
    """How many bytes a file being fetched will have, if that is known.

    >>> announced_length("cache/.a.tar.0123456789abcdef.512.temp")
    512
    """
    found = TEMPORARY.fullmatch(os.path.basename(temporary))
    return int(found[2] or 0) or None if found else None


def temporaries(path: str) -> list[str]:
    """The temporary files of a file: one while it is fetched; others are leftovers."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            found = [entry.name for entry in entries if name_of_temporary(entry.name) == name]
    except OSError:
        return []
    return [os.path.join(folder, temporary) for temporary in found]


def remove(*paths: str) -> None:
    """Remove files that may be gone already."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


class Facts(NamedTuple):
    """Facts about a complete file; `validator` is the server's name for this version of the object."""

    size: int
    crc32: int
    url: str | None = None
    validator: str | None = None


UNREADABLE = Facts(size=-1, crc32=0)


def open_regular(path: str) -> int:
    """Open a regular file for reading; a FIFO or a device that somebody put in its place is an OSError, not a wait."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | NO_LINKS)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "this is no regular file", path)
    return handle


def read_facts(path: str) -> Facts | None:
    """The facts about a file, None if there are none; facts that cannot be read fit no file."""
    try:
        handle = open_regular(beside(path, "facts"))
    except FileNotFoundError:
        return None
    except OSError:
        return UNREADABLE
    with open(handle, "rb") as file:
        try:
            found = json.loads(file.read(1 << 16))
            return Facts(int(found["size"]), int(found["crc32"]), found.get("url"), found.get("validator"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return UNREADABLE


def write_facts(path: str, facts: Facts) -> None:
    """Keep the facts about a file that is about to appear."""
    temporary = temporary_name(beside(path, "facts"), None)
    with storing():
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, 0o600), "w") as file:
                json.dump(facts._asdict(), file)
            os.replace(temporary, beside(path, "facts"))
        except BaseException:
            remove(temporary)
            raise


def is_whole(path: str) -> bool:
    """Whether a regular file lies there that agrees with its facts, if it has any."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    facts = read_facts(path)
    return stat.S_ISREG(status.st_mode) and (facts is None or facts.size == status.st_size)


def touch(path: str) -> None:
    """Note that a file is used now, also where the system does not note reads."""
    now = time.time_ns()  # the system's own time stamps are some milliseconds coarse
    with contextlib.suppress(OSError):
        os.utime(path, ns=(now, now))


class Lock:
    """A lock that ends with its process, however that ends; its file is removed."""

    def __init__(self, path: str, handle: int) -> None:
        self.path = path
        self.handle = handle
        self.owner = os.getpid()

    def release(self) -> None:
        handle, self.handle = self.handle, -1
        if handle >= 0:
            if self.owner == os.getpid():
                remove(self.path)
                with contextlib.suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may hold on to a copy
            os.close(handle)


def lock_now(path: str) -> Lock | None:
    """The lock of this name, or None while another process has it."""
    while True:
        with storing("cannot lock in the cache"):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINKS, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            except OSError:
                os.close(handle)
                raise
        if _same_file(handle, path):
            return Lock(path, handle)
        os.close(handle)


class Entry(NamedTuple):
    """A file of a cache folder; `used` is when it was last used, in seconds since 1970."""

    path: str
    url: str | None
    size: int
    used: float
    complete: bool


def entries(folder: str) -> Iterator[Entry]:
    """The shards of a cache folder, complete or being fetched."""
    for path, status in files(folder):
        name = os.path.basename(path)
        if name_of_temporary(name) is not None:
            yield Entry(path, None, status.st_size, status.st_mtime, complete=False)
        elif not is_bookkeeping(path):
            facts = read_facts(path)
            whole = facts is None or facts.size == status.st_size
            yield Entry(path, facts.url if facts else None, status.st_size, status.st_mtime, complete=whole)


def problem_with(entry: Entry) -> str | None:
    """What is wrong with a file, its content compared with its facts; None if nothing is."""
    parent, name = os.path.split(entry.path)
    target = name_of_temporary(name)
    if target is not None:
        return None if _is_locked(os.path.join(parent, target)) else "it is incomplete, and nobody fetches it"
    facts = read_facts(entry.path)
    if facts is None:
        return None
    if facts is UNREADABLE:
        return "the facts about it cannot be read"
    if facts.size != entry.size:
        return f"it has {entry.size} bytes instead of {facts.size}"
    with contextlib.suppress(FileNotFoundError):  # another process evicted it just now
        return None if _checksum(entry.path) == facts.crc32 else "its checksum is wrong"
    return None


def is_in_use(path: str) -> bool:
    """Whether a process reads a file."""
    try:
        with open(open_regular(path), "rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exn:
        return isinstance(exn, BlockingIOError)
    return False


def remove_unused(path: str) -> bool:
    """Remove a file that nobody reads, and the facts about it."""
    try:
        with open(open_regular(path), "rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
    except OSError:
        return False
    remove(beside(path, "facts"))
    return True


def remove_leftovers(folder: str) -> list[str]:
    """Remove what dead processes have left: incomplete files, and facts about files that are gone."""
    removed = []
    for path, _ in files(folder):
        parent, name = os.path.split(path)
        target = name_of_temporary(name)
        facts = FACTS.fullmatch(target or name)
        about = os.path.join(parent, facts[1] if facts else target or "")
        if target is None and (facts is None or os.path.lexists(about)):
            continue
        with contextlib.suppress(CannotStoreError):
            lock = lock_now(beside(about, "lock"))
            if lock is None:
                continue
            if target is not None or not os.path.lexists(about):
                remove(path)
                removed.append(path)
            lock.release()
    return removed


def name_of_temporary(name: str) -> str | None:
    """The name that a file being fetched will get.

    >>> name_of_temporary(".a.tar.0123456789abcdef.512.temp")
    'a.tar'
    """
    found = TEMPORARY.fullmatch(name)
    return found and found[1]


def is_bookkeeping(path: str) -> bool:
    """Whether a file is not a shard but a lock, facts or a temporary file."""
    name = os.path.basename(path)
    return name == EVICTION_LOCK or (name.startswith(".") and name.endswith(_OURS))


def files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """All regular files below a folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield path, status


def _is_locked(path: str) -> bool:
    """Whether a process is fetching this file."""
    try:
        lock = lock_now(beside(path, "lock"))
    except CannotStoreError:
        return False
    if lock is not None:
        lock.release()
    return lock is None


def _checksum(path: str) -> int:
    found = 0
    with open(open_regular(path), "rb", buffering=0) as file:
        while data := file.read(CHUNK_BYTES):
            found = zlib.crc32(data, found)
    return found


def _same_file(handle: int, path: str) -> bool:
    """Whether the open lock file still has its name: its last holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
