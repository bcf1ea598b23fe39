"""Waits that can be ended by another thread: whoever closes something does not wait for what it waits for.

>>> closing = Stop()
>>> with closing.in_force():
...     waiting = Stop()  # of a stream that is opened here
>>> closing.set()
>>> waiting.wait(60)
True
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    """Ends the waits that belong to it, at once and for good; it belongs itself to those in force where it is made."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._below: weakref.WeakSet[Stop] = weakref.WeakSet()
        self._lock = threading.Lock()
        for above in _in_force():
            above._take(self)

    @classmethod
    def apart(cls) -> Stop:
        """One that belongs to nobody, for what lives longer than the thread that happens to make it."""
        with _put_in_force(()):
            return cls()

    def set(self) -> None:
        self._event.set()
        with self._lock:
            below = list(self._below)
        for stop in below:
            stop.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleep for so long; true, and sooner, if it is stopped."""
        return self._event.wait(seconds)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """What this thread makes in this block belongs to this one, too."""
        with _put_in_force((*_in_force(), self)):
            yield

    def _take(self, stop: Stop) -> None:
        with self._lock:
            self._below.add(stop)
        if self.is_set():
            stop.set()


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
