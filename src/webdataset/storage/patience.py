"""How long a server in trouble is waited for: one policy for every reader and writer of remote objects.

    waiting = Waiting(Patience(seconds=90), url)
    while True:
        try:
            answer = ask()
        except OSError as exn:
            waiting.pause("the connection failed")  # longer each time; GaveUpError when the patience is used up
        else:
            waiting.renew()  # any success: the next trouble has the whole patience again
            break

Every pause can be ended by another thread, through the `Stop` that the wait was made under. Retries, waits and the
seconds spent in them are counted in the report in force; `outages` writes one line when a wait begins, and one when it
is over.
"""

from __future__ import annotations

import random
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from webdataset.reports import current_report
from webdataset.settings import settings

from .outages import OUTAGES

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""A server that is back is found within so many seconds."""
LONGEST_RETRY_AFTER = 120.0


class GaveUpError(Exception):
    """The patience, or the number of retries, is used up; says what the last try met, and what to look at."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@dataclass(frozen=True)
class Patience:
    """For how many seconds, and how many times in a row, to try again what failed.

    None is what the environment says: `WDS_PATIENCE` (90 seconds), `WDS_RETRIES` (any number).

    >>> Patience(seconds=5).limit, Patience(retries=2).most
    (5.0, 2)
    """

    seconds: float | None = None
    retries: int | None = None
    first_pause: float = FIRST_PAUSE

    @property
    def limit(self) -> float:
        """The seconds from the first failure in a row to the last try."""
        return settings.patience if self.seconds is None else float(self.seconds)

    @property
    def most(self) -> int | None:
        """The retries in a row, if there is a limit to them."""
        return settings.retries if self.retries is None else self.retries

    def pause_before(self, retry: int) -> float:
        """The seconds before the n-th retry in a row: twice as long each time, and never the same for two clients."""
        longest = min(LONGEST_PAUSE, self.first_pause * 2 ** min(retry - 1, 30))
        return random.uniform(longest / 2, longest)


class Stop:
    """Ends the waits that were made under it, also those of other threads, at once and for good.

    >>> outer = Stop()
    >>> with outer.in_force():
    ...     inner = Stop()
    >>> outer.set()
    >>> inner.is_set(), inner.wait(60)
    (True, True)
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._below: weakref.WeakSet[Stop] = weakref.WeakSet()
        self._lock = threading.Lock()
        above: Stop | None = getattr(_local, "stop", None)
        if above is not None:
            above._take(self)

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
        """What is made in this block, by this thread, is stopped with this one."""
        outer = getattr(_local, "stop", None)
        _local.stop = self
        try:
            yield
        finally:
            _local.stop = outer

    def _take(self, stop: Stop) -> None:
        with self._lock:
            self._below.add(stop)
        if self.is_set():
            stop.set()


class Waiting:
    """The tries of one stream, or of one request, at a server.

    `server` is what is down when one of several waits fails: waits for the same one share their lines in the log.
    """

    def __init__(
        self,
        patience: Patience,
        url: str,
        server: Hashable = None,
        *,
        stop: Stop | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.patience = patience
        self.url = url
        self.server = url if server is None else server
        self.stopped = Stop() if stop is None else stop
        self.total = 0
        """Retries in the whole life of the stream."""
        self.report = current_report()
        self._clock = clock
        self._failures = 0
        self._since = 0.0

    @property
    def failures(self) -> int:
        """How many tries have failed since the last success."""
        return self._failures

    def answered(self) -> None:
        """The server is back, which ends the outage; whether there is progress is another question."""
        OUTAGES.reached(self.server)
        if self._failures:
            OUTAGES.over(self, self._clock())

    def renew(self) -> None:
        """Something came: the next failure has the whole patience."""
        if self._failures:
            self.answered()
            self._failures = 0

    def pause(
        self, reason: str, retry_after: float = 0.0, *, most: int | None = None, hint: str = "", quiet: bool = False
    ) -> None:
        """Wait before the next try, longer each time, at least as long as the server asks to.

        GaveUpError, with the hint, when the patience is used up, or after `most` retries where more would not help.
        A `quiet` failure is not worth a line, as when a body was cut and will be resumed.
        """
        if self.stopped.is_set():
            self._stop()
        now = self._clock()
        if not self._failures:
            self._since = now
        self._failures += 1
        left = self._since + self.patience.limit - now
        allowed = [limit for limit in (self.patience.most, most) if limit is not None]
        if left <= 0 or (allowed and self._failures > min(allowed)):
            raise self._given_up(reason, hint, now)
        if not quiet:
            OUTAGES.begin(self, reason, self.patience.limit, now)
        _count(self, waits=int(self._failures == 1), retries=1)
        self.total += 1
        asked = min(retry_after, LONGEST_RETRY_AFTER)
        seconds = min(left, max(asked, self.patience.pause_before(self._failures)))
        stopped = self.stopped.wait(seconds)
        _count(self, wait_seconds=self._clock() - now)
        if stopped:
            self._stop()

    def close(self) -> None:
        """Nobody waits any longer."""
        OUTAGES.leave(self)

    def _stop(self) -> None:
        OUTAGES.leave(self)
        raise ValueError("I/O operation on closed file")

    def _given_up(self, reason: str, hint: str, now: float) -> GaveUpError:
        OUTAGES.leave(self)
        if self._failures == 1:
            return GaveUpError(reason, hint)
        times = f"{self._failures} times in a row"
        waited = now - self._since
        within = f" in {waited:.0f} s" if waited >= 1 else ""
        return GaveUpError(f"{reason}, {times}{within}", hint)


def _count(waiting: Waiting, **counts: float) -> None:
    """Waits of several threads may be counted in one report."""
    with _counting:
        for name, n in counts.items():
            waiting.report.count(name, n)


_local = threading.local()
_counting = threading.Lock()
