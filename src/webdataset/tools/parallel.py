"""Run a function in several threads or processes, with a bounded number of tasks, in order or as they finish."""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from webdataset.errors import WorkerError
from webdataset.loading.forks import leaving_garbage

if TYPE_CHECKING:  # imported where it is used: that takes 20 ms
    from concurrent.futures import Executor, Future, ProcessPoolExecutor

AHEAD = 2
"""Tasks that are queued per worker, so that none is idle."""

POLL_SECONDS = 0.5

T = TypeVar("T")
Task = tuple[Any, "Future[Any]"]


def submitted(
    executor: Executor,
    function: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    workers: int,
    ordered: bool = True,
    tick: Callable[[], object] = lambda: None,
) -> Iterator[Task]:
    """Yield each item with its finished future; an error of `items` itself is raised after the results before it.

    `tick` is called now and then while nothing is finished.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(2) as pool:
    ...     [(item, future.result()) for item, future in submitted(pool, str, [1, 2, 3], workers=2)]
    [(1, '1'), (2, '2'), (3, '3')]
    """
    pending: deque[Task] = deque()
    failure = None
    try:
        try:
            for item in items:
                pending.append((item, executor.submit(function, item)))
                while len(pending) > workers * (1 + AHEAD):
                    yield _next(pending, ordered, tick)
        except Exception as exn:
            failure = exn
        while pending:
            yield _next(pending, ordered, tick)
        if failure is not None:
            raise failure
    finally:
        for _, future in pending:
            future.cancel()


@contextlib.contextmanager
def process_pool(workers: int, make: Callable[[], Any]) -> Iterator[ProcessPoolExecutor]:
    """Start processes that end with this block; after an exception they are killed.

    Each process calls `make()` once; `call`, submitted to the pool, calls what it has returned.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    class Pool(ProcessPoolExecutor):
        """Its processes are forked when the first item is submitted."""

        def submit(self, function: Callable[..., T], /, *args: object, **options: object) -> Future[T]:
            with leaving_garbage():
                return super().submit(function, *args, **options)

    others = set(multiprocessing.active_children())
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)  # a fork takes 10 ms, a spawn 200
    pool = Pool(workers, mp_context=context, initializer=_begin_worker, initargs=(make,))
    try:
        yield pool
        pool.shutdown()
    except BaseException as error:
        for child in set(multiprocessing.active_children()) - others:
            child.kill()
        pool.shutdown(cancel_futures=True)  # without processes it ends at once, and leaves no thread
        if isinstance(error, BrokenProcessPool):
            hint = "run without -P to see the error; fewer processes need less memory"
            raise WorkerError("a worker process died: it crashed, exited or was killed", hint=hint) from None
        raise


def _next(pending: deque[Task], ordered: bool, tick: Callable[[], object]) -> Task:
    if not ordered:
        _await([future for _, future in pending], tick)
        first = next(n for n, (_, future) in enumerate(pending) if future.done())
        pending.rotate(-first)
        task = pending.popleft()
        pending.rotate(first)
        return task
    task = pending.popleft()
    _await([task[1]], tick)
    return task


def _await(futures: list[Future[Any]], tick: Callable[[], object]) -> None:
    """Wait until one is done, with timeouts: a signal just before a wait does not interrupt it."""
    from concurrent.futures import FIRST_COMPLETED, wait

    while not wait(futures, POLL_SECONDS, return_when=FIRST_COMPLETED).done:
        tick()


class SharedCounts:
    """Counts of samples and bytes to which this process and those that it starts add.

    >>> counts = SharedCounts()
    >>> counts.add(2, 100)
    >>> counts.samples, counts.bytes
    (2, 100)
    """

    def __init__(self) -> None:
        import multiprocessing

        self._counts = multiprocessing.Array("q", 2)

    def add(self, samples: int, size: int) -> None:
        """Count samples."""
        with self._counts.get_lock():
            self._counts[0] += samples
            self._counts[1] += size

    # read without the lock, which a process that was killed may hold
    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self._counts.get_obj()[0])

    @property
    def bytes(self) -> int:
        """The number of bytes."""
        return int(self._counts.get_obj()[1])


class _Process:
    """What this worker process has made."""

    function: Callable[[Any], Any]


def call(item: object) -> Any:
    """Call the function of this worker process."""
    return _Process.function(item)


def _begin_worker(make: Callable[[], Callable[[Any], Any]]) -> None:
    """Ignore Ctrl-C, which goes to the whole process group: the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _Process.function = staticmethod(make())
