"""Worker processes: torch's DataLoader, whose errors say which worker failed, where, and of what it died."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import wait
from typing import Any, Self

from webdataset.base.mailbox import Mailbox
from webdataset.base.stages import argument_names
from webdataset.base.stops import Thread
from webdataset.errors import MissingPackageError, WorkerError
from webdataset.storage.shell.guards import process_exists

from .forks import leaving_garbage
from .parcels import LostParcelError, Packing, can_share, forget_dead_workers

LOOK_SECONDS = 1.0
GRACE_SECONDS = 10.0
"""How long a worker has to end in order when its loader is gone; torch looks every five seconds."""


def process_loader(dataset: object, *, mailbox: Mailbox | None, **kw: Any) -> Any:
    """A DataLoader; errors of its workers are looked up in the mailbox, if there is one."""
    kind = _loader_class()
    if can_share():
        kw = {**kw, "collate_fn": Packing(kw["collate_fn"], dataset)}
    loader = kind(dataset, **kw)
    loader._mailbox = mailbox
    return loader


def loader_arguments() -> frozenset[str]:
    """The names of the arguments of torch's DataLoader; none without torch."""
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        return frozenset()
    return frozenset(argument_names(DataLoader.__init__)[1:])


@functools.cache
def _loader_class() -> Any:
    try:
        from torch.utils.data import DataLoader
    except ImportError as exn:
        hint = 'pip install torch, or use threads: WebLoader(..., workers="thread")'
        raise MissingPackageError("worker processes need torch's DataLoader", hint=hint) from exn

    class ProcessLoader(DataLoader):  # type: ignore[misc]
        """torch's DataLoader, with better errors."""

        _mailbox: Mailbox | None = None
        worker_init_fn: Callable[[int], object] | None

        def __iter__(self) -> Iterator[Any]:
            if self._mailbox is not None:
                self._mailbox.clear()
            if os.name == "posix":
                self.worker_init_fn = EndsWithLoader.of(self.worker_init_fn)
            with leaving_garbage():
                batches = super().__iter__()
            return _watched(batches, self._mailbox)

    return ProcessLoader


class EndsWithLoader:
    """What a worker process calls first: it then ends when the process that started it is gone.

    torch's workers look for that, too, but compare with the parent that they have when they have started: one that has
    lost it by then would wait forever.
    """

    def __init__(self, function: Callable[[int], object] | None) -> None:
        self._function = function
        self._main = os.getpid()

    @classmethod
    def of(cls, function: Callable[[int], object] | None) -> Self:
        """For workers of this process; whoever iterates may have been forked since the last pass."""
        return cls(function._function if isinstance(function, cls) else function)

    def __call__(self, worker: int) -> None:
        Thread(target=_follow, args=(self._main,), name="webdataset-parent", daemon=True).start()
        if self._function is not None:
            self._function(worker)


def _follow(main: int) -> None:
    parent = os.getppid()
    while os.getppid() == parent and process_exists(main):
        time.sleep(LOOK_SECONDS)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _watched(batches: Iterator[Any], mailbox: Mailbox | None) -> Iterator[Any]:
    try:
        yield from batches
    except Exception as exn:
        found = _died(exn, batches) or _raised(exn, mailbox)
        if found is None:
            raise
        try:
            # errors hold the frames that hold them, and with those the workers would stay
            exn.__traceback__ = exn.__cause__ = exn.__context__ = None
            raise found from None
        finally:
            del found, batches
    finally:
        forget_dead_workers()


def _raised(exn: Exception, mailbox: Mailbox | None) -> Exception | None:
    """The error as it was raised in the worker; torch makes a new one, which has lost its place."""
    found = re.match(r"Caught \w+ in DataLoader worker process (\d+)\.\n", str(exn.args[0] if exn.args else exn))
    return None if found is None or mailbox is None else mailbox.error(int(found[1]))


def _died(exn: Exception, batches: object) -> WorkerError | None:
    """Which worker died, and of what; torch tells its process id, and not always the signal."""
    workers = getattr(batches, "_workers", [])
    if isinstance(exn, LostParcelError):
        sentinels = [worker.sentinel for worker in workers]
        with contextlib.suppress(RuntimeError):  # torch's handler of SIGCHLD raises wherever the program is just then
            wait(sentinels, 5)  # its files are gone before it is
        ended = wait(sentinels, 0)
        dead = [(n, worker) for n, worker in enumerate(workers) if worker.sentinel in ended]
    else:
        found = re.match(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\)", str(exn))
        if found is None or not isinstance(exn, RuntimeError):
            return None
        pids = {int(pid) for pid in found[1].split(",")}
        dead = [(n, worker) for n, worker in enumerate(workers) if worker.pid in pids]
    for _, worker in dead:
        with contextlib.suppress(RuntimeError):
            worker.join(1)  # the exit code may come after the news
    ends = [f"worker {n} of {len(workers)} (pid {worker.pid}) {_end(worker.exitcode)}" for n, worker in dead]
    killed = any(worker.exitcode == -signal.SIGKILL for _, worker in dead)
    hint = "the system kills processes when memory runs out: smaller batches, buffers or fewer workers need less"
    return WorkerError(", ".join(ends) or str(exn), hint=hint if killed else "")


def _end(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"ended early with exit code {exitcode}"
    try:
        return f"was killed by {signal.Signals(-exitcode).name}"
    except ValueError:
        return f"was killed by signal {-exitcode}"
