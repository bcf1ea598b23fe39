"""The way to run a loader: workers run passes over its dataset, and stages after it are chained behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from time import perf_counter
from typing import Any, NamedTuple

from webdataset.base.behaviour import behaviour_of
from webdataset.base.context import PassContext
from webdataset.base.mailbox import Mailbox
from webdataset.base.progress import PipelineProgress
from webdataset.base.reports import Report
from webdataset.base.rounds import RoundLimits, RunnablePipeline
from webdataset.errors import StateError
from webdataset.handlers import close
from webdataset.pipeline import DataPipeline
from webdataset.resume.streamed import StreamedRunner

from .parcels import spent
from .processes import process_loader
from .threads import ThreadLoader
from .workers import (
    ProcessWorkers,
    ThreadWorkers,
    UntrackedWorkers,
    WithPositions,
    Workers,
    sends_positions,
    with_positions,
)


class Loading(NamedTuple):
    """A loader, its workers, and what else WebLoader needs of them."""

    loader: Any
    workers: Workers
    mailbox: Mailbox | None
    repeated: tuple[int, int] = (1, -1)
    """How often the dataset is repeated by the loader, and to how many items it is cut."""
    exact: bool = False


def open_loader(dataset: object, options: dict[str, Any], *, processes: bool) -> Loading:
    """A loader with worker processes or threads for these arguments of a DataLoader."""
    if getattr(dataset, "exact", False):
        from .steps import exact_steps, repeated_in_batches

        repeated = repeated_in_batches(dataset, options)
        workers, options = exact_steps(dataset, options, threads=not processes)
        mailbox = _mailbox(workers.dataset, processes=processes)
        loader = workers.loader = _loader(workers.steps, options, mailbox, processes=processes)
        return Loading(loader, workers, mailbox, repeated, exact=True)
    mailbox = _mailbox(dataset, processes=processes)
    if not processes:
        loader = ThreadLoader(dataset, **options)
        tracked = isinstance(dataset, DataPipeline) and not loader.indexed
        return Loading(loader, ThreadWorkers(loader) if tracked else UntrackedWorkers(loader), None)
    if not isinstance(dataset, DataPipeline) or not sends_positions(dataset, options):
        loader = _loader(dataset, options, mailbox)
        return Loading(loader, UntrackedWorkers(loader), mailbox)
    loader = _loader(WithPositions(dataset), with_positions(options), mailbox)
    return Loading(loader, ProcessWorkers(loader, dataset, options.get("num_workers", 0)), mailbox)


def _loader(dataset: object, options: dict[str, Any], mailbox: Mailbox | None, *, processes: bool = True) -> Any:
    if processes:
        return process_loader(dataset, mailbox=mailbox, **options)
    return ThreadLoader(dataset, **options)


def _mailbox(dataset: object, *, processes: bool) -> Mailbox | None:
    """What the worker processes of a pipeline leave their counts in."""
    if not processes or not isinstance(dataset, DataPipeline):
        return None
    mailbox = Mailbox()
    dataset.runner.progress.mailbox = mailbox.folder
    return mailbox


class LoadedRunner(StreamedRunner):
    """Runs a loader as the source of a pipeline; its workers know where it is."""

    def __init__(
        self, pipeline: RunnablePipeline, progress: PipelineProgress, wrap: Callable[[Any], Any], workers: Workers
    ) -> None:
        super().__init__(pipeline, progress, wrap)
        self.workers = workers
        self.limits = RoundLimits.of(pipeline)

    @property
    def later(self) -> list[Any]:
        """The stages after the loader."""
        return self.pipeline.pipeline[1:]

    def items(self) -> Iterator[Any]:
        """The items of the next pass, or of the next round of passes."""
        rounds = self._rounds()
        return super().items() if rounds is None else rounds.items(self.pipeline.iterator1)

    def one_pass(self, context: PassContext, opened: ExitStack) -> Iterator[Any]:
        """What the workers give in a pass, through the stages after the loader."""
        loader, *later = self.pipeline.pipeline
        of_workers = loader is self.workers.loader  # a program may have put something else in its place
        if of_workers:
            self.workers.begin()
        items = self._kept(opened, iter(self.pipeline.invoke(loader)))
        if of_workers:
            items = self._kept(opened, _timed(self._kept(opened, self.workers.items(items)), context.report))
        for stage in later:
            behaviour = behaviour_of(stage)
            watched = behaviour.kind == "expands" and behaviour.in_pool
            expansion = _Expansion(self.progress, stage)
            source = self._kept(opened, expansion.before(items)) if watched else items
            items = self._kept(opened, iter(self.pipeline.invoke(stage, source)))
            items = expansion.behind(items) if watched else items
        return items

    def length(self) -> int:
        """How many items the loader gives."""
        return self.limits.length(self._items_in_passes)

    def _items_in_passes(self, count: int) -> int:
        return self.workers.length(self.later, count)

    def state(self, position: object = None) -> dict[str, Any]:
        """The state after the latest item."""
        if position is not None:
            return super().state(position)
        stage = may_hold(self.later) or self.progress.expanded
        if stage is not None and self.workers.is_tracked:
            raise StateError(
                f"the state cannot be saved: the stage {stage!r} after the loader may hold samples",
                hint="put it into the dataset, before the loader",
            )
        return self.workers.state(self.limits)

    def load(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        self.workers.load(state, self.limits)

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the next pass, in the dataset and all its workers."""
        rounds = self._rounds()
        if hasattr(rounds, "set_epoch"):
            rounds.set_epoch(epoch)
        else:
            self.workers.set_epoch(epoch)
            super().set_epoch(epoch)

    def _rounds(self) -> Any:
        return self.workers.rounds(self.limits, held=may_hold(self.later) is not None)

    def _kept(self, opened: ExitStack, iterator: Iterator[Any]) -> Iterator[Any]:
        opened.callback(close, iterator)
        return iterator


def _timed(items: Iterator[Any], report: Report) -> Iterator[Any]:
    """What a loader gives; the report says how long it was waited for, received, and used."""
    ended = perf_counter()
    try:
        while True:
            received = spent.seconds
            item = next(items, _END)
            arrived = perf_counter()
            taken = spent.seconds - received
            report.spend("transfer", taken)
            report.spend("wait", arrived - ended - taken)
            if item is _END:
                return
            yield item
            del item  # nobody but the program holds a batch while the next one is waited for
            ended = perf_counter()
            report.spend("consumer", ended - arrived)
    finally:
        close(items)


_END: object = object()


def may_hold(stages: list[Any]) -> object:
    """The first of the stages after a loader that may hold samples which the loader has given; None without one."""
    return next((stage for stage in stages if not behaviour_of(stage).in_pool), None)


class _Expansion:
    """Watches a stage after a loader: once it has made several items of one, the loader's state does not say it all."""

    def __init__(self, progress: PipelineProgress, stage: object) -> None:
        self._progress = progress
        self._stage = stage
        self._items = 0

    def before(self, source: Iterable[Any]) -> Iterator[Any]:
        """What goes into the stage."""
        for item in source:
            self._items = 0
            yield item

    def behind(self, items: Iterable[Any]) -> Iterator[Any]:
        """What comes out of it."""
        for item in items:
            self._items += 1
            if self._items > 1:
                self._progress.expanded = self._stage
            yield item
