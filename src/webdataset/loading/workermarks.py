"""Where the worker processes of a loader are, kept by the process that takes what they give.

A worker sends every item with its mark; the state of the loader is the latest mark of each, and whose turn it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from webdataset.base.iterables import TorchIterable
from webdataset.base.states import loader_places, loader_state
from webdataset.errors import StateError
from webdataset.resume.layout import NotResumableError, layout_of
from webdataset.resume.states import threads_mark, threads_state

from .threads import ThreadLoader, converted_as_torch


class Placed(TorchIterable):
    """A dataset as the workers of a loader read it: every item with its mark."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self.dataset.placed()  # type: ignore[no-any-return]

    def stats(self) -> dict[str, Any]:
        """What the dataset counts."""
        return self.dataset.stats()  # type: ignore[no-any-return]


def marked(dataset: Any, args: tuple[Any, ...], options: dict[str, Any]) -> WorkerMarks | None:
    """What keeps the marks of a loader with these arguments; None if it batches itself, or cannot be taken up again.

    The options are changed so that the loader reads items with their marks.
    """
    if args or options.get("batch_size", 1) is not None or options.get("sampler") is not None:
        return None
    try:
        layout_of(dataset.pipeline)
    except NotResumableError:
        return None
    options["collate_fn"] = EachMarked(options.get("collate_fn") or converted_as_torch)
    return WorkerMarks(dataset, options.get("num_workers", 0))


class ThreadMarks:
    """Where a loader with threads is: its pipelines know, and are asked when somebody wants to know."""

    def __init__(self, loader: ThreadLoader) -> None:
        self.loader = loader

    def begin(self) -> None:
        """A pass is about to begin."""

    def items(self, batches: Iterable[Any]) -> Iterator[Any]:
        """What the loader gives, as it is."""
        return iter(batches)

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the next pass."""
        self.loader.dataset.set_epoch(epoch)

    def forget(self) -> None:
        """The pass that is under way is over, and the next one is the next to be read."""
        self.loader.forget()

    def state_dict(self) -> dict[str, Any]:
        """The state after the latest item that was taken."""
        return threads_state(self._described(), self.loader.mark())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        self.loader.load_mark(threads_mark(self._described(), state))

    def _described(self) -> dict[str, Any]:
        loader = self.loader
        batches = {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "threads": loader.num_workers > 0}
        return {**loader.dataset.described(), **batches}


class EachMarked:
    """Applies a loader's collation to an item, and leaves its mark alone."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        mark, item = pair
        return mark, self.function(item)


class WorkerMarks:
    """The marks of a loader's workers.

    `begin()` before every pass, then `items()` over what the workers of the pass give, in the order in which torch's
    DataLoader does: one item of each in turn.
    """

    def __init__(self, dataset: Any, workers: int) -> None:
        self.dataset = dataset
        self.workers = max(workers, 1)
        self._marks: list[Any] | None = None
        self._next = 0
        self._loaded = False

    def begin(self) -> None:
        """A pass is about to begin."""
        if not self._loaded:
            self._marks, self._next = self._first_marks(), 0

    def items(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        """The items of pairs (mark, item), beginning with those of the worker whose turn it is."""
        self._loaded = False
        assert self._marks is not None, "begin() comes before items()"
        for mark, item in _turned(pairs, self._next):
            self.dataset.resumed()
            worker = mark[5][2]
            self._marks[worker] = mark
            self._next = (worker + 1) % self.workers
            yield item
        self.dataset.resumed()
        self._marks, self._next = None, 0

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the next pass of all workers; a state that was loaded counts if it is of that epoch."""
        if self._loaded and all(mark[0] == epoch for mark in self._marks or ()):
            return
        self._marks, self._next, self._loaded = None, 0, False
        self.dataset.resumed()
        self.dataset.set_epoch(epoch)

    def forget(self) -> None:
        """The pass that is under way is over, and the next one is the next to be read, by all workers."""
        self.dataset.set_epoch(self.dataset.next_epoch())
        self._marks, self._next = None, 0

    def state_dict(self) -> dict[str, Any]:
        """The state after the latest item that was taken."""
        marks = self._first_marks() if self._marks is None else self._marks
        return loader_state([self.dataset.state_from_mark(mark) for mark in marks], self._next)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the workers that are started next go on where the state was saved."""
        states, self._next = loader_places(self.dataset, state, self.workers)
        self._marks = [each["mark"] for each in states]
        for worker, mark in enumerate(self._marks):
            who = self.dataset.who(worker, self.workers)
            if tuple(mark[5]) != who:
                raise StateError(f"the state is that of rank {mark[5][0]} of {mark[5][1]}, not {who[0]} of {who[1]}")
        self._loaded = True
        self.dataset.load_marks(self._marks)

    def _first_marks(self) -> list[Any]:
        return [self.dataset.next_mark(worker, self.workers) for worker in range(self.workers)]


def end_workers(loader: Any) -> None:
    """End the worker processes that a DataLoader keeps from pass to pass: they know nothing of a loaded state."""
    kept = getattr(loader, "_iterator", None)
    if kept is not None:
        kept._shutdown_workers()
        loader._iterator = None


def _turned(pairs: Iterable[tuple[Any, Any]], first: int) -> Iterator[tuple[Any, Any]]:
    """What workers give in turn from worker 0 on, beginning with another: in each round, those before it come last."""
    held: list[tuple[Any, Any]] = []
    latest = -1
    for pair in pairs:
        worker = pair[0][5][2]
        if worker <= latest:
            yield from held
            held = []
        latest = worker
        if worker < first:
            held.append(pair)
        else:
            yield pair
    yield from held
