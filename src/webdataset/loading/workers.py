"""The workers of a loader of a streamed dataset, and where it is: kept by the process that takes what they give.

A worker process sends every item with its position; the state of the loader is the latest position of each, and whose
turn it is. Threads are asked when somebody wants to know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from webdataset.base.iterables import TorchIterable
from webdataset.base.mailbox import publish
from webdataset.base.positions import Position
from webdataset.base.rounds import RoundLimits, check_same, rounds
from webdataset.base.states import loader_places, loader_state
from webdataset.base.workers import is_loader_worker
from webdataset.errors import StateError
from webdataset.handlers import close
from webdataset.resume.layout import NotResumableError, layout_of
from webdataset.resume.positions import restored
from webdataset.resume.states import threads_position, threads_state

from .threads import ThreadLoader

if TYPE_CHECKING:
    from webdataset.pipeline import DataPipeline

REPORT_SECONDS = 1.0
"""How often a worker process leaves its report for the loader."""
_END: object = object()


class Workers(Protocol):
    """What runs the passes of a loader, and knows after which item it is."""

    loader: Any
    """What gives their items: torch's loader, or ours."""
    is_tracked: bool
    """Whether it is known after which item it is."""
    resumes_steps: bool
    """Whether it can go on in the middle of an epoch with any number of workers."""

    def begin(self) -> None: ...
    def items(self, source: Iterable[Any]) -> Iterator[Any]: ...
    def rounds(self, limits: RoundLimits, *, held: bool) -> Any: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state(self, limits: RoundLimits) -> dict[str, Any]: ...
    def load(self, state: dict[str, Any], limits: RoundLimits) -> None: ...
    def length(self, later: list[Any], passes: int) -> int: ...


class UntrackedWorkers:
    """Workers of a loader whose position is not known: it batches itself, or reads what cannot be resumed."""

    resumes_steps = is_tracked = False

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def begin(self) -> None:
        """A pass is about to begin."""

    def items(self, source: Iterable[Any]) -> Iterator[Any]:
        """What the loader gives, as it is."""
        return iter(source)

    def rounds(self, limits: RoundLimits, *, held: bool) -> _StreamRounds | None:  # noqa: ARG002 - the same for all of these
        """Passes are repeated and cut as those of any pipeline."""
        return None

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the dataset's next pass, if it has epochs."""
        inner = getattr(self.loader.dataset, "set_epoch", None)
        if callable(inner):
            inner(epoch)

    def state(self, limits: RoundLimits) -> dict[str, Any]:  # noqa: ARG002
        """There is none."""
        hint = 'WebLoader(dataset.batched(n), batch_size=None), workers="thread", or exact=True make it possible'
        raise StateError("the state of this loader cannot be saved", hint=hint)

    def load(self, state: dict[str, Any], limits: RoundLimits) -> None:  # noqa: ARG002
        """There is none."""
        raise StateError("a state cannot be loaded into this loader", hint="it cannot save one either")

    def length(self, later: list[Any], passes: int) -> int:  # noqa: ARG002
        """How many items there are is not known before they were read."""
        raise TypeError("the length of a loader of streamed data is not known: with_length(n) declares it")


class StreamWorkers(UntrackedWorkers):
    """Workers of which it is known where each is."""

    is_tracked = True

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._round = _Round()

    def rounds(self, limits: RoundLimits, *, held: bool) -> _StreamRounds | None:  # noqa: ARG002
        """Each round begins with a new pass."""
        return None if limits.is_one_pass else _StreamRounds(self._round, limits, self.finish_pass)

    def state(self, limits: RoundLimits) -> dict[str, Any]:
        """The state after the latest item that was taken."""
        state = self.state_of_pass()
        return state if limits.is_one_pass else {**state, "round": self._round.state(limits)}

    def load(self, state: dict[str, Any], limits: RoundLimits) -> None:
        """Make the next pass go on where the state was saved."""
        self._round.load(state, limits, self.load_pass)

    def finish_pass(self) -> None:
        """The pass that is under way is over, and the next one is the next to be read, by all workers."""
        raise NotImplementedError

    def state_of_pass(self) -> dict[str, Any]:
        """The state without what it says of the round."""
        raise NotImplementedError

    def load_pass(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        raise NotImplementedError


class ThreadWorkers(StreamWorkers):
    """Threads: the pipelines know where they are, and are asked when somebody wants to know."""

    loader: ThreadLoader

    def finish_pass(self) -> None:
        """The pass that is under way is over, and the next one is the next to be read."""
        self.loader.finish_pass()

    def state_of_pass(self) -> dict[str, Any]:
        """The state after the latest item that was taken."""
        return threads_state(self._described(), self.loader.position())

    def load_pass(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        self.loader.seek(threads_position(self._described(), state))

    def _described(self) -> dict[str, Any]:
        loader = self.loader
        batches = {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "threads": loader.num_workers > 0}
        return {**loader.dataset.runner.described(), **batches}


class WithPositions(TorchIterable):
    """A dataset as the worker processes of a loader read it: every item with its position."""

    def __init__(self, dataset: DataPipeline) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return reported(self.dataset.placed(), self.dataset)

    def stats(self) -> dict[str, Any]:
        """What the dataset counts."""
        return self.dataset.stats()


def reported(items: Iterator[Any], dataset: DataPipeline) -> Iterator[Any]:
    """The items of a dataset in a worker, whose report tells how long they took, and is left for the loader."""
    if not is_loader_worker():
        yield from items
        return
    progress = dataset.runner.progress
    left = perf_counter()
    try:
        while True:
            began = perf_counter()
            item = next(items, _END)
            now = perf_counter()
            if item is _END:
                return
            if progress.context is not None:
                progress.context.report.spend("active", now - began)
                if now - left > REPORT_SECONDS:
                    left = now
                    publish(progress.mailbox, progress.context.report)
            yield item
    finally:
        close(items)


class EachPositioned:
    """Applies a loader's collation to an item, and leaves its position alone."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        position, item = pair
        return position, self.function(item)


def sends_positions(dataset: DataPipeline, options: dict[str, Any]) -> bool:
    """Whether worker processes of a loader with these arguments can send items with their positions."""
    if options.get("batch_size", 1) is not None or options.get("sampler") is not None:
        return False
    try:
        layout_of(dataset.pipeline)
    except NotResumableError:
        return False
    return True


def with_positions(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a loader that reads items with their positions."""
    return {**options, "collate_fn": EachPositioned(options["collate_fn"])}


class ProcessWorkers(StreamWorkers):
    """Worker processes.

    `begin()` before every pass, then `items()` over what the workers of the pass give, in the order in which torch's
    DataLoader does: one item of each in turn.
    """

    def __init__(self, loader: Any, dataset: DataPipeline, workers: int) -> None:
        super().__init__(loader)
        self.dataset = dataset
        self.workers = max(workers, 1)
        self._latest: list[Position] | None = None
        """The latest position of each worker."""
        self._next = 0
        """Whose turn it is."""
        self._loaded = False

    def begin(self) -> None:
        """A pass is about to begin."""
        if not self._loaded:
            self._latest, self._next = self._first_positions(), 0

    def items(self, source: Iterable[tuple[Position, Any]]) -> Iterator[Any]:
        """The items of pairs (position, item), beginning with those of the worker whose turn it is."""
        self._loaded = False
        latest, mark_started = self._latest, self.dataset.runner.mark_started
        assert latest is not None, "begin() comes before items()"
        for position, item in _turned(source, self._next):
            mark_started()
            worker = position.where.owner.worker
            latest[worker] = position
            self._next = (worker + 1) % self.workers
            yield item
        mark_started()
        self._latest, self._next = None, 0

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of all workers' next pass; a state that was loaded counts if it is of that epoch."""
        if self._loaded and all(position.epoch == epoch for position in self._latest or ()):
            return
        self._latest, self._next, self._loaded = None, 0, False
        self.dataset.runner.mark_started()
        self.dataset.set_epoch(epoch)

    def finish_pass(self) -> None:
        """The pass that is under way is over, and the next one is the next to be read, by all workers."""
        self.dataset.set_epoch(self.dataset.runner.next_epoch())
        self._latest, self._next = None, 0

    def state_of_pass(self) -> dict[str, Any]:
        """The state after the latest item that was taken."""
        positions = self._first_positions() if self._latest is None else self._latest
        return loader_state([self.dataset.runner.state(position) for position in positions], self._next)

    def load_pass(self, state: dict[str, Any]) -> None:
        """Make the workers that are started next go on where the state was saved."""
        runner = self.dataset.runner
        states, next_worker = loader_places(runner.described(), state, self.workers)
        positions = [restored(each["mark"]) for each in states]
        for worker, position in enumerate(positions):
            saved, owner = position.where.owner, runner.owner(worker, self.workers)
            if saved != owner:
                here = f"{owner.rank} of {owner.world}"
                raise StateError(f"the state is that of rank {saved.rank} of {saved.world}, not {here}")
        self._latest, self._next, self._loaded = positions, next_worker, True
        runner.seek_workers(positions)
        end_workers(self.loader)

    def _first_positions(self) -> list[Position]:
        return [self.dataset.runner.next_position(worker, self.workers) for worker in range(self.workers)]


class _Round:
    """Where a loader of streamed data is in its round: the passes that were complete, and the items that were given."""

    def __init__(self) -> None:
        self.passes = self.given = 0
        self.loaded = False

    def state(self, limits: RoundLimits) -> dict[str, Any]:
        """What a state says of the round."""
        return {"passes": limits.passes, "items": limits.items, "turn": self.passes, "given": self.given}

    def load(self, state: object, limits: RoundLimits, load_pass: Callable[[Any], None]) -> None:
        """Make the next round go on where the state says, and with `load_pass` its pass; all of it or nothing."""
        saved = state.get("round") if isinstance(state, dict) else None
        saved = saved or {"passes": 1, "items": 0, "turn": 0, "given": 0}
        try:
            passes, items, turn, given = (saved[name] for name in ("passes", "items", "turn", "given"))
        except (KeyError, TypeError) as exn:
            raise StateError(f"the state is damaged: {type(exn).__name__} at {exn}") from None
        check_same(passes, items, limits)
        load_pass(state)
        self.passes, self.given, self.loaded = turn, given, True


class _StreamRounds(NamedTuple):
    """The rounds of a loader of streamed data: each begins with a new pass."""

    round: _Round
    limits: RoundLimits
    finish_pass: Callable[[], None]

    def items(self, one_pass: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The items of the next round, or of the rest of the one that was resumed."""
        at, most = self.round, self.limits.items or sys.maxsize
        resumed, at.loaded = at.loaded, False
        if not resumed:
            at.passes = at.given = 0

        def took(passes: int, given: int) -> None:
            if given == most:
                self.finish_pass()
            at.passes, at.given = passes, given

        passes = at.passes, self.limits.passes or sys.maxsize
        yield from rounds(lambda *_: one_pass(), took, passes=passes, items=(at.given, most), resumed=resumed)
        at.passes = at.given = 0


def end_workers(loader: Any) -> None:
    """End the worker processes that a DataLoader keeps from pass to pass: they know nothing of a loaded state."""
    kept = getattr(loader, "_iterator", None)
    if kept is not None:
        kept._shutdown_workers()
        loader._iterator = None


def _turned(pairs: Iterable[tuple[Position, Any]], first: int) -> Iterator[tuple[Position, Any]]:
    """What workers give in turn from worker 0 on, beginning with another: in each round, those before it come last."""
    held: list[tuple[Any, Any]] = []
    latest = -1
    for pair in pairs:
        worker = pair[0].where.owner.worker
        if worker <= latest:
            yield from held
            held = []
        latest = worker
        if worker < first:
            held.append(pair)
        else:
            yield pair
    yield from held
