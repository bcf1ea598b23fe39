"""The steps of an exact dataset on their way through a loader, and how far the loader has come.

Worker processes and threads give whole steps, so the loader gets them in the order of the epoch, however many there are
of them; the items of a step are taken apart where they arrive.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from webdataset.base.counter import PassCounter
from webdataset.base.iterables import TorchIterable
from webdataset.base.mailbox import publish
from webdataset.base.positions import Position
from webdataset.base.reports import Report
from webdataset.base.rounds import RoundLimits
from webdataset.exact.feed import Drawn
from webdataset.exact.positions import InEpoch, StepItems, at_step, in_epoch, latest_position
from webdataset.exact.program import Program
from webdataset.exact.rounds import Rounds
from webdataset.exact.run import EpochRun
from webdataset.exact.states import exact_place, exact_state
from webdataset.filters import batched
from webdataset.pipeline import DataPipeline

from .collation import as_it_is
from .workers import reported

if TYPE_CHECKING:
    from webdataset.exact.runner import ExactRunner


class Steps(TorchIterable):
    """An exact dataset as a loader reads it: for each step of this worker, its place and its items."""

    def __init__(self, dataset: DataPipeline, *, threads: int = 0) -> None:
        self.dataset = dataset
        self.threads = threads
        self._begins = PassCounter(), PassCounter(), PassCounter()

    def begin(self, place: Position) -> None:
        """Tell all workers where the next pass begins, also those that are there already.

        Workers do not count by themselves: those of a pass that was abandoned may still do so when the next one has
        begun.
        """
        for counter, number in zip(self._begins, (place.epoch, place.where.start, place.where.step), strict=True):
            counter.set(number)

    def __iter__(self) -> Iterator[tuple[Position, list[Any]]]:
        epoch, start, step = [counter.next() for counter in self._begins]
        steps = self.dataset.runner.steps(in_epoch(epoch, InEpoch(start, step, base=step)), self.threads)
        return steps if self.threads else reported(steps, self.dataset)

    def stats(self) -> dict[str, Any]:
        """What the dataset counts."""
        return self.dataset.stats()


class ReadSteps:
    """For worker processes whose shards are on a server: the steps of this rank as this process reads them.

    One process reads for all workers: each would have to read what lies between the samples that are its own.
    """

    def __init__(self, steps: StepWork) -> None:
        self._steps = steps

    def __iter__(self) -> Iterator[tuple[Position, tuple[int, list[Any]]]]:
        return self._steps.dataset.runner.read_steps(self._steps.epoch.next())  # type: ignore[no-any-return]


class StepWork:
    """What the workers do then: `work[step]` makes the items of a step."""

    read_by_loader = True

    def __init__(self, dataset: DataPipeline) -> None:
        self.dataset = dataset
        self.epoch = PassCounter()
        self._run: EpochRun | None = None

    def begin(self, place: Position) -> None:
        """Say which epoch the next pass is."""
        self.epoch.set(place.epoch)

    def stats(self) -> dict[str, Any]:
        """What the dataset counts."""
        return self.dataset.stats()

    def __getitem__(self, read: tuple[Position, tuple[int, Drawn]]) -> tuple[Position, list[Any], dict[str, Any]]:
        place, step = read
        if self._run is None or self._run.place != place:
            self._run = EpochRun(self.dataset.runner.program(), place, Report(strict=self.dataset.strict))
        try:
            number, items, counts = self._run.work(self.dataset.invoke)(step)
        except Exception:
            publish(self.dataset.runner.progress.mailbox, self._run.report)
            raise
        return at_step(place, number), items, counts

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_run": None}


def exact_steps(dataset: object, options: dict[str, Any], *, threads: bool) -> tuple[StepWorkers, dict[str, Any]]:
    """An exact dataset and a DataLoader's arguments, as the loader of steps takes them.

    The loader's batches are made by a stage of the dataset, so that the plan knows of them.
    """
    options = {"batch_size": 1, **options}
    for name in ("shuffle", "sampler", "batch_sampler"):
        if options.pop(name, None):
            raise ValueError(f"{name}= is for datasets with indices; an exact dataset is shuffled by its plan")
    pipeline = dataset if isinstance(dataset, DataPipeline) else DataPipeline(dataset)
    size, collate = options.pop("batch_size"), options.pop("collate_fn")
    whole = bool(options.pop("drop_last", False))
    if size is not None:
        pipeline = pipeline.compose(batched(size, collate, not whole))
        collate = as_it_is
    pipeline = _of_one_pass(pipeline)
    workers = options.get("num_workers", 0)
    if threads:
        options["num_workers"] = 0
    options |= {"batch_size": None, "collate_fn": EachItem(collate)}
    if not threads and workers and not pipeline.runner.program().has_local_shards:
        work = StepWork(pipeline)
        return StepWorkers(work), options | {"sampler": ReadSteps(work)}
    steps = Steps(pipeline, threads=workers if threads else 0)
    return StepWorkers(steps), options


def _of_one_pass(dataset: DataPipeline) -> DataPipeline:
    """A dataset, or a copy that counts its passes in common with it and neither repeats nor cuts them."""
    if RoundLimits.of(dataset).is_one_pass:
        return dataset
    result = copy.copy(dataset)
    result.repetitions, result.nsamples = 1, -1
    return result


def repeated_in_batches(dataset: object, options: dict[str, Any]) -> tuple[int, int]:
    """How often a dataset is repeated, and to how many items it is cut: in batches, if the loader makes them."""
    passes, items = getattr(dataset, "repetitions", 1), getattr(dataset, "nsamples", -1)
    size = options.get("batch_size", 1)
    if items <= 0 or size is None:
        return passes, items
    return passes, max(1, items // size) if options.get("drop_last") else -(-items // size)


class EachItem:
    """Applies a loader's collation to every item of a step."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, step: tuple[Any, ...]) -> tuple[Any, ...]:
        place, items, *counts = step
        return place, [self.function(item) for item in items], *counts


class StepWorkers:
    """The workers of a loader of an exact dataset, and where it is, after the latest item that was taken."""

    is_tracked = resumes_steps = True

    def __init__(self, steps: Steps | StepWork) -> None:
        self.loader: Any = None
        self.dataset = steps.dataset
        self.steps = steps
        self.counted: tuple[int, int, int] | None = None
        """Of the round that is under way: complete passes, items given, and its number."""
        self._place: Any = None
        """Where the run is, or a function that says so; None before the first pass."""

    def begin(self) -> None:
        """A pass is about to begin: all workers are told which epoch it is."""
        self.place = place = self.dataset.runner.next_place()
        self.steps.begin(place)
        self.dataset.runner.seek(place)
        self.dataset.set_epoch(place.epoch + 1)

    @property
    def place(self) -> Position | None:
        """Where the run is; None before the first pass."""
        return latest_position(self._place, self.counted)

    @place.setter
    def place(self, place: Position | None) -> None:
        self._place, self.counted = place, None

    def items(self, steps: Iterable[Any]) -> Iterator[Any]:
        """The items of the steps that the workers have made."""
        runner, start = self.dataset.runner, self.place
        assert start is not None, "begin() comes before items()"
        items = StepItems(_arriving(runner, steps), start, runner.program().batches.per_step)
        self._place, self.counted = items.position, None
        return iter(items)

    def rounds(self, limits: RoundLimits, *, held: bool) -> Rounds | None:
        """How epochs are repeated or cut; None where every round begins with an epoch.

        That is so if a stage after the loader holds samples: they would be lost.
        """
        return None if limits.is_one_pass or held else Rounds(self, limits)

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the next pass; a state that was loaded counts if it is of that epoch."""
        self.dataset.set_epoch(epoch)
        self.place = self.dataset.runner.next_place()

    def state(self, limits: RoundLimits) -> dict[str, Any]:
        """The state of the loader."""
        return exact_state(self.program(), self.place or self.dataset.runner.next_place(), limits)

    def load(self, state: dict[str, Any], limits: RoundLimits) -> None:
        """Make the next pass go on where the state was saved."""
        self.seek(exact_place(self.program(), state, limits))

    def length(self, later: list[Any], passes: int) -> int:
        """How many items the next passes give after some later stages, or that which is under way."""
        whole = copy.copy(self.dataset)
        whole.pipeline = [*self.dataset.pipeline, *later]
        whole.runner.place = self.place
        return int(whole.runner.items_in_passes(passes))

    # -- for rounds ------------------------------------------------------------------------------

    def program(self) -> Program:
        """What the dataset does."""
        return self.dataset.runner.program()  # type: ignore[no-any-return]

    def next_epoch(self) -> int:
        """The epoch of the next pass."""
        return int(self.dataset.runner.next_epoch())

    def loaded_place(self) -> Position | None:
        """Where the next pass is to begin, if a state was loaded."""
        return self.dataset.runner.loaded_place()  # type: ignore[no-any-return]

    def seek(self, place: Position) -> None:
        """Make the next pass begin at a place; its steps are dealt to the workers again."""
        self.place = place = place._replace(where=place.where._replace(base=place.where.step))
        self.dataset.runner.seek(place)


def _arriving(runner: ExactRunner, steps: Iterable[Any]) -> Iterator[tuple[Position, list[Any]]]:
    """The steps as they come from the workers; what these have counted is added up."""
    for at, items, *counts in steps:
        runner.mark_started()
        for one in counts:
            if runner.progress.context is not None:
                runner.progress.context.report.add(one)
        yield at, items
