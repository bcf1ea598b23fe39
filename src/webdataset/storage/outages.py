"""The log of outages: one line when waiting for a server begins, and one when it is over.

However many streams wait for the same server, it is one outage, which is over when none of them waits any more.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable
from typing import Protocol

from webdataset.base.logs import Log
from webdataset.base.redact import redacted

log = Log("webdataset.storage")


class Waiter(Protocol):
    """A stream or request that waits for a server."""

    url: str
    server: Hashable


class _Outage:
    """One server that is down, and who waits for it."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.waiters: weakref.WeakSet[Waiter] = weakref.WeakSet()


class Outages:
    """The servers that this process waits for."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start empty, as a forked process must: it does not wait for what its parent waits for."""
        self._lock = threading.Lock()
        self._outages: dict[Hashable, _Outage] = {}
        self._reached: set[Hashable] = set()

    def begin(self, waiter: Waiter, reason: str, patience: float, now: float) -> None:
        """Add a waiter; the first one is logged."""
        with self._lock:
            outage = self._outages.get(waiter.server)
            is_first = outage is None or not outage.waiters
            if outage is None or is_first:
                outage = self._outages[waiter.server] = _Outage(now)
            outage.waiters.add(waiter)
        if is_first:
            log.warning("%s: %s; trying again for up to %g s", redacted(waiter.url), reason, patience)

    def over(self, waiter: Waiter, now: float) -> None:
        """Remove a waiter that got through; the last one is logged."""
        since = self._remove(waiter)
        if since is not None:
            log.warning("%s: answers again after %.1f s", redacted(waiter.url), now - since)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter that has given up or was closed."""
        self._remove(waiter)

    def reached(self, server: Hashable) -> None:
        """Note that a server has answered: it exists."""
        self._reached.add(server)

    def was_reached(self, server: Hashable) -> bool:
        return server in self._reached

    def _remove(self, waiter: Waiter) -> float | None:
        """Remove a waiter; returns when the outage began if it is over now."""
        with self._lock:
            outage = self._outages.get(waiter.server)
            if outage is None or waiter not in outage.waiters:
                return None
            outage.waiters.discard(waiter)
            if outage.waiters:
                return None
            del self._outages[waiter.server]
            return outage.since


OUTAGES = Outages()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OUTAGES.forget)
