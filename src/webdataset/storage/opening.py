"""Shards opened one after the other, the next remote one before the current one ends.

Opening a remote shard takes a few round trips. They happen while the last bytes of the shard before it are read, not
earlier: a connection that waits too long is closed by its server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from time import perf_counter
from typing import Any

from webdataset.base.reports import Report
from webdataset.base.stops import Stop, Thread
from webdataset.errors import WebDatasetError
from webdataset.handlers import Handler, ask, close

from .http.pool import kept_alive
from .urls import is_local, local_path

Shard = dict[str, Any]

AHEAD_BYTES = 4 << 20
"""The next shard is opened when this many bytes of the current one are left."""


class OpenedShards:
    """Iterator over `{"url", "stream"}`; `look_ahead()` may be called at any time to open the next one early."""

    def __init__(
        self, shards: Iterable[Shard], open_url: Callable[[str], Any], handler: Handler, report: Report
    ) -> None:
        self._shards = iter(shards)
        self._open_url = open_url
        self._handler = handler
        self._report = report
        self._current: Any = None
        self._next: _Opening | None = None
        self._number = -1
        self._closed = False
        self._connections = ExitStack()

    def __iter__(self) -> Iterator[Shard]:
        return self

    def __next__(self) -> Shard:
        if self._number < 0:
            self._connections.enter_context(kept_alive())
        while not self._closed:
            opening = self._next or self._start(in_background=False)
            self._next = None
            if opening is None:
                break
            began = perf_counter()
            try:
                self._current = opening.stream()
                self._report.spend("open", perf_counter() - began)
            except Exception as exn:
                if not ask(self._handler, _at(exn, opening.url, opening.number), self._report, "shards_skipped"):
                    break
                continue
            return opening.shard(self._current)
        self.close()
        raise StopIteration

    def look_ahead(self) -> None:
        """Open the next shard now if the current one is about to end."""
        if self._next is None and not self._closed:
            length = getattr(self._current, "length", None)
            if length is not None and length - self._current.tell() <= AHEAD_BYTES:
                self._next = self._start(in_background=True)

    def close(self) -> None:
        """Stop: a shard that was opened early is closed, also one that is still being opened."""
        self._closed = True
        opening, self._next = self._next, None
        if opening is not None:
            opening.abandon()
        self._connections.close()
        close(self._shards)

    def _start(self, *, in_background: bool) -> _Opening | None:
        shard = next(self._shards, None)
        if shard is None:
            return None
        self._number += 1
        return _Opening(shard, self._number, self._open_url, self._report, in_background=in_background)


class _Opening:
    """One shard being opened."""

    def __init__(
        self, item: Shard, number: int, open_url: Callable[[str], Any], report: Report, *, in_background: bool
    ) -> None:
        self.item = item
        self.url = item["url"]
        self.number = number
        self._open_url = open_url
        self._report = report
        self._stream: Any = None
        self._error: Exception | None = None
        self._abandoned = False
        self._stop = Stop()
        self._lock = threading.Lock()
        self._thread = None
        if in_background and not is_local(self.url):
            self._thread = Thread(target=self._open, name="webdataset-open", daemon=True)
            self._thread.start()

    def stream(self) -> Any:
        """The open stream; raises what opening it raised."""
        if self._thread is None:
            self._open()
        else:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._stream

    def shard(self, stream: object) -> Shard:
        """The item as the tar reader takes it."""
        opened = {
            "__number__": self.number,
            **self.item,
            "stream": stream,
        }  # a number that it has is kept
        path = local_path(self.url)
        if path is not None:
            opened.setdefault("local_path", path)
        return opened

    def abandon(self) -> None:
        """Close the stream, now or when it is open."""
        self._stop.set()  # it may be waiting for a server that is down
        with self._lock:
            self._abandoned = True
            stream = self._stream
        if stream is not None:
            stream.close()

    def _open(self) -> None:
        try:
            with self._report.in_force(), self._stop.in_force():
                stream = self._open_url(self.url)
        except Exception as exn:
            self._error = exn
            return
        with self._lock:
            self._stream = stream
            abandoned = self._abandoned
        if abandoned:
            stream.close()


def _at(exn: Exception, url: object, number: int) -> Exception:
    return exn.at(url=str(url), shard=number) if isinstance(exn, WebDatasetError) else exn
