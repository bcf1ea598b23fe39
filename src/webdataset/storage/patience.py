"""Retries: how long to wait for a server that is down, one policy for all readers and writers of remote objects.

    retries = RetryState(Patience(seconds=90), url)
    while True:
        try:
            response = send()
        except OSError as exn:
            retries.pause("the connection failed")  # longer each time; RetriesExhaustedError in the end
        else:
            retries.renew()  # any success: the next failure has the whole patience again
            break

Every pause can be ended by another thread, through the `Stop` that the wait was made under. Retries, waits and the
seconds spent in them are counted in the report in force; `outages` writes one line when a wait begins, and one when it
is over.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from webdataset.base.reports import current_report
from webdataset.base.settings import settings
from webdataset.base.stops import Stop

from .outages import OUTAGES

FIRST_PAUSE = 0.1
SHORTEST_PAUSE = 0.001
LONGEST_PAUSE = 5.0
"""A server that is back is noticed within that many seconds."""
LONGEST_RETRY_AFTER = 120.0
LONGER = "WDS_PATIENCE, or the storage option patience, says how long a server is waited for"


class RetriesExhaustedError(Exception):
    """The patience, or the number of retries, is used up; has the reason of the last failure, its status and a hint."""

    def __init__(self, reason: str, hint: str = "", status: int | None = None) -> None:
        super().__init__(reason)
        self.hint = hint
        self.status = status


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


class RetryState:
    """The tries of one stream, or of one request, at a server.

    `server` identifies what is down: waits for the same server share their lines in the log.
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
        """The server is back, which ends the outage; that is not progress yet."""
        OUTAGES.reached(self.server)
        if self._failures:
            OUTAGES.over(self, self._clock())

    def renew(self) -> None:
        """Note progress: the next failure has the whole patience."""
        if self._failures:
            self.answered()
            self._failures = 0

    def pause(
        self,
        reason: str,
        retry_after: float = 0.0,
        *,
        status: int | None = None,
        most: int | None = None,
        hint: str = "",
        quiet: bool = False,
    ) -> None:
        """Wait before the next try, longer each time, at least as long as the server asks to.

        RetriesExhaustedError, with the status and the hint, when the patience is used up, or after `most` retries.
        A `quiet` failure is not logged, as when a body was cut and will be resumed.
        """
        if self.stopped.is_set():
            self._sleep(0)  # raises, without a line in the log
        now = self._clock()
        self._since = self._since if self._failures else now
        self._failures += 1
        left = self._since + self.patience.limit - now
        if left < SHORTEST_PAUSE:
            raise self._exhausted(reason, hint or (LONGER if self._failures > 1 else ""), status, now)
        if self._failures > min((n for n in (self.patience.most, most) if n is not None), default=self._failures):
            raise self._exhausted(reason, hint, status, now)
        if not quiet:
            OUTAGES.begin(self, reason, self.patience.limit, now)
        self.total += 1
        _count(self, waits=int(self._failures == 1), retries=1)
        asked = min(retry_after, LONGEST_RETRY_AFTER)
        self._sleep(min(left, max(asked, self.patience.pause_before(self._failures))))

    def check_open(self) -> None:
        """Raise if another thread has closed the stream meanwhile."""
        if self.stopped.is_set():
            raise ValueError("I/O operation on closed file")

    def close(self) -> None:
        """Stop waiting."""
        OUTAGES.leave(self)

    def _sleep(self, seconds: float) -> None:
        began = self._clock()
        try:
            if self.stopped.wait(seconds):
                raise ValueError("I/O operation on closed file")
        except BaseException:  # Ctrl-C, too
            OUTAGES.leave(self)
            raise
        finally:
            _count(self, wait_seconds=self._clock() - began)

    def _exhausted(self, reason: str, hint: str, status: int | None, now: float) -> RetriesExhaustedError:
        OUTAGES.leave(self)
        waited = now - self._since
        times = f", {self._failures} times in a row" if self._failures > 1 else ""
        within = f" in {waited:.0f} s" if times and waited >= 1 else ""
        return RetriesExhaustedError(reason + times + within, hint, status)


def _count(state: RetryState, **counts: float) -> None:
    """Waits of several threads may be counted in one report."""
    with _counting:
        for name, n in counts.items():
            state.report.count(name, n)


_counting = threading.Lock()
