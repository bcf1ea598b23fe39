"""The samples of an epoch that one worker gives, step by step, read a window at a time.

Windows are read in the order in which their first sample is wanted, ahead of time from servers. Of a window
the worker reads only the samples that are its own, so what all workers read together is the dataset, once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from operator import itemgetter
from typing import Any, NamedTuple

from webdataset.base.reports import Report
from webdataset.epochs.mixed import Mixed
from webdataset.epochs.numbers import Array
from webdataset.epochs.order import Window, samples_of
from webdataset.epochs.share import Share
from webdataset.handlers import Handler, close
from webdataset.indices.reading import Samples

AT_A_TIME = 64
"""Samples that are read at the same time just before they are given."""
STRETCH = 2048
"""Samples of a lane that are looked up at the same time."""
MISSING: Any = None
"""Stands for a sample that could not be read, where the handler said to go on."""


class Drawn(NamedTuple):
    """The samples of a step, and the number of the dataset that each is of."""

    samples: list[Any]
    """Each a sample, or MISSING."""
    parts: list[int]


class WantedSamples(NamedTuple):
    """Samples of one dataset that are read at the same time, those of one shard side by side, as they lie there."""

    part: int
    positions: Array
    """Where in the epoch they come."""
    shards: Array
    numbers: Array
    """Which samples of their shards they are."""

    def some(self, these: Array) -> WantedSamples:
        """Those at these places."""
        return WantedSamples(self.part, self.positions[these], self.shards[these], self.numbers[these])


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
        stop: int | None = None,
        ahead: Callable[[Iterator[WantedSamples], Callable[[WantedSamples], Any]], Iterator[Any]] | None = None,
    ) -> None:
        self._epoch = epoch
        self._share = share
        self._samples = samples
        self._report = report
        self._handlers = handlers
        self._worker = worker
        self._workers = workers
        self._base = base
        self._stop = share.steps if stop is None else stop
        self._ahead = _when_wanted if ahead is None else ahead

    def steps(self, first: int = 0) -> Iterator[tuple[int, Drawn]]:
        """The steps of this worker from the first one on: their numbers and samples."""
        waiting: dict[int, Any] = {}
        parts: dict[int, int] = {}
        mixed = len(self._epoch.passes) > 1
        loaded = iter(self._ahead(self._wanted(first), self._load))
        try:
            for step, positions in self._share.each(first):
                if step >= self._stop:
                    break
                if not self._is_mine(step):
                    continue
                own, again = self._apart(positions)
                while not waiting.keys() >= own:
                    part, places, samples = next(loaded)
                    waiting.update(zip(places, samples, strict=True))
                    if mixed:
                        parts.update(zip(places, repeat(part)))
                for position in again:
                    self._report.count("samples_repeated")
                    waiting[position], parts[position] = self._at(position)
                drawn_from = list(map(parts.pop, positions)) if mixed else [0] * len(positions)
                yield step, Drawn(list(map(waiting.pop, positions)), drawn_from)
        finally:
            close(loaded)

    def at(self, position: int) -> Drawn:
        """The sample at a position; they count on from the beginning after the end."""
        sample, part = self._at(position)
        return Drawn([sample], [part])

    def _at(self, position: int) -> tuple[Any, int]:
        import numpy as np

        found = self._epoch.locate(np.array([position % self._epoch.total]))
        part, shard, number = (int(column[0]) for column in found)
        return self._read(part, shard, [number])[0], part

    def _apart(self, positions: list[int]) -> tuple[set[int], list[int]]:
        """The positions of the epoch, and those beyond its end: samples given again, so that all ranks have as many."""
        total = self._epoch.total
        if max(positions, default=0) < total:
            return set(positions), []
        return {place for place in positions if place < total}, [place for place in positions if place >= total]

    def _is_mine(self, step: Any) -> Any:
        """Whether this worker gives a step: the steps from the base on go to the workers in turn."""
        return (step - self._base) % self._workers == self._worker

    # -- what is wanted --------------------------------------------------------------------------

    def _wanted(self, first_step: int) -> Iterator[WantedSamples]:
        """The windows in which this worker has samples, in the order in which it comes to them."""
        streams = [
            self._wanted_of(part, lane, first_step)
            for lane in self._share.lanes()
            for part in range(len(self._epoch.passes))
        ]
        in_order = (wanted for _, wanted in heapq.merge(*streams, key=itemgetter(0)))
        return self._of_all(in_order) if self._epoch.fits else in_order

    def _of_all(self, windows: Iterator[WantedSamples]) -> Iterator[WantedSamples]:
        """The same samples, where all may be in memory: shard by shard, or when they are due if that costs nothing."""
        import numpy as np

        by_part: dict[int, list[WantedSamples]] = {}
        for wanted in windows:
            by_part.setdefault(wanted.part, []).append(wanted)
        due = []
        for part, group in by_part.items():
            columns = zip(*(wanted[1:] for wanted in group), strict=True)
            whole = WantedSamples(part, *(np.concatenate(column) for column in columns))
            if self._samples[part].at_hand:
                self._samples[part].expect_all()
                due.append(self._by_steps(whole))
            else:
                yield from _by_shards(whole, self._samples[part].together)
        yield from (wanted for _, wanted in heapq.merge(*due, key=itemgetter(0)))

    def _by_steps(self, wanted: WantedSamples) -> Iterator[tuple[Any, WantedSamples]]:
        """Samples a few at a time as steps want them, with their first step and position."""
        import numpy as np

        steps = self._share.steps_of(wanted.positions)
        order = np.lexsort((wanted.positions, steps))
        for few in np.split(order, range(AT_A_TIME, len(order), AT_A_TIME)):
            if len(few):
                when = int(steps[few[0]]), int(wanted.positions[few[0]]), wanted.part
                yield when, wanted.some(few[np.lexsort((wanted.numbers[few], wanted.shards[few]))])

    def _wanted_of(self, part: int, lane: int, first_step: int) -> Iterator[tuple[Any, WantedSamples]]:
        """The windows of a lane with when they are wanted: the first step and position."""
        epoch, lowest = self._epoch, self._share.lowest(first_step)
        turns = epoch.turns_of(part, lane)
        done = 0
        for one in epoch.passes[part]:
            begin = turns.before((lowest - lane + epoch.lanes - 1) // epoch.lanes) - done
            if begin < one.lengths[lane]:
                for windows in _stretches(one.order.windows(lane, begin), one.lengths[lane]):
                    last = min(windows[-1].first + windows[-1].size, one.lengths[lane])
                    positions = turns[done + windows[0].first : done + last] * epoch.lanes + lane
                    yield from self._wanted_in(part, windows, positions, first_step)
            done += one.lengths[lane]

    def _wanted_in(
        self, part: int, windows: list[Window], positions: Array, first_step: int
    ) -> Iterator[tuple[Any, WantedSamples]]:
        """The samples of some windows that this worker gives, by windows; `positions` are those of all samples."""
        import numpy as np

        steps = self._share.steps_of(positions)
        mine = np.flatnonzero((steps >= first_step) & (steps < self._stop) & self._is_mine(steps))
        if not len(mine):
            return
        shards, numbers = (column[mine] for column in samples_of(windows))
        of_window = np.repeat(np.arange(len(windows)), [window.size for window in windows])[mine]
        order = np.lexsort((numbers, shards, of_window))
        columns = [column[order] for column in (positions[mine], shards, numbers)]
        borders = np.flatnonzero(np.diff(of_window, prepend=-1))
        first_steps = np.minimum.reduceat(steps[mine], borders).tolist()
        first_places = positions[mine][borders].tolist()
        edges = pairwise([*borders.tolist(), len(mine)])
        for step, place, (low, high) in zip(first_steps, first_places, edges, strict=True):
            yield (step, place, part), WantedSamples(part, *(column[low:high] for column in columns))

    # -- reading ---------------------------------------------------------------------------------

    def _load(self, wanted: WantedSamples) -> tuple[int, list[int], list[Any]]:
        """The wanted samples: the dataset, their positions, and themselves."""
        import numpy as np

        numbers = wanted.numbers.tolist()
        borders = [0, *(np.flatnonzero(np.diff(wanted.shards)) + 1).tolist(), len(numbers)]
        found: list[Any] = []
        for low, high in pairwise(borders):
            found += self._read(wanted.part, int(wanted.shards[low]), numbers[low:high])
        return wanted.part, wanted.positions.tolist(), found

    def _read(self, part: int, shard: int, numbers: list[int]) -> list[Any]:
        try:
            return self._samples[part].read(shard, numbers)
        except Exception as exn:
            if not self._report.ask(self._handlers[part], exn, "shards_skipped"):
                raise
            self._report.count("samples_dropped", len(numbers))
            return [MISSING] * len(numbers)


def _stretches(windows: Iterator[Window], length: int) -> Iterator[list[Window]]:
    """The windows of a lane of which `length` samples are used, several together; few at first, to begin soon."""
    together: list[Window] = []
    count, enough = 0, 1
    for window in windows:
        if window.first >= length:
            break
        together.append(window)
        count += window.size
        if count >= enough:
            yield together
            together, count, enough = [], 0, STRETCH
    if together:
        yield together


def _by_shards(wanted: WantedSamples, together: int) -> Iterator[WantedSamples]:
    """The same samples shard by shard, `together` at a time: reading is as sequential as it gets."""
    import numpy as np

    order = np.lexsort((wanted.numbers, wanted.shards))
    for here in np.split(order, np.flatnonzero(np.diff(wanted.shards[order])) + 1):
        for few in np.split(here, range(together, len(here), together)):
            yield wanted.some(few)


def _when_wanted(wanted: Iterator[WantedSamples], load: Callable[[WantedSamples], Any]) -> Iterator[Any]:
    return map(load, wanted)
