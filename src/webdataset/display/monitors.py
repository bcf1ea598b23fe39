"""What a running loader does, for others to see: counts in a small file that `wl view` and notebooks read.

A loader that is watched leaves a file in a folder of its user, twice a second, and removes it at the end. Nothing
listens on a port, and a loader that is not watched pays nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from webdataset.base import private
from webdataset.base.settings import settings
from webdataset.base.stops import Stop, Thread
from webdataset.base.units import counted, size_text
from webdataset.base.workers import pytorch_worker_info
from webdataset.errors import SecurityError
from webdataset.handlers import close

from .markup import table

INTERVAL = 0.5
HISTORY = 240
FORGOTTEN = 30.0
"""Seconds after which a file that nobody has written any more is that of a process which is gone."""
MOST_FILES = 256
MOST_BYTES = 1 << 20


class LoaderMonitor:
    """Counts the items of a loader and the time that is spent waiting for them, and publishes both.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, LoaderMonitor(dict, folder=folder) as monitor:
    ...     items = list(monitor.watched(iter([[1, 2], [3, 4]])))
    ...     seen = monitor.snapshot()
    ...     seen["items"], seen["samples"], len(os.listdir(folder))
    (2, 4, 1)
    """

    def __init__(self, stats: Callable[[], dict[str, Any]], *, title: str = "", folder: str | None = None) -> None:
        self._stats = stats
        self._title = title
        self._begun = time.time()
        self._items = self._samples = self._passes = 0
        self._waited = self._used = 0.0
        self._history: deque[tuple[float, float, float]] = deque(maxlen=HISTORY)
        self._before = (time.monotonic(), 0, 0.0)
        self._running = False
        self._ended = Stop.apart()
        place, self._is_shared = _own_folder(folder)
        self.path = os.path.join(place, f"{socket.gethostname()}-{os.getpid()}-{id(self):x}.json")
        """Where the counts are published."""
        self._publish()
        self._thread = Thread(target=_publish_regularly, args=(weakref.ref(self), self._ended), daemon=True)
        self._thread.start()
        weakref.finalize(self, _remove, self.path, os.getpid(), self._ended)

    def watched(self, items: Iterator[Any]) -> Iterator[Any]:
        """The items, counted."""
        self._passes += 1
        self._running = True
        clock = time.perf_counter
        try:
            while True:
                asked = clock()
                try:
                    item = next(items)
                except StopIteration:
                    return
                given = clock()
                self._waited += given - asked
                self._items += 1
                self._samples += _samples_in(item)
                yield item
                self._used += clock() - given
        finally:
            self._running = False
            close(items)
            self._publish()

    def snapshot(self) -> dict[str, Any]:
        """What is known now, as plain data."""
        rank, world, _, _ = pytorch_worker_info()
        with contextlib.suppress(Exception):  # it reads what other threads and processes are writing
            self._latest = self._stats()
        busy = self._waited + self._used
        return {
            "title": self._title,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "rank": rank,
            "world": world,
            "begun": self._begun,
            "time": time.time(),
            "state": "running" if self._running else "idle",
            "passes": self._passes,
            "items": self._items,
            "samples": self._samples,
            "waited": round(self._waited, 3),
            "waiting": round(self._waited / busy, 4) if busy else 0.0,
            "history": [list(entry) for entry in self._history],
            "stats": getattr(self, "_latest", {}),
        }

    def stop(self) -> None:
        """Publish no more, and remove the file."""
        _remove(self.path, os.getpid(), self._ended)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> LoaderMonitor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in _rows(self.snapshot()))

    def _repr_html_(self) -> str:
        return table(_rows(self.snapshot()), title=self._title)

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()  # a copy of the loader in another process is not watched

    def _publish(self) -> None:
        if self._ended.is_set():
            return
        now, items, waited = time.monotonic(), self._items, self._waited
        before, items_before, waited_before = self._before
        if now - before >= INTERVAL:
            seconds = now - before
            entry = (round(time.time(), 2), round((items - items_before) / seconds, 3),
                     round(min(1.0, (waited - waited_before) / seconds), 4))  # fmt: skip
            self._history.append(entry)
            self._before = (now, items, waited)
        try:
            data = json.dumps(self.snapshot()).encode()
            private.write_private(*os.path.split(self.path), data, 0o600, make=False, foreign=self._is_shared)
        except (OSError, SecurityError):
            return  # a full disk, or another user, does not stop the training


def monitored(folder: str | None = None) -> list[dict[str, Any]]:
    """The loaders that are watched now, of this user on this machine, or of all that publish in a folder."""
    try:
        place, is_shared = _own_folder(folder)
        names = sorted(name for name in os.listdir(place) if name.endswith(".json"))[:MOST_FILES]
    except (OSError, SecurityError):
        return []
    found = []
    for name in names:
        try:
            with (
                private.opened(place, name, os.O_RDONLY, foreign=is_shared) as number,
                open(number, "rb", closefd=False) as file,
            ):
                seen = json.loads(file.read(MOST_BYTES))
        except (OSError, ValueError):  # a SecurityError is one
            continue  # it has just ended
        if isinstance(seen, dict) and isinstance(seen.get("time"), (int, float)):
            seen["age"] = round(time.time() - seen["time"], 2)
            if seen["age"] < FORGOTTEN:
                found.append(seen)
    return sorted(found, key=lambda seen: (str(seen.get("host")), seen.get("rank") or 0, seen.get("pid") or 0))


def _own_folder(folder: str | None) -> tuple[str, bool]:
    """The folder of the files, and whether others may publish there, too: the usual one is this user's alone."""
    path = folder or settings.monitor_dir
    if folder is None and settings.monitor_is_default:
        private.make_private(path)
        return path, False
    os.makedirs(path, mode=0o700, exist_ok=True)
    return path, True


def _publish_regularly(monitor: weakref.ref[LoaderMonitor], ended: Stop) -> None:
    while not ended.wait(INTERVAL):
        found = monitor()
        if found is None:
            return
        found._publish()
        del found


def _remove(path: str, process: int, ended: Stop) -> None:
    ended.set()
    if process == os.getpid():  # not a process that was forked from it
        with contextlib.suppress(OSError):
            os.unlink(path)


def _samples_in(item: object) -> int:
    """How many samples an item holds, as far as it shows: a batch is columns of the same length."""
    if isinstance(item, dict):
        key = item.get("__key__")
        return len(key) if isinstance(key, (list, tuple)) else 1
    if isinstance(item, list) and item and isinstance(item[0], (tuple, dict)):
        return len(item)
    columns = item if isinstance(item, (tuple, list)) else (item,)
    lengths = {_length_of(column) for column in columns}
    if len(lengths) == 1 and (length := lengths.pop()) is not None:
        return length
    return len(item) if isinstance(item, list) else 1


def _length_of(column: object) -> int | None:
    shape = getattr(column, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(column) if isinstance(column, (list, tuple)) else None


def _rows(seen: dict[str, Any]) -> list[tuple[str, str]]:
    seconds = max(seen["time"] - seen["begun"], 1e-9)
    stats = seen["stats"]
    rows = [
        ("loader", f"{seen['state']}, process {seen['pid']} on {seen['host']}, rank {seen['rank']} of {seen['world']}"),
        ("given", f"{counted(seen['items'], 'item')}, {counted(seen['samples'], 'sample')}"),
        ("rate", f"{seen['items'] / seconds:,.1f} items/s"),
        ("waiting", f"{seen['waiting']:.0%} of the time, {seen['waited']:,.1f} s"),
    ]
    if stats.get("bytes_read"):
        rows.append(("read", f"{size_text(stats['bytes_read'])}, {counted(stats.get('shards_read', 0), 'shard')}"))
    for reason, n in list(stats.get("reasons", {}).items())[:5]:
        rows.append(("left out", f"{n:,} x {reason}"))
    return rows


def _nothing() -> None:
    """What a monitor is in another process."""
