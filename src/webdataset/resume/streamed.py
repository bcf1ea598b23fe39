"""The streamed way to run a pipeline: its stages are generators, and a pass can be resumed from a position."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any

from webdataset.base.context import PassContext
from webdataset.base.positions import Position
from webdataset.base.progress import PipelineProgress
from webdataset.base.rounds import RunnablePipeline, one_after_the_other
from webdataset.base.workers import is_loader_worker, pytorch_worker_info
from webdataset.errors import StateError
from webdataset.handlers import close

from .layout import NotResumableError, described, is_mixture, is_pipeline, layout_of, remembered
from .positions import ENDED, InStream, Owner, restored
from .segments import StreamPass
from .sources import Count, PassBuilder
from .states import stream_position, stream_state


class StreamedRunner:
    """Runs a pipeline as a chain of generators, and knows after which item it is.

    A runner is made whenever one is asked for; what it knows is in the pipeline's progress.
    """

    def __init__(self, pipeline: RunnablePipeline, progress: PipelineProgress, wrap: Callable[[Any], Any]) -> None:
        self.pipeline = pipeline
        self.progress = progress
        self.wrap = wrap
        """Makes a pipeline of any dataset."""

    # -- reading ---------------------------------------------------------------------------------

    def items(self) -> Iterator[Any]:
        """All passes of an epoch, cut to its length; the rest of it, if a state was loaded."""
        if self._has_ended():
            return iter(())
        pipeline = self.pipeline
        return self._limited(pipeline.iterator()) if pipeline.nsamples > 0 else pipeline.iterator()

    def passes(self) -> Iterator[Any]:
        """All passes, one after the other; a pass that gives nothing ends it."""
        return one_after_the_other(self._begin, self._finish)

    def _begin(self) -> tuple[Iterator[Iterator[Any]], bool]:
        start = self._start()
        return self._numbered(start.passes if start else 0), start is not None

    def _numbered(self, first: int) -> Iterator[Iterator[Any]]:
        for number in range(first, self.pipeline.repetitions):
            self.progress.pass_number = number
            yield self.pipeline.iterator1()

    def one_pass(self, context: PassContext, opened: ExitStack) -> Iterator[Any]:
        """The items of a pass, from where it is to begin."""
        progress = self.progress
        start, progress.start = progress.start, None
        if start is not None:
            _check_owner(start)
            if start.epoch != context.epoch:  # somebody has set another epoch
                start = None
        # held weakly: a pass that is abandoned must not keep the pipeline, and a loader's worker processes
        invoke = partial(type(self.pipeline).invoke, weakref.proxy(self.pipeline))
        builder = PassBuilder(context, invoke, opened, self.wrap)
        run = self._resumable(builder)
        if run is None:
            source = builder.kept(iter(self.pipeline.invoke(self.pipeline.pipeline[0])))
            return builder.chained(source, self.pipeline.pipeline[1:], resumed=False)
        items = run.started(None if start is None else start.where.at)
        progress.run = run
        return items

    def length(self) -> int:
        """How many items there are is not known before they were read."""
        raise TypeError("the length of a streamed pipeline is not known: with_length(n) declares it")

    # -- where it is -----------------------------------------------------------------------------

    def position(self) -> Position:
        """After which item the pipeline is."""
        progress = self.progress
        if progress.start is not None:
            return progress.start
        if progress.run is None:
            return self.next_position()
        if isinstance(progress.run, str):
            position = self.next_position()
            return position._replace(where=position.where._replace(at=progress.run))
        return self.position_of(self.snapshot())

    def snapshot(self) -> Any:
        """Where a pass that is under way is, as quickly as it can be told; `position_of` makes a position of it."""
        run = self.progress.run
        if not isinstance(run, StreamPass):
            return run
        inner = tuple([each.runner.next_position() for each in self._within()])
        return run, self.progress.pass_number, self._given(), run.position(), inner

    @property
    def is_counted(self) -> bool:
        """Whether the place of the pass that is under way is the number of items that were given."""
        run = self.progress.run
        return isinstance(run, StreamPass) and run.is_counted and not self._within()

    def position_of(self, snapshot: Any) -> Position:
        """The position of a snapshot."""
        if isinstance(snapshot, NotResumableError):
            raise cannot_be_saved(snapshot)
        assert self.progress.context is not None
        run, passes, given, at, inner = snapshot
        return self._position(self.progress.context.epoch, passes, given, at=run.where(at), inner=inner)

    def next_position(self, worker: int | None = None, workers: int = 1) -> Position:
        """The beginning of the next pass, in this process or in a worker of a loader."""
        try:
            layout_of(self.pipeline.pipeline)
        except NotResumableError as exn:
            raise cannot_be_saved(exn) from None
        inner = tuple([each.runner.next_position(worker, workers) for each in self._within()])
        owner = None if worker is None else self.owner(worker, workers)
        return self._position(self.progress.passes.next(owner), 0, 0, owner=owner, inner=inner)

    def owner(self, worker: int, workers: int) -> Owner:
        """A worker of this process, as it sees itself."""
        return Owner.here()._replace(worker=worker, workers=workers)

    def next_epoch(self) -> int:
        """The epoch of the next pass, whoever reads it."""
        passes = self.progress.passes
        return passes.next() if pytorch_worker_info()[3] > 1 else passes.latest()

    def described(self) -> Any:
        """What must be the same for a state to fit."""
        pipeline, progress = self.pipeline, self.progress
        key = (*map(id, pipeline.pipeline), pipeline.repetitions, pipeline.nsamples)
        if progress.described[0] != key:
            progress.described = key, described(pipeline)
        return progress.described[1]

    def state(self, position: object = None) -> dict[str, Any]:
        """The state after the latest item, or at a position."""
        return stream_state(self.described(), self.position() if position is None else restored(position))

    # -- where it goes on ------------------------------------------------------------------------

    def load(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        self.seek(stream_position(self.described(), state))

    def seek(self, position: Any) -> None:
        """Make the next pass begin after the item that a position was given with."""
        position = restored(position)
        _check_owner(position)
        self.progress.start, self.progress.run = position, None
        self.progress.passes.seek(position.epoch)
        self._adopt(position)
        if position.where.at in (None, ENDED):
            self._seek_inner(position)

    def seek_workers(self, positions: list[Any]) -> None:
        """Make the next pass begin, in each worker process of a loader, where its position says.

        `mark_started()` says that it has begun: worker processes that are started later begin as usual.
        """
        self._adopt(restored(positions[0]))
        self.progress.starts_of_workers = positions

    def mark_started(self) -> None:
        """The pass that was to go on from a loaded state has begun."""
        self.progress.starts_of_workers = None

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the next pass, in all workers."""
        self.progress.passes.set(epoch)

    def forget_pass(self) -> None:
        """The latest pass is of no interest any more: another one is about to begin."""
        self.progress.run = None

    def detach(self) -> None:
        """A copy of this pipeline begins, where the next pass of this one was to begin."""
        self.progress.run = self.progress.start = None

    def finish_resumed(self) -> None:
        """The pass that was to go on has had its turn: the next one begins at its beginning."""
        start = self.progress.start
        if start is not None and start.where.at is not None:
            self._end_epoch()

    # -- helpers ---------------------------------------------------------------------------------

    def _resumable(self, builder: PassBuilder) -> StreamPass | None:
        """A pass that can be resumed, or None; the reason is remembered."""
        self.progress.run = None
        try:
            return StreamPass(layout_of(self.pipeline.pipeline), builder)
        except NotResumableError as exn:
            self.progress.run = exn.with_traceback(None)  # else it would hold the frames, and with those the pipeline
            return None

    def _limited(self, passes: Iterator[Any]) -> Iterator[Any]:
        """As many items as an epoch has, less those that were given before."""
        start = self._start()
        given = 0 if start is None else start.given
        self.progress.count = count = Count(given)
        nsamples = self.pipeline.nsamples
        try:
            if given < nsamples:
                yield from islice(count.over(passes), nsamples - given)
            elif start is not None:
                self._end_epoch()
        finally:
            close(passes)
        self._finish()

    def _given(self) -> int:
        return 0 if self.progress.count is None else int(self.progress.count())

    def _has_ended(self) -> bool:
        """Whether the passes that are asked for were at their end when the state was saved; a new pass else."""
        progress = self.progress
        progress.run = None
        if progress.start is None or progress.start.where.at != ENDED:
            return False
        progress.start, progress.run = None, ENDED
        return True

    def _finish(self) -> None:
        self.progress.run = ENDED if is_loader_worker() else None

    def _start(self) -> Position | None:
        """Where the passes are to begin; in a worker process, this worker's place."""
        progress = self.progress
        if progress.starts_of_workers is not None:
            positions, progress.starts_of_workers = progress.starts_of_workers, None
            _, _, worker, workers = pytorch_worker_info()
            if len(positions) != workers:
                raise StateError(f"the state is that of {len(positions)} workers, and there are {workers}")
            self.seek(positions[worker])
        return progress.start

    def _adopt(self, position: Position) -> None:
        """Take over the seeds that nobody gave, and what stages count."""
        pipeline = self.pipeline
        self.progress.base_seed = position.where.base_seed
        for (stage, name), value in zip(remembered(pipeline.pipeline), position.where.kept, strict=False):
            own = copy.copy(stage)
            setattr(own, name, value)
            pipeline.pipeline = [own if each is stage else each for each in pipeline.pipeline]
        for within, inner in zip(self._within(), position.where.inner, strict=False):
            within.runner._adopt(restored(inner))

    def _end_epoch(self) -> None:
        """Go to the end of an epoch all of whose items were given before the state was saved."""
        assert self.progress.start is not None
        self.progress.passes.begin()
        self._seek_inner(self.progress.start)
        self.progress.start = None

    def _seek_inner(self, position: Position) -> None:
        for within, inner in zip(self._within(), position.where.inner, strict=False):
            within.runner.seek(inner)

    def _within(self) -> list[Any]:
        """The pipelines that this one reads from."""
        return _pipelines_of(self.pipeline.pipeline[0]) if self.pipeline.pipeline else []

    def _position(
        self, epoch: int, passes: int, given: int, *, owner: Owner | None = None, at: Any = None, inner: Any = ()
    ) -> Position:
        kept = tuple([getattr(stage, name) for stage, name in remembered(self.pipeline.pipeline)])
        where = InStream(self.progress.base_seed, kept, owner or Owner.here(), at, inner)
        return Position(epoch, passes, given, where=where)


def _pipelines_of(source: Any) -> list[Any]:
    if is_mixture(source):
        return [pipeline for each in source.datasets for pipeline in _pipelines_of(each)]
    return [source] if is_pipeline(source) else []


def cannot_be_saved(reason: Exception) -> StateError:
    """The error for a pipeline that has no state."""
    return StateError(f"the place in this pipeline cannot be saved: {reason}")


def _check_owner(position: Position) -> None:
    here = Owner.here()
    if position.where.owner != here:
        raise StateError(
            f"the state is that of {position.where.owner}, and this is {here}",
            hint="a streamed dataset goes on with as many ranks and workers as before; exact=True with any number",
        )
