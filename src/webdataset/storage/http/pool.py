"""Connections kept open for the next request to the same server, within blocks of `kept_alive`.

>>> with kept_alive():
...     pass  # requests in here use each other's connections; the last one out closes them
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .connections import Connection

MOST_PER_SERVER = 8
MOST_SECONDS = 30.0


class Pool:
    """Idle connections by server."""

    def __init__(self) -> None:
        self._reset()

    def forget(self) -> None:
        """Start empty, as a forked process must: the connections are its parent's, and the lock may be held."""
        inherited = [connection for pairs in self._idle.values() for _, connection in pairs]
        self._reset()
        for connection in inherited:
            connection.close()  # this process' descriptor only

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[Hashable, list[tuple[float, Connection]]] = defaultdict(list)
        self._holders = 0
        self._process = os.getpid()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep connections until the end of this block."""
        process = self._process
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            if process == self._process:
                self._leave()

    def take(self, server: Hashable) -> Connection | None:
        """A connection that can be used at once, or None."""
        while True:
            with self._lock:
                idle = self._idle.get(server)
                if not idle:
                    return None
                since, connection = idle.pop()
            if time.monotonic() - since < MOST_SECONDS and _is_quiet(connection.sock):
                return connection
            connection.close()

    def give(self, server: Hashable, connection: Connection) -> None:
        """Keep a connection whose last response was read to its end, or close it outside of `kept_alive`."""
        with self._lock:
            idle = self._idle[server]
            keep = self._holders > 0 and len(idle) < MOST_PER_SERVER
            if keep:
                idle.append((time.monotonic(), connection))
        if not keep:
            connection.close()

    def _leave(self) -> None:
        with self._lock:
            self._holders -= 1
            idle = [] if self._holders else [pair for pairs in self._idle.values() for pair in pairs]
            if not self._holders:
                self._idle.clear()
        for _, connection in idle:
            connection.close()


POOL = Pool()
kept_alive = POOL.held

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.forget)


def _is_quiet(sock: socket.socket | None) -> bool:
    """Whether there is nothing to read: neither the end of the connection nor an unexpected byte."""
    if sock is None:
        return False
    readable, _, _ = select.select([sock], [], [], 0) if sock.fileno() < 1024 else ([], [], [])
    return not readable
