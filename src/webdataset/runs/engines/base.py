"""What an engine is, and what the engines with futures have in common."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from webdataset.base.settings import settings
from webdataset.errors import WebDatasetError
from webdataset.runs.crew import Hand, do_items, ended
from webdataset.runs.options import TaskOptions
from webdataset.runs.performing import RunCommand
from webdataset.runs.plans import read_plan
from webdataset.runs.records import AttemptRecord
from webdataset.runs.runs import Submission

MOST_QUEUED = 10_000
"""Tasks that wait in a cluster's queue; more are submitted when some are done."""


NOT_OURS = "the records of this run were not written by this package"

TURNS, MOST_SHARDS = 16, 20
"""Tasks that each worker does at least, if there are enough shards, so that all end at about the same time; and the
most shards of a task, unless the user says how many."""


class EngineError(WebDatasetError):
    """An engine that does not answer, or refuses what it was given."""


def refused(cluster: str, address: object, hint: str) -> EngineError:
    """Return the error of a cluster that answers, but not to this user."""
    place = f" at {address}" if address else ""
    return EngineError(f"authentication failed: the {cluster} cluster{place} refuses", hint=hint)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what it came from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


class Engine(ABC):
    """Starts the tasks of a submission and knows whether they run."""

    name: ClassVar[str]
    reaches: ClassVar[tuple[str, ...]] = ()
    """Options of its section that say where the cluster is, and how it is reached."""
    poll_seconds: ClassVar[float] = 0.5
    run_command: RunCommand | None = None
    """Runs our own commands, for tasks in copies of this process; a program that does not have them leaves it out."""
    reason = ""
    """Why tasks ended without a record, if the engine knows."""

    def __init__(self, options: TaskOptions) -> None:
        self.options = options
        self.own: dict[str, Any] = options.own.get(self.name, {})

    @abstractmethod
    def submit(self, submission: Submission) -> None:
        """Start the tasks, and put what is needed to find them again into the submission's handle."""

    @abstractmethod
    def poll(self, seconds: float) -> Iterable[AttemptRecord] | None:
        """Wait until something happens, at most this long; return the attempts that ended.

        None says that the engine does not know: then the records of the run tell.
        """

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether no task runs or waits any more."""

    @property
    @abstractmethod
    def running(self) -> int:
        """How many tasks run."""

    @abstractmethod
    def cancel(self) -> None:
        """End all tasks."""

    def leave(self) -> None:  # noqa: B027 - most tasks go on by themselves
        """Let go of tasks without ending them, before `close`."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Give back what the engine holds."""

    def attach(self, submission: Submission) -> None:  # noqa: ARG002 - for engines that can
        """Find tasks again that another process has submitted."""
        raise EngineError(f"tasks on {self.name} end with the process that submitted them", hint="use `wl jobs resume`")

    def logs(self, submission: Submission) -> Iterator[tuple[str, str]]:  # noqa: ARG002 - for engines that have some
        """Yield the engine's own logs, by name."""
        return iter(())

    def shards_per_task(self, count: int) -> int:  # noqa: ARG002 - for engines whose tasks are expensive to start
        """How many shards a task has, if the user does not say."""
        return 1

    def check_own(self, *known: str) -> None:
        """Refuse options of the engine's section that it does not know."""
        if unknown := sorted(set(self.own) - set(known)):
            raise ValueError(f"[{self.name}] has no option {unknown[0]!r}; its options are {', '.join(known)}")


def task_arguments(submission: Submission, numbers: list[int]) -> tuple[str, str, list[int], dict[int, int]]:
    """Return what `do_task` is called with."""
    tried = {number: submission.tried[number] for number in numbers if number in submission.tried}
    return submission.plan.url, submission.task_name(numbers), numbers, tried


class FuturesEngine(Engine):
    """An engine that has futures: a bounded number of them, replaced as they end."""

    is_shared = False
    """Whether the cluster is not made for this run, so that `workers` is how many tasks are submitted at a time."""

    def __init__(self, options: TaskOptions) -> None:
        super().__init__(options)
        self._waiting: Iterator[list[int]] = iter(())
        self._futures: list[Any] = []
        self._exhausted = True
        self._submission: Submission | None = None

    @abstractmethod
    def connect(self) -> None:
        """Start or find the cluster, once."""

    @abstractmethod
    def places(self) -> int:
        """Return how many tasks run at a time if the user does not say; 0 if that is not known yet."""

    @abstractmethod
    def start(self, submission: Submission, numbers: list[int]) -> object:
        """Start a task, and return its future."""

    @abstractmethod
    def ended(self, futures: list[Any], seconds: float) -> tuple[Iterable[Any], list[Any]]:
        """Wait for some of these futures; return those that ended and the others."""

    @abstractmethod
    def error_of(self, future: object) -> str:
        """Return why a future that ended has failed; nothing if it did not."""

    def submit(self, submission: Submission) -> None:
        self.connect()
        self._submission, self._waiting, self._exhausted = submission, submission.tasks(), False
        self._fill()

    def shards_per_task(self, count: int) -> int:
        """Several where shards are many: a task costs Dask and Ray 10 ms of CPU, as much as copying 10 MB."""
        workers = self.options.workers or self.places()
        return max(1, min(MOST_SHARDS, count // (TURNS * workers))) if workers else 1

    def poll(self, seconds: float) -> None:
        if not self._futures:
            return
        done, self._futures = self.ended(self._futures, seconds)
        for future in done:
            self.reason = self.error_of(future) or self.reason
        self._fill()

    @property
    def finished(self) -> bool:
        return self._exhausted and not self._futures

    def _fill(self) -> None:
        most = self.options.workers if self.is_shared and self.options.workers else MOST_QUEUED
        while not self._exhausted and len(self._futures) < most:
            numbers = next(self._waiting, None)
            if numbers is None or self._submission is None:
                self._exhausted = True
            else:
                self._futures.append(self.start(self._submission, numbers))


def cores() -> int:
    """Return how many cores this process may use.

    >>> cores() >= 1
    True
    """
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def workers_here(options: TaskOptions) -> int:
    """Return how many tasks run on this machine at a time; tasks that do not fit are refused.

    >>> workers_here(TaskOptions(workers=3))
    3
    """
    has = {"cpus": cores(), "memory": settings.memory}
    needs = {"cpus": options.cpus, "memory": options.memory or 1}
    for name, most in has.items():
        count = options.workers or 1
        if needs[name] > 1 and count * needs[name] > most:  # more workers than cores may wait for something else
            hint = f"lower --{name} or --workers, or run them on a cluster"
            raise EngineError(f"{count} x {name}={needs[name]} is more than this machine has, {most}", hint=hint)
    return options.workers or max(min(most // needs[name] for name, most in has.items()), 1)


class HandShelf:
    """Processes that were kept for the next task, by plan and thread."""

    def __init__(self) -> None:
        self._hands: dict[tuple[str, int], list[Hand]] = {}

    def take(self, plan: str, thread: int) -> list[Hand]:
        """Take those of a thread; those of its earlier plans are let go."""
        for key in [key for key in list(self._hands) if key[1] == thread and key[0] != plan]:
            ended(self._hands.pop(key))
        return self._hands.pop((plan, thread), [])

    def put(self, plan: str, thread: int, hands: list[Hand]) -> None:
        """Keep these."""
        self._hands[plan, thread] = hands

    def clear(self) -> None:
        """Let all go."""
        while self._hands:
            ended(self._hands.popitem()[1])


SHELF = HandShelf()
"""Of this process: tasks of Dask and Ray have nothing else that lasts from one to the next."""


def do_task(
    plan: str,
    task: str,
    numbers: list[int],
    tried: dict[int, int],
    thread: int = 0,
    *,
    memory: int | None = None,
) -> int:
    """Do some items of a plan, in a worker of a cluster, and return the exit code.

    The items are done by a process that is kept for the next task of this worker, since starting one takes as long as
    a small shard.
    """
    kept = SHELF.take(plan, thread)
    code, hands = do_items(read_plan(plan), numbers, kept, keep=True, task=task, tried=tried, memory=memory)
    SHELF.put(plan, thread, hands)
    return int(code)
