"""Work done by several threads or processes at once, a bounded amount at a time, in order or as it comes."""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from webdataset.errors import WorkerError

if TYPE_CHECKING:  # else imported by those who use them: that takes 20 ms
    from concurrent.futures import Executor, Future, ProcessPoolExecutor

AHEAD = 2
"""Tasks that wait for each worker, so that none has to wait for us."""

LOOK_UP = 0.5

Task = tuple[Any, "Future[Any]"]


def submitted(
    executor: Executor, function: Callable[[Any], Any], items: Iterable[Any], *, workers: int, ordered: bool = True
) -> Iterator[Task]:
    """Pairs of an item and its future, which is done; an error of the items themselves comes after those before it.

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
                    yield _next(pending, ordered)
        except Exception as exn:
            failure = exn
        while pending:
            yield _next(pending, ordered)
        if failure is not None:
            raise failure
    finally:
        for _, future in pending:
            future.cancel()


@contextlib.contextmanager
def process_pool(workers: int, initializer: Callable[..., None], *arguments: Any) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this block, at once if it ends with an exception."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    others = set(multiprocessing.active_children())
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else None)  # forks need 10 ms, spawns 200
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin_worker, initargs=(initializer, *arguments)
    )
    try:
        yield pool
        pool.shutdown()
    except BaseException as error:
        for child in set(multiprocessing.active_children()) - others:
            child.kill()
        pool.shutdown(cancel_futures=True)  # without its processes it ends at once, and leaves no thread for the exit
        if isinstance(error, BrokenProcessPool):
            hint = "without -P the error shows itself; with fewer processes less memory is needed"
            raise WorkerError("a worker process died: it crashed, ended itself or was killed", hint=hint) from None
        raise


def _next(pending: deque[Task], ordered: bool) -> Task:
    if not ordered:
        _await([future for _, future in pending])
        first = next(n for n, (_, future) in enumerate(pending) if future.done())
        pending.rotate(-first)
        task = pending.popleft()
        pending.rotate(first)
        return task
    task = pending.popleft()
    _await([task[1]])
    return task


def _await(futures: list[Future[Any]]) -> None:
    """Wait until one is done, looking up now and then: a signal that comes just before a wait does not end it."""
    from concurrent.futures import FIRST_COMPLETED, wait

    while not wait(futures, LOOK_UP, return_when=FIRST_COMPLETED).done:
        pass


def _begin_worker(initializer: Callable[..., None], *arguments: Any) -> None:
    """Ctrl-C goes to the whole group of processes; the parent decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    initializer(*arguments)
