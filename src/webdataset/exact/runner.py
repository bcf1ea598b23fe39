"""The exact way to run a pipeline: step by step, as the plan of its epochs says."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from webdataset.base.context import PassContext
from webdataset.base.mailbox import left_regularly, publish
from webdataset.base.positions import Position, named
from webdataset.base.progress import PipelineProgress
from webdataset.base.rounds import RoundLimits, RunnablePipeline, one_after_the_other
from webdataset.base.workers import is_loader_worker, pytorch_worker_info
from webdataset.handlers import close

from .positions import InEpoch, in_epoch, latest_position
from .program import GROUP, Program, program_of
from .rounds import Rounds
from .run import EpochRun
from .states import exact_place, exact_state


class ExactRunner:
    """Runs an exact pipeline by steps, and knows in which step it is.

    A runner is made whenever one is asked for; what it knows is in the pipeline's progress.
    """

    def __init__(self, pipeline: RunnablePipeline, progress: PipelineProgress) -> None:
        self.pipeline = pipeline
        self.progress = progress

    # -- reading ---------------------------------------------------------------------------------

    def items(self) -> Iterator[Any]:
        """The items of the next epoch, or of the next round of them."""
        rounds = self.rounds()
        return self.pipeline.iterator() if rounds is None else rounds.items(self.pipeline.iterator1)

    def passes(self) -> Iterator[Any]:
        """The next epochs, one after the other."""
        pipeline = self.pipeline
        return one_after_the_other(lambda: ((pipeline.iterator1() for _ in range(pipeline.repetitions)), False))

    def one_pass(self, context: PassContext, opened: ExitStack) -> Iterator[Any]:
        """The items of an epoch, or of the rest of one."""
        place = self._begin_at(context.epoch)
        _, _, worker, workers = pytorch_worker_info()
        items = self.program().items(place, context.report, self.pipeline.invoke, worker=worker, workers=workers)
        opened.callback(items.close)
        self.progress.position, self.progress.counted = items.position, None
        return iter(items)

    def steps(self, place: Position, threads: int = 0) -> Iterator[tuple[Position, list[Any]]]:
        """One pass from a place on, for this worker, by steps: `(place, items)`."""
        self.progress.in_steps = True
        self.progress.context = context = PassContext(epoch=place.epoch, strict=self.pipeline.strict)
        _, _, worker, workers = pytorch_worker_info()
        options = {"worker": worker, "workers": workers, "threads": threads}
        with ExitStack() as opened:
            opened.callback(publish, self.progress.mailbox, context.report)
            opened.enter_context(left_regularly(self.progress.mailbox, context.report))
            steps = self.program().steps(place, context.report, self.pipeline.invoke, **options)
            opened.callback(close, steps)
            yield from steps

    def read_steps(self, epoch: int) -> Iterator[tuple[Position, Any]]:
        """One pass by steps, all of this rank, with the samples as they are read."""
        self.progress.context = context = PassContext(epoch=epoch, strict=self.pipeline.strict)
        place = self._begin_at(epoch)
        run = EpochRun(self.program(), place, context.report, ahead=True)
        with ExitStack() as opened:
            opened.callback(run.close)
            steps = run.steps()
            opened.callback(close, steps)
            for step in steps:
                yield place, step

    # -- how much --------------------------------------------------------------------------------

    def program(self) -> Program:
        """What the pipeline does."""
        # torch takes items from its workers in turn, one each; our loader takes whole steps
        in_turn = pytorch_worker_info()[3] > 1 and not self.progress.in_steps
        stages = self.pipeline.pipeline
        program: Program | None
        (known, known_in_turn), program = self.progress.program or (((), False), None)
        same = len(known) == len(stages) and all(map(operator.is_, known, stages))
        nested = hasattr(stages[0], "pipeline") or hasattr(stages[0], "datasets")
        if program is None or nested or not same or known_in_turn != in_turn:
            program = program_of(stages, group=1 if in_turn else GROUP)
            self.progress.program = (tuple(stages), in_turn), program
        assert program is not None
        return program

    def limits(self) -> RoundLimits:
        """How long rounds are."""
        return RoundLimits.of(self.pipeline)

    def rounds(self) -> Rounds | None:
        """How epochs are repeated or cut; None if they are not."""
        limits = self.limits()
        return None if limits.is_one_pass else Rounds(self, limits)

    def length(self) -> int:
        """How many items the pipeline gives."""
        return self.limits().length(self.items_in_passes)

    def items_in_passes(self, count: int) -> int:
        """How many items the next passes have, on this rank; or that which is under way."""
        program, epoch = self.program(), self.next_epoch()
        if not program.varies:
            return program.length() * count
        under_way = self.place is not None and self.place.epoch + 1 == epoch
        first = epoch - under_way
        return sum(program.length(number) for number in range(first, first + count))

    # -- where it is -----------------------------------------------------------------------------

    @property
    def place(self) -> Position | None:
        """After which item it is; None before there was one."""
        return latest_position(self.progress.position, self.progress.counted)

    @place.setter
    def place(self, place: Position | None) -> None:
        self.progress.position, self.progress.counted = place, None

    @property
    def counted(self) -> tuple[int, int, int] | None:
        """Of the round that is under way: complete passes, items given, and its number."""
        return self.progress.counted

    @counted.setter
    def counted(self, counted: tuple[int, int, int] | None) -> None:
        self.progress.counted = counted

    def position(self) -> Position:
        """After which item it is, or where the next pass begins."""
        return self.place or self.next_place()

    def state(self, position: object = None) -> dict[str, Any]:
        """The state after the latest item, or at a position."""
        _, _, worker, workers = pytorch_worker_info()
        place = self.position() if position is None else _restored(position)
        return exact_state(self.program(), place, self.limits(), worker=worker, workers=workers)

    def load(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        _, _, _, workers = pytorch_worker_info()
        self.seek(exact_place(self.program(), state, self.limits(), workers=workers))

    def seek(self, place: Position) -> None:
        """Make the next pass begin at a place of an epoch."""
        self.place = self.progress.start = place
        if is_loader_worker():
            self.progress.passes.seek(place.epoch)
        else:
            self.progress.passes.set(place.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make this the next epoch, or the next round of them."""
        rounds = self.rounds()
        if rounds is None:
            self.progress.passes.set(epoch)
        else:
            rounds.set_epoch(epoch)

    def next_place(self) -> Position:
        """Where the next pass begins."""
        return self.loaded_place() or in_epoch(self.next_epoch())

    def next_epoch(self) -> int:
        """The epoch of the next pass."""
        passes = self.progress.passes
        return passes.next() if pytorch_worker_info()[3] > 1 else passes.latest()

    def loaded_place(self) -> Position | None:
        """Where the next pass is to begin, if a state was loaded that is of its epoch; else None."""
        start = self.progress.start
        return start if start is not None and start.epoch == self.next_epoch() else None

    def mark_started(self) -> None:
        """The pass that was to go on from a loaded state has begun."""
        self.progress.start = None

    def _begin_at(self, epoch: int) -> Position:
        place, self.progress.start = self.progress.start, None
        return place if place is not None and place.epoch == epoch else in_epoch(epoch)


def _restored(position: Any) -> Position:
    """A position that was handed over, perhaps as JSON."""
    restored = named(Position, position)
    return restored._replace(where=named(InEpoch, restored.where))
