"""File locks between processes; the system gives them back when a process ends, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import IO, Any


@contextmanager
def locked(file: IO[Any], *, wait: bool) -> Iterator[bool]:
    """Whether the lock was got; always, if it is worth waiting for or the system has no locks."""
    fcntl = _fcntl()
    if fcntl is None:
        yield True
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _fcntl() -> ModuleType | None:
    try:
        import fcntl
    except ImportError:  # Windows: the lines of one process do not mix, those of several may
        return None
    return fcntl
