"""Shards that are open for reading by number: the most recently used ones, each opened once for all threads."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

OPEN_SHARDS = 64


class OpenShards:
    """Shards by their numbers, as `open_shard(number)` opens them; a process that was forked opens its own."""

    def __init__(self, open_shard: Callable[[int], Any]) -> None:
        self._open_shard = open_shard
        self._inherited: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        self._readers: OrderedDict[int, Any] = OrderedDict()
        self._users: dict[int, int] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        # a dataset that is read by number is seldom closed
        self._finalizer = weakref.finalize(self, _close_own, self._readers, self._process)

    @contextlib.contextmanager
    def lease(self, shard: int) -> Iterator[Any]:
        """The reader of a shard, which stays open inside the block."""
        if self._process != os.getpid():
            self._inherited.append(self._readers)  # left alone: their connections are the other process's
            self._begin()
        with self._lock:
            reader = self._readers.get(shard)
            if reader is None:
                reader = self._readers[shard] = self._open_shard(shard)
            self._readers.move_to_end(shard)
            self._users[shard] = self._users.get(shard, 0) + 1
        try:
            yield reader
        finally:
            with self._lock:
                self._users[shard] -= 1
                self._close_idle()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            _close_own(self._readers, self._process)
            self._users.clear()

    def _close_idle(self) -> None:
        idle = [shard for shard in self._readers if not self._users.get(shard)]
        for shard in idle[: max(0, len(self._readers) - OPEN_SHARDS)]:
            self._users.pop(shard, None)
            self._readers.pop(shard).close()


def _close_own(readers: OrderedDict[int, Any], process: int) -> None:
    while readers and process == os.getpid():
        readers.popitem()[1].close()
