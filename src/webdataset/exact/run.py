"""A run of an exact pipeline: what one worker reads of an epoch, and what it makes of that, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from webdataset.base.context import PassContext
from webdataset.base.pool import ordered_map
from webdataset.base.reports import Report
from webdataset.base.workers import make_seed
from webdataset.epochs.mixed import Mixed
from webdataset.epochs.share import Share
from webdataset.errors import EmptyDatasetError
from webdataset.indices.reading import NEAR_GAP

from .feed import MISSING, Drawn, Feed
from .stages import first_batching

if TYPE_CHECKING:
    from webdataset.base.positions import Position

    from .program import Program

READERS = 4
"""The most threads that read from servers."""
AHEAD = 8
"""Windows that are read before they are wanted."""

Worked = tuple[int, list[Any], dict[str, Any]]
"""The number of a step, its items, and what was counted."""


class EpochRun:
    """A pass over an epoch, or the rest of one, by one worker: what it reads, and what it makes of that.

    `part` is an epoch and a share of it, if not this rank's; steps from `stop` on are left out; `readers` limits the
    threads that read; `base_seed` is what the seeds of stages without one are made from.
    """

    def __init__(
        self,
        program: Program,
        place: Position,
        report: Report,
        *,
        worker: int = 0,
        workers: int = 1,
        ahead: bool = False,
        part: tuple[Mixed, Share] | None = None,
        stop: int | None = None,
        readers: int | None = None,
        base_seed: int | None = None,
    ) -> None:
        self.program = program
        self.place = place
        self.report = report
        self._base_seed = base_seed
        epoch, self._share = part or program.part(place)
        self._samples = [source.shards.samples(report) for source in program.sources]
        if part is not None and epoch.fits:
            # others read what lies between: many small requests rather than every byte several times
            for samples in self._samples:
                samples.far_gap = NEAR_GAP
        self._feed = Feed(
            epoch,
            self._share,
            self._samples,
            report=report,
            handlers=[source.shards.handler for source in program.sources],
            worker=worker,
            workers=workers,
            base=place.where.base,
            stop=stop,
            ahead=partial(_read_ahead, readers or program.connections) if ahead else None,
        )

    def steps(self) -> Iterator[tuple[int, Drawn]]:
        """The numbers of the steps, and their samples as they are read."""
        if not self._share.steps and not self.place.where.start:
            batch = f"a batch of {self.program.cut.size}" if self.program.cut.is_batch else "one"
            message = f"{self._share.total} samples are too few for {batch} on each of {self._share.world} ranks"
            raise EmptyDatasetError(message, hint='use smaller batches, fewer ranks, or remainder="pad"')
        return self._feed.steps(self.place.where.step)

    def work(self, invoke: Callable[..., Any]) -> Callable[[tuple[int, Drawn]], Worked]:
        """What makes the items of a step of its samples."""
        epoch, seed = self.place.epoch, self._base_seed
        return _Work(self.program, self._feed, self._share, self.report, invoke, epoch=epoch, base_seed=seed)

    def close(self) -> None:
        """Close the shards."""
        for one in self._samples:
            one.close()


class _Work:
    """Makes the items of a step, by the stages; the report is that of the step alone, so that threads can do it."""

    def __init__(
        self,
        program: Program,
        feed: Feed,
        share: Share,
        report: Report,
        invoke: Callable[..., Any],
        *,
        epoch: int,
        base_seed: int | None = None,
    ) -> None:
        self._program = program
        self._base_seed = base_seed
        self._epoch = epoch
        self._feed = feed
        self._share = share
        self._report = report
        self._invoke = invoke
        self._tells_real = program.cut.remainder == "uneven"
        self._plain = len(program.sources) == 1 and not program.sources[0].stages
        first = first_batching(program.stages)
        self._single, self._batching = program.stages[:first], program.stages[first:]
        self._bare = self._plain and not program.stages and not self._tells_real

    def __call__(self, step_and_samples: tuple[int, Drawn]) -> Worked:
        step, drawn = step_and_samples
        if self._bare:
            return step, [sample for sample in drawn.samples if sample is not MISSING], {}
        seed = None if self._base_seed is None else make_seed(self._base_seed, step, bits=63)
        context = PassContext(epoch=self._epoch, strict=self._report.strict, base_seed=seed)
        report = context.report
        if self._tells_real:
            real = (self._share.positions(step) < self._share.total).tolist()
            marked = [
                sample if sample is MISSING else {**sample, "__real__": is_real}
                for sample, is_real in zip(drawn.samples, real, strict=True)
            ]
            drawn = drawn._replace(samples=marked)
        with context.in_force():
            kept = self._kept(drawn)
            items = self._applied(self._batching, kept)
            if not items and self._program.batches.batches and any(sample is not MISSING for sample in drawn.samples):
                items = self._refilled(step, kept, report)
        return step, items, {**report.counts, "reasons": dict(report.reasons)}

    def _kept(self, drawn: Drawn) -> list[Any]:
        """What the stages before the first batch leave of the samples."""
        if self._plain:
            samples = [sample for sample in drawn.samples if sample is not MISSING]
        else:
            samples = []
            pairs = (pair for pair in zip(drawn.parts, drawn.samples, strict=True) if pair[1] is not MISSING)
            for part, run in groupby(pairs, key=itemgetter(0)):
                samples += self._applied(self._program.sources[part].stages, [sample for _, sample in run])
        return self._applied(self._single, samples)

    def _applied(self, stages: Sequence[Any], samples: list[Any]) -> list[Any]:
        source: Iterator[Any] = iter(samples)
        for stage in stages:
            source = iter(self._invoke(stage, source))
        return list(source)

    def _refilled(self, step: int, kept: list[Any], report: Report) -> list[Any]:
        """A batch of which the pipeline left nothing would make ranks unequal: it gets the next samples that are left.

        That is one, or with `partial=False` as many as are missing.
        """
        cut = self._program.cut
        enough = cut.size if cut.whole else 1
        kept = kept if len(kept) < enough else []
        found = len(kept)
        last = int(self._share.positions(step)[-1])
        for position in range(last + 1, last + 1 + self._share.total):  # on from here, and around
            kept += self._kept(self._feed.at(position))
            if len(kept) >= enough:
                if items := self._applied(self._batching, kept[:enough] if cut.whole else kept):
                    report.count("samples_repeated", enough - found)
                    return items
                kept, found = [], 0
        left = "too few samples for a full batch" if cut.whole else "no sample of the dataset"
        raise EmptyDatasetError(f"the pipeline leaves {left}", hint="look at what select() drops")


def _read_ahead(connections: int | None, wanted: Iterator[Any], load: Callable[[Any], Any]) -> Iterator[Any]:
    readers = READERS if connections is None else min(READERS, connections)
    return ordered_map(wanted, load, threads=readers, begin_with=min(2, readers), ahead=AHEAD)
