"""The samples of an epoch that one worker gives, step by step, read a window at a time.

Windows are read in the order in which their first sample is wanted, ahead of time from servers. Of a window
the worker reads only the samples that are its own, so what all workers read together is the dataset, once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, NamedTuple

from webdataset.handlers import Handler, close
from webdataset.reports import Report

from .mixed import Mixed
from .numbers import Array
from .order import Window
from .reading import Samples
from .share import Share

TOGETHER = 512
"""Samples of a shard that are read at the same time, where order does not matter."""
MISSING: Any = None
"""Stands for a sample that could not be read, where the handler said to go on."""

Drawn = tuple[int, Any]
"""The number of the dataset, and a sample of it, or MISSING."""


class Wanted(NamedTuple):
    """Samples that are read at the same time: those of a window at some places in it, or some of one shard."""

    part: int
    positions: Array
    """Where in the epoch they come."""
    window: Window | None = None
    places: Array = None
    shards: Array = None
    numbers: Array = None

    def samples(self) -> tuple[Array, Array]:
        """The shard of each, and its number there."""
        if self.window is None:
            return self.shards, self.numbers
        runs, numbers = self.window.samples()
        return self.window.shards[runs[self.places]], numbers[self.places]


class Feed:
    """What one worker of one rank gives in an epoch."""

    def __init__(
        self,
        epoch: Mixed,
        share: Share,
        samples: Sequence[Samples],
        *,
        report: Report,
        handlers: Sequence[Handler],
        worker: int = 0,
        workers: int = 1,
        base: int = 0,
        ahead: Callable[[Iterator[Wanted], Callable[[Wanted], Any]], Iterator[Any]] | None = None,
    ) -> None:
        self._epoch = epoch
        self._share = share
        self._samples = samples
        self._report = report
        self._handlers = handlers
        self._worker = worker
        self._workers = workers
        self._base = base
        self._ahead = _when_wanted if ahead is None else ahead

    def steps(self, first: int = 0) -> Iterator[tuple[int, list[Drawn]]]:
        """The steps of this worker from the first one on: their numbers and samples."""
        waiting: dict[int, Drawn] = {}
        loaded = iter(self._ahead(self._wanted(first), self._load))
        total = self._epoch.total
        try:
            for step in range(first, self._share.steps):
                if not self._is_mine(step):
                    continue
                found: list[Drawn] = []
                for position in self._share.positions(step).tolist():
                    if position >= total:
                        found.append(self._again(position))
                        continue
                    while position not in waiting:
                        waiting.update(next(loaded))
                    found.append(waiting.pop(position))
                yield step, found
        finally:
            close(loaded)

    def at(self, positions: Array) -> list[Drawn]:
        """The samples at some positions, read one by one; positions count on from the beginning after the end."""
        places = zip(*(column.tolist() for column in self._epoch.locate(positions % self._epoch.total)), strict=True)
        return [(part, self._read(part, shard, [number])[0]) for part, shard, number in places]

    def _is_mine(self, step: Any) -> Any:
        """Whether this worker gives a step: the steps from the base on go to the workers in turn."""
        return (step - self._base) % self._workers == self._worker

    # -- what is wanted --------------------------------------------------------------------------

    def _wanted(self, first_step: int) -> Iterator[Wanted]:
        """The windows in which this worker has samples, in the order in which it comes to them."""
        streams = [
            self._wanted_of(part, lane, first_step)
            for lane in self._share.lanes()
            for part in range(len(self._epoch.passes))
        ]
        in_order = (wanted for _, wanted in heapq.merge(*streams, key=itemgetter(0)))
        return self._by_shards(in_order) if self._epoch.fits else in_order

    def _by_shards(self, windows: Iterator[Wanted]) -> Iterator[Wanted]:
        """The same samples shard by shard: where all fit into memory, reading can be as sequential as it gets."""
        import numpy as np

        by_part: dict[int, list[Wanted]] = {}
        for wanted in windows:
            by_part.setdefault(wanted.part, []).append(wanted)
        for part, group in by_part.items():
            columns = zip(*((*wanted.samples(), wanted.positions) for wanted in group), strict=True)
            shards, numbers, positions = (np.concatenate(column) for column in columns)
            order = np.lexsort((numbers, shards))
            for here in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1):
                for few in np.split(here, range(TOGETHER, len(here), TOGETHER)):
                    yield Wanted(part, positions[few], shards=shards[few], numbers=numbers[few])

    def _wanted_of(self, part: int, lane: int, first_step: int) -> Iterator[tuple[Any, Wanted]]:
        import numpy as np

        epoch = self._epoch
        turns = epoch.turns_of(part, lane)
        done = 0
        for one in epoch.passes[part]:
            used = one.lengths[lane]
            for window in one.order.windows(lane):
                if window.first >= used:
                    break
                count = min(window.size, used - window.first)
                positions = turns[done + window.first : done + window.first + count] * epoch.lanes + lane
                if positions[-1] < self._share.start:
                    continue
                steps = self._share.steps_of(positions)
                places = np.flatnonzero((steps >= first_step) & self._is_mine(steps))
                if len(places):
                    positions, first = positions[places], int(steps[places].min())
                    yield (first, int(positions[0]), part), Wanted(part, positions, window, places)
            done += used

    # -- reading ---------------------------------------------------------------------------------

    def _load(self, wanted: Wanted) -> Iterator[tuple[int, Drawn]]:
        """The wanted samples of a window, with their positions."""
        import numpy as np

        shards, numbers = wanted.samples()
        order = np.lexsort((numbers, shards))
        borders = np.flatnonzero(np.diff(shards[order])) + 1
        result: list[Any] = [MISSING] * len(order)
        for here in np.split(order, borders):
            found = self._read(wanted.part, int(shards[here[0]]), numbers[here].tolist())
            for place, sample in zip(here.tolist(), found, strict=True):
                result[place] = sample
        return zip(wanted.positions.tolist(), zip(repeat(wanted.part), result), strict=False)

    def _read(self, part: int, shard: int, numbers: list[int]) -> list[Any]:
        try:
            return self._samples[part].read(shard, numbers)
        except Exception as exn:
            if not self._report.ask(self._handlers[part], exn, "shards_skipped"):
                raise
            self._report.count("samples_dropped", len(numbers))
            return [MISSING] * len(numbers)

    def _again(self, position: int) -> Drawn:
        """A sample that is given a second time, so that all ranks have as many."""
        import numpy as np

        self._report.count("samples_repeated")
        return self.at(np.array([position]))[0]


def _when_wanted(wanted: Iterator[Wanted], load: Callable[[Wanted], Any]) -> Iterator[Any]:
    return map(load, wanted)
