"""Marks: after which item a pipeline is, and how it goes on from there.

A mark is a small tuple; with a description of the pipeline it becomes a state (`webdataset.base.states`).
"""

from __future__ import annotations

import copy
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from webdataset.base.passes import PassCounter
from webdataset.base.reports import Report
from webdataset.base.workers import is_loader_worker, pytorch_worker_info
from webdataset.errors import StateError
from webdataset.handlers import close

from .layout import NotResumableError, described, is_mixture, layout_of, remembered
from .segments import Run
from .sources import Building, Count

ENDED = "ended"
"""The place of a worker that has no items left, while its loader may still take those of others."""


class Mark(NamedTuple):
    """After which item a pipeline is: plain numbers and strings, fit for pickle and, as lists, for JSON."""

    epoch: int
    passes: int
    """Passes that were complete, of a pipeline that is repeated."""
    given: int
    """Items that were given, of an epoch of fixed size."""
    chance: int
    """What the seeds of stages without one are made from."""
    remembered: tuple[Any, ...]
    """What stages keep from pass to pass."""
    who: tuple[int, ...]
    """Rank, world size, worker and number of workers."""
    where: Any = None
    """The place within the pass; None at its beginning."""
    inner: tuple[Any, ...] = ()
    """The beginnings of the next passes of the datasets within."""


class Marked:
    """What a pipeline needs to say where it is: it counts the passes, the items and what the passes count."""

    pipeline: list[Any]
    repetitions: int
    nsamples: int
    invoke: Callable[..., Any]
    _passes: PassCounter
    _report: Report | None

    def __init__(self) -> None:
        super().__init__()
        self._chance = drawn_chance()
        self._going_on: Mark | None = None
        """Where the next pass is to begin, if a state was loaded."""
        self._of_workers: list[Any] | None = None
        """Where the next pass is to begin in each worker process of a loader."""
        self._run: Run | NotResumableError | str | None = None
        """The pass that is under way, or why its place cannot be saved, or that it has ended."""
        self._pass_number = 0
        self._given = Count()
        self._described: tuple[Any, Any] = (), None

    def placed(self) -> Iterator[tuple[Any, Any]]:
        """The items, each with a mark: a small value from which `state_from_mark` makes the state after that item."""
        items = iter(self)  # type: ignore[call-overload]
        try:
            for item in items:
                yield self.mark(), item
        finally:
            close(items)

    def mark(self) -> Any:
        """Where the pipeline is, after the latest item that it gave."""
        if self._going_on is not None:
            return self._going_on
        if self._run is None:
            return self.next_mark()
        if isinstance(self._run, str):
            return self.next_mark()._replace(where=self._run)
        return self.mark_of(self.place_now())

    def place_now(self) -> Any:
        """Where a pass that is under way is, as quickly as it can be told: `mark_of` makes a mark of it, also later."""
        run = self._run
        if not isinstance(run, Run):
            return run
        inner = tuple([each.next_mark() for each in self._within()])
        return run, self._pass_number, self._given(), run.position(), inner

    @property
    def is_counted(self) -> bool:
        """Whether the place of the pass that is under way is the number of items that were given."""
        return isinstance(self._run, Run) and self._run.is_counted and not self._within()

    def mark_of(self, place: Any) -> Any:
        """The mark of a place that `place_now` told."""
        if isinstance(place, NotResumableError):
            raise cannot_be_saved(place)
        assert self._report is not None
        run, passes, given, position, inner = place
        return self._mark(self._report.epoch, passes, given, where=run.where(position), inner=inner)

    def next_mark(self, worker: int | None = None, workers: int = 1) -> Mark:
        """The beginning of the next pass, in this process or in a worker of a loader."""
        try:
            layout_of(self.pipeline)
        except NotResumableError as exn:
            raise cannot_be_saved(exn) from None
        inner = tuple([each.next_mark(worker, workers) for each in self._within()])
        who = None if worker is None else self.who(worker, workers)
        return self._mark(self._passes.next(who), 0, 0, who=who, inner=inner)

    def who(self, worker: int, workers: int) -> tuple[int, int, int, int]:
        """Rank, world size, worker and workers, as a worker of this process sees them."""
        rank, world, _, _ = pytorch_worker_info()
        return rank, world, worker, workers

    def load_mark(self, mark: Any) -> None:
        """Make the next pass begin after the item that a mark was given with."""
        mark = Mark(*mark)
        self._check_who(mark)
        self._going_on, self._run = mark, None
        self._passes.go_on(mark.epoch)
        self._adopt(mark)
        if mark.where in (None, ENDED):
            self._load_inner(mark)

    def load_marks(self, marks: list[Any]) -> None:
        """Make the next pass begin, in each worker process of a loader, where its mark says.

        `resumed()` says that it has begun: worker processes that are started later begin as usual.
        """
        self._adopt(Mark(*marks[0]))
        self._of_workers = marks

    def begin_anew(self) -> None:
        """The latest pass is of no interest any more: another one is about to begin."""
        self._run = None

    def handed_over(self) -> None:
        """A copy of this pipeline begins, where the next pass of this one was to begin."""
        self._run = self._going_on = None

    def begun(self) -> None:
        """The pass that was to go on has had its turn: the next one begins at its beginning."""
        if self._going_on is not None and self._going_on.where is not None:
            self._end_epoch()

    def described(self) -> Any:
        """What must be the same for a state to fit."""
        key = (*map(id, self.pipeline), self.repetitions, self.nsamples)
        if self._described[0] != key:
            self._described = key, described(self)
        return self._described[1]

    # -- reading ---------------------------------------------------------------------------------

    def _started(self, report: Report, opened: ExitStack, wrap: Callable[[Any], Any]) -> Iterator[Any]:
        """The items of a pass, from where it is to begin."""
        mark, self._going_on = self._going_on, None
        if mark is not None:
            self._check_who(mark)
            if mark.epoch != report.epoch:  # somebody has set another epoch
                mark = None
        # held weakly: a pass that is abandoned must not keep the pipeline, and a loader's worker processes
        building = Building(report, partial(type(self).invoke, weakref.proxy(self)), opened, wrap)
        run = self._resumable(building)
        if run is None:
            source = building.kept(iter(self.invoke(self.pipeline[0])))
            return building.chained(source, self.pipeline[1:], resumed=False)
        items = run.started(None if mark is None else mark.where)
        self._run = run
        return items

    def _resumable(self, building: Building) -> Run | None:
        """A pass that can be taken up again, or None; the reason is remembered."""
        self._run = None
        try:
            return Run(layout_of(self.pipeline), building)
        except NotResumableError as exn:
            self._run = exn.with_traceback(None)  # else it would hold the frames, and with those the pipeline
            return None

    def _limited(self, passes: Iterator[Any]) -> Iterator[Any]:
        """As many items as an epoch has, less those that were given before."""
        mark = self._begin()
        given = 0 if mark is None else mark.given
        self._given = Count(given)
        try:
            if given < self.nsamples:
                yield from islice(self._given.over(passes), self.nsamples - given)
            elif mark is not None:
                self._end_epoch()
        finally:
            passes.close()  # type: ignore[attr-defined]
        self._end()

    def _has_ended(self) -> bool:
        """Whether the passes that are asked for were at their end when the state was saved; a new pass else."""
        self._run = None
        if self._going_on is None or self._going_on.where != ENDED:
            return False
        self._going_on, self._run = None, ENDED
        return True

    def _end(self) -> None:
        self._run = ENDED if is_loader_worker() else None

    def _begin(self) -> Mark | None:
        """Where the passes are to begin; in a worker process, this worker's place."""
        if self._of_workers is not None:
            marks, self._of_workers = self._of_workers, None
            _, _, worker, workers = pytorch_worker_info()
            if len(marks) != workers:
                raise StateError(f"the state is that of {len(marks)} workers, and there are {workers}")
            self.load_mark(marks[worker])
        return self._going_on

    def _adopt(self, mark: Mark) -> None:
        """Take over the seeds that nobody gave, and what stages count."""
        self._chance = mark.chance
        for (stage, name), value in zip(remembered(self.pipeline), mark.remembered, strict=False):
            own = copy.copy(stage)
            setattr(own, name, value)
            self.pipeline = [own if each is stage else each for each in self.pipeline]
        for pipeline, within in zip(self._within(), mark.inner, strict=False):
            pipeline._adopt(Mark(*within))

    def _end_epoch(self) -> None:
        """Go to the end of an epoch all of whose items were given before the state was saved."""
        assert self._going_on is not None
        self._passes.begin()
        self._load_inner(self._going_on)
        self._going_on = None

    def _load_inner(self, mark: Mark) -> None:
        for pipeline, within in zip(self._within(), mark.inner, strict=False):
            pipeline.load_mark(within)

    def _within(self) -> list[Any]:
        """The pipelines that this one reads from."""
        return _pipelines_of(self.pipeline[0]) if self.pipeline else []

    def _mark(
        self, epoch: int, passes: int, given: int, *, who: Any = None, where: Any = None, inner: Any = ()
    ) -> Mark:
        kept = tuple([getattr(stage, name) for stage, name in remembered(self.pipeline)])
        return Mark(epoch, passes, given, self._chance, kept, who or pytorch_worker_info(), where, inner)

    def _check_who(self, mark: Mark) -> None:
        here = pytorch_worker_info()
        if tuple(mark.who) != here:
            raise StateError(
                f"the state is that of {_worker(mark.who)}, and this is {_worker(here)}",
                hint="a streamed dataset goes on with as many ranks and workers as before; exact=True with any number",
            )


def _pipelines_of(source: Any) -> list[Any]:
    if is_mixture(source):
        return [pipeline for each in source.datasets for pipeline in _pipelines_of(each)]
    return [source] if hasattr(source, "next_mark") else []


def drawn_chance() -> int:
    """What the seeds of a pipeline's unseeded stages are made from."""
    return random.SystemRandom().getrandbits(63)


def cannot_be_saved(reason: Exception) -> StateError:
    """The error for a pipeline that has no state."""
    return StateError(f"the place in this pipeline cannot be saved: {reason}")


def _worker(who: Any) -> str:
    rank, world, worker, workers = who
    return f"worker {worker} of {workers} on rank {rank} of {world}"
