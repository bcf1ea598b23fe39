"""A bounded pool of threads that gives its results in order.

>>> list(ordered_map(iter("abc"), str.upper, threads=2, ahead=4))
['A', 'B', 'C']
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from webdataset.handlers import close

from .stops import Stop, Thread

T = TypeVar("T")
R = TypeVar("R")

PATIENCE = 0.1
"""Seconds for which closing waits for threads; those that are still busy then end by themselves."""
LONG, OFTEN = 0.01, 3
"""Another thread is worth while after this many calls, one after the other, that waited for this many seconds."""


def ordered_map(
    tasks: Iterable[T],
    function: Callable[[T], R],
    *,
    threads: int,
    ahead: int,
    begin_with: int | None = None,
    name: str = "webdataset",
) -> Iterator[R]:
    """`map(function, tasks)` by several threads, in order.

    With `begin_with`, that many threads begin. Others join them if results are waited for while the calls themselves
    wait rather than compute: threads that compute only stand in each other's way.

    One thread reads the tasks, never more than `ahead` of those whose results were taken. An error, of the tasks or of
    the function, is raised at its place. Closing the iterator stops all at once: a thread that is in the middle of a
    call is waited for only shortly, and ends after it.
    """
    if threads < 1 or ahead < 1:
        raise ValueError(f"threads and ahead must be at least 1, got {threads} and {ahead}")
    threads = min(threads, ahead)
    return _results(_Pool(tasks, function, threads, ahead, threads if begin_with is None else begin_with, name))


class _Pool(Generic[T, R]):
    """The threads of one `ordered_map`, and the queues between them."""

    def __init__(  # noqa: PLR0917
        self,
        tasks: Iterable[T],
        function: Callable[[T], R],
        threads: int,
        ahead: int,
        begin_with: int,
        name: str,
    ) -> None:
        self.tasks = tasks
        self.function = function
        self.stopped = False
        self._stop = Stop()
        self.awaited = False
        """Whether a result is waited for."""
        self.tickets: SimpleQueue[None] = SimpleQueue()
        self.todo: SimpleQueue[tuple[int, T] | None] = SimpleQueue()
        self.done: SimpleQueue[tuple[int, Any]] = SimpleQueue()
        for _ in range(ahead):
            self.tickets.put(None)
        self._process = os.getpid()
        workers = [Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)]
        self._threads = [Thread(target=self._read, name=f"{name}-reader", daemon=True), *workers[:begin_with]]
        self._others = workers[begin_with:]
        """Threads that may begin later."""
        self._waits = 0

    def start(self) -> None:
        atexit.register(self.stop)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Tell all threads to end, and wait for those that do so soon."""
        self.stopped = True
        self._stop.set()  # nobody waits for a server any more
        atexit.unregister(self.stop)
        self.tickets.put(None)
        for _ in self._threads:
            self.todo.put(None)
        if os.getpid() != self._process:
            return  # a forked process has the queues, but not the threads
        until = time.monotonic() + PATIENCE
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def _read(self) -> None:
        with self._stop.in_force():
            self._read_tasks()

    def _read_tasks(self) -> None:
        number = 0
        source = None
        try:
            source = iter(self.tasks)
            while True:
                self.tickets.get()
                if self.stopped:
                    return
                task: Any = next(source, _END)
                if task is _END:
                    break
                self.todo.put((number, task))
                del task  # nothing is held while waiting
                number += 1
            self.done.put((number, _END))
        except BaseException as exn:
            self.done.put((number, _Failure(exn)))
        finally:
            close(source)

    def _work(self) -> None:
        while (numbered := self.todo.get()) is not None and not self.stopped:
            number, task = numbered
            began = time.monotonic(), time.thread_time()
            try:
                with self._stop.in_force():
                    result: Any = self.function(task)
            except BaseException as exn:
                result = _Failure(exn)
            late = self.awaited
            self.done.put((number, result))
            del numbered, task, result  # nothing is held while waiting
            if self._others:
                computed = time.thread_time() - began[1]
                waited = time.monotonic() - began[0] - computed
                self._waits = self._waits + 1 if late and waited > max(LONG, computed) else 0
                if self._waits >= OFTEN:
                    self._join_in()

    def _join_in(self) -> None:
        """Let one more thread work."""
        self._waits = 0
        with contextlib.suppress(IndexError):  # another thread was faster
            thread = self._others.pop()
            self._threads.append(thread)
            if not self.stopped:
                thread.start()


class _Failure:
    def __init__(self, exn: BaseException) -> None:
        self.exn = exn


_END: object = object()


def _results(pool: _Pool[T, R]) -> Iterator[R]:
    early: dict[int, Any] = {}
    number = 0
    pool.start()
    try:
        while True:
            pool.awaited = True
            while number not in early:
                at, result = pool.done.get()
                early[at] = result
            pool.awaited = False
            result = early.pop(number)
            number += 1
            if result is _END:
                return
            if isinstance(result, _Failure):
                try:
                    raise result.exn
                finally:
                    del result  # else the error would hold, and be held by, this frame
            pool.tickets.put(None)
            yield result
            del result
    finally:
        pool.stop()
