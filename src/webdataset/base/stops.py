"""Waits that another thread ends, and that Ctrl-C cannot break.

Whoever closes something does not wait for what it waits for:

>>> closing = Stop()
>>> with closing.in_force():
...     waiting = Stop()  # of a stream that is opened here
>>> closing.set()
>>> waiting.wait(60)
True

An interrupt is raised between any two steps of the main thread's Python code, and `Event`, `Condition`, `Semaphore`
and `Queue` are Python code: raised in them, it can leave their lock locked, and whoever closes things waits for it for
ever. `with lock:` on a `Lock` or `RLock` itself is safe: the interpreter takes the lock and enters the block in one
step. (Not in Python 3.14, which leaves a small chance there: https://github.com/python/cpython/issues/148874.)
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

T = TypeVar("T")


class Stop:
    """Ends the waits that belong to it, at once and for good; it belongs itself to those in force where it is made.

    It has no lock, so that an interrupt inside of it keeps nobody from setting it afterwards.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._changed = Bell()
        self._below: set[weakref.ref[Stop]] = set()
        for above in _in_force():
            above._take(self)

    @classmethod
    def apart(cls) -> Stop:
        """One that belongs to nobody, for what lives longer than the thread that happens to make it."""
        with _put_in_force(()):
            return cls()

    def set(self) -> None:
        self._is_set = True
        self._changed.ring()
        for below in self._below.copy():
            if (stop := below()) is not None:
                stop.set()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float | None) -> bool:
        """Sleep for so long, or without end; true, and sooner, if it is stopped."""
        return self._changed.wait(self.is_set, seconds)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """What this thread makes in this block belongs to this one, too."""
        with _put_in_force((*_in_force(), self)):
            yield

    def _take(self, stop: Stop) -> None:
        self._below.add(weakref.ref(stop, self._below.discard))
        if self.is_set():
            stop.set()


class Thread(threading.Thread):
    """A thread whose start waits until it runs, as that of any thread, but not where an interrupt can break it."""

    def __init__(
        self,
        *,
        target: Callable[..., object],
        args: tuple[object, ...] = (),
        name: str | None = None,
        daemon: bool | None = None,
    ) -> None:
        super().__init__(target=target, args=args, name=name, daemon=daemon)
        self._started = _Begun()  # the name is private, but the same since Python 3.3


class _Begun(threading.Event):
    """An event without the lock of one."""

    def __init__(self) -> None:
        super().__init__()
        self._stop = Stop.apart()

    def set(self) -> None:
        self._stop.set()

    def is_set(self) -> bool:
        return self._stop.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._stop.wait(timeout)


class Bell:
    """Rung after a change, it makes those who wait for it look again.

    >>> done, bell = [], Bell()
    >>> thread = threading.Thread(target=lambda: (done.append("it"), bell.ring()))
    >>> thread.start()
    >>> bell.wait(lambda: done)
    ['it']
    >>> thread.join()
    """

    def __init__(self) -> None:
        self._asleep: set[threading.Lock] = set()  # a lock for each wait: an interrupt can break no other one

    def ring(self) -> None:
        """Say that something has changed; from any thread, a signal handler or a finalizer, with or without a lock."""
        for sleep in self._asleep.copy():
            with suppress(RuntimeError):  # it was ended already
                sleep.release()

    def wait(self, look: Callable[[], T], seconds: float | None = None) -> T:
        """What `look()` returns, as soon as that is true or `seconds` are over; no lock may be held meanwhile."""
        if (found := look()) or (seconds is not None and seconds <= 0):
            return found
        end = None if seconds is None else time.monotonic() + seconds
        sleep = threading.Lock()
        self._asleep.add(sleep)
        try:
            while True:
                sleep.acquire(blocking=False)  # from here on a ring ends the sleep
                if found := look():
                    return found
                if not sleep.acquire(timeout=-1 if end is None else max(end - time.monotonic(), 0)):
                    return look()
        finally:
            self._asleep.discard(sleep)


def _in_force() -> tuple[Stop, ...]:
    return getattr(_local, "stops", ())


@contextmanager
def _put_in_force(stops: tuple[Stop, ...]) -> Iterator[None]:
    outer = _in_force()
    _local.stops = stops
    try:
        yield
    finally:
        _local.stops = outer


_local = threading.local()
