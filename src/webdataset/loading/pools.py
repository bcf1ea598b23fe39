"""Thread workers: the stages of a pipeline that run in pools of threads.

>>> from webdataset.filters import map
>>> list(DataPipeline(*pooled([range(5), map(str)], threads=3)))
['0', '1', '2', '3', '4']

A pipeline is cut into parts, each read by one thread and worked on by several:

    source, tar, shuffle | decode, map, to_tuple | listed | collated | stages of the user's own
    one reader           | N threads, fused      | reader | a thread | the consumer

Everything before a run of per-sample stages is built, read and closed in one thread, so it need not be thread-safe.
Handlers are asked by whoever takes the results, in the order of the samples, as without threads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import length_hint
from typing import Any

from webdataset.base.behaviour import behaviour_of
from webdataset.base.context import PassContext, current_pass
from webdataset.base.pool import ordered_map
from webdataset.base.positions import Position, named
from webdataset.base.reports import STAGES, Report
from webdataset.base.stages import PipelineStage, Stage
from webdataset.filters.batches import _collated
from webdataset.filters.order import size_in_bytes
from webdataset.handlers import Handler, close, reraise_exception
from webdataset.pipeline import DataPipeline
from webdataset.resume.positions import Ahead, restored

GROUP_SECONDS = 0.01
GROUP_BYTES = 1 << 20
GROUP_SAMPLES = 256
"""Samples are handed to a thread in groups that keep it busy for about this long, and hold no more than this."""
SLOW_SECONDS = 0.002
"""A source that takes longer for a group is slow: what it has given by then goes on its way."""


class Pooled(PipelineStage):
    """The source of a pipeline: the stages `before`, read by one thread, and per-sample stages run by several."""

    runs_ahead = True

    def __init__(self, before: Sequence[Any], stages: Sequence[Stage], *, threads: int, ahead: int, group: int) -> None:
        self.before = list(before)
        self.stages = list(stages)
        self.threads = threads
        self.ahead = ahead
        self.group = group
        self._start: Ahead | None = None
        """Where the next pass is to begin, if a state was loaded."""
        self._begun_at: Any = None
        """Where this pass has begun, None for the beginning."""
        self._passing: Any = None
        """The groups of samples, the one whose items are being given, and those that are left of it."""
        self._latest: Any = None
        """The groups of samples; where their reader was after the latest item that was given, None where this pass
        has begun; and how many items of its next one were given, too."""

    def run(self, src: object = None) -> Iterator[Any]:  # noqa: ARG002 - a source has none
        context = current_pass()
        _fused(self.stages, PassContext(), _Group([], []))  # wrong options are an error before anything is read
        before = DataPipeline()
        before.pipeline, before.strict = self.before, context.strict
        before.runner.progress.base_seed = context.seed()
        before.set_epoch(context.epoch)
        (position, given), self._start = self._start or (None, 0), None
        if position is not None:
            # what stages keep from pass to pass is the dataset's, who has taken it over already
            position = restored(position)
            before.runner.seek(position._replace(where=position.where._replace(kept=())))
        self._begun_at = position
        groups = _Groups(before, self.group)
        self._latest, self._passing = (groups, None, given), None
        items = self._items(groups, context)
        return _after(items, given) if given else items

    # -- where it is -----------------------------------------------------------------------------

    @property
    def pipeline(self) -> list[Any]:
        """The stages before, which must be resumable themselves."""
        return self.before

    def position(self) -> Any:
        """Where it is, after the latest item that was given: `saved(position)` says so for a state, also later."""
        if self._passing is not None:
            groups, group, items = self._passing
            if given := len(group.items) - length_hint(items):
                return groups, group.places[group.numbers[given - 1]], 0
        return self._latest

    def saved(self, position: Any) -> Ahead:
        """What `seek` needs to begin at a position."""
        groups, at, given = position
        return Ahead(self._begun_at if at is None else groups.position_of(at), given)

    def seek(self, saved: object) -> None:
        """Make the next pass begin where this was saved."""
        self._start = None if saved is None else named(Ahead, saved)

    def stats(self) -> dict[str, Any]:
        """What the datasets within count; the pipeline that this is a part of counts the rest."""
        before = DataPipeline()
        before.pipeline = self.before
        return before.stats()

    def _items(self, groups: _Groups, context: PassContext) -> Iterator[Any]:
        report = context.report
        work = partial(_timed, groups, partial(_fused, self.stages, context))
        outcomes = ordered_map(groups, work, threads=self.threads, ahead=self.ahead)
        complete = None
        try:
            for group in outcomes:
                report.add(group.counts)
                places = group.places
                if group.one_by_one:
                    items = iter(group.items)
                    self._passing = groups, group, items
                    yield from items
                    self._latest, self._passing = self.position(), None
                else:
                    for item, (number, given) in zip(group.items, group.numbered(), strict=True):
                        # where more items of its sample follow, the place is the one before that
                        complete = places[number] if not given else places[number - 1] if number else complete
                        self._latest = groups, complete, given
                        if not isinstance(item, _Event):
                            yield item
                        elif not item.happened(report):
                            return
                complete = places[-1] if places else complete
        finally:
            close(outcomes)


def pooled(stages: Sequence[Any], threads: int, *, batches: int = 2) -> list[Any]:
    """The stages of a pipeline, with those for single samples and for batches run by threads.

    `batches` is how many batches may be waiting. Where the first function of the user's own follows, the consumer
    takes over. A pipeline without anything for threads to do is read ahead by one.

    >>> from webdataset.filters import map, shuffle
    >>> [type(stage).__name__ for stage in pooled([range(3), map(str), shuffle(10), map(int), print], 4)]
    ['Pooled', 'builtin_function_or_method']
    """
    done, rest = list(stages[:1]), deque(chain.from_iterable(split(stage) for stage in stages[1:]))
    while rest:
        run: list[Stage] = []
        while rest and _per_sample(rest[0]):
            run.append(rest.popleft())
        if run:
            done = [_pool(done, run, threads, batches)]
        elif isinstance(done[0], Pooled) and not _arranges(rest[0]):
            break
        else:
            done.append(rest.popleft())
    if not any(isinstance(stage, Pooled) for stage in done):
        done = [_pool(done, [], 1, batches)]
    return [*done, *rest]


def split(stage: object) -> list[Any]:
    """A stage as those that it is made of, as `batched` of collecting and of making the batch."""
    made_of = behaviour_of(stage).split
    return [stage] if made_of is None else made_of(stage)


def _arranges(stage: object) -> bool:
    """Whether a filter only arranges samples: the thread that reads for the next pool runs it."""
    return isinstance(stage, Stage) and stage.behaviour.kind in {"shuffles", "counts", "collects", "expands"}


def _pool(before: list[Any], run: list[Stage], threads: int, batches: int) -> Pooled:
    if run and run[0].filter is _collated:
        threads = 1 if len(run) == 1 else threads
        return Pooled(before, run, threads=threads, ahead=threads - 1 + batches, group=1)
    return Pooled(before, run, threads=threads, ahead=2 * threads + 2, group=GROUP_SAMPLES)


def _per_sample(stage: object) -> bool:
    return isinstance(stage, Stage) and stage.filter.per_sample


# -- groups of samples ---------------------------------------------------------------------------


class _Group:
    """Some samples on their way, and what the reader has counted since the group before."""

    def __init__(self, items: list[Any], places: Sequence[Any], counts: dict[str, Any] | None = None) -> None:
        self.items = items
        self.places = places
        """Where the reader was after each sample."""
        self.numbers: Sequence[int] = range(len(items))
        """Of which sample each item was made."""
        self.one_by_one = True
        """Whether each item was made of another sample, and nothing else happened."""
        self.counts = {} if counts is None else counts

    def numbered(self) -> Iterator[tuple[int, int]]:
        """For each item the sample that it was made of; if more of that follow, how many were there up to it, else 0.

        >>> group = _Group(["a", "b", "c"], [])
        >>> group.numbers = [0, 0, 2]
        >>> list(group.numbered())
        [(0, 1), (0, 0), (2, 0)]
        """
        latest, given = -1, 0
        for number, following in zip(self.numbers, [*self.numbers[1:], -1], strict=True):
            given = given + 1 if number == latest else 1
            latest = number
            yield number, given if following == number else 0


class _Groups:
    """The samples of a pipeline in groups, large enough that handing them over costs little."""

    def __init__(self, source: DataPipeline, limit: int) -> None:
        self.source = source
        self.limit = limit
        self.wanted = 1
        self._reported = Report()
        self._counted: Any = None
        """The place after the first sample, if those after the others differ from it by their numbers only."""

    def __iter__(self) -> Iterator[_Group]:
        samples: list[Any] = []
        places: list[Any] = []
        held, begun, failure = 0, time.perf_counter(), None
        source = iter(self.source)
        try:
            for sample in source:
                samples.append(sample)
                if self._counted is None:
                    places.append(self.source.runner.snapshot())
                    self._counted = places[-1] if self.source.runner.is_counted else None
                held += size_in_bytes(sample) if self.limit > 1 else 0
                if len(samples) < self.wanted and held < GROUP_BYTES and time.perf_counter() - begun < SLOW_SECONDS:
                    continue
                yield _Group(samples, self._places(samples, places), self._counts(time.perf_counter() - begun))
                samples, places, held, begun = [], [], 0, time.perf_counter()
        except Exception as exn:
            failure = exn
        finally:
            close(source)
        yield _Group(samples, self._places(samples, places), self._counts())
        if failure is not None:
            raise failure

    def position_of(self, place: object) -> Position:
        """The position of a sample's place."""
        if self._counted is None:
            return self.source.runner.position_of(place)  # type: ignore[no-any-return]
        run, passes, given, _, inner = self._counted
        return self.source.runner.position_of((run, passes, given, (place,), inner))  # type: ignore[no-any-return]

    def _places(self, samples: list[Any], places: list[Any]) -> Sequence[Any]:
        """The places of the latest samples: their numbers, if that says it."""
        if self._counted is None:
            return places
        (last,) = self._counted[0].position()
        return range(last - len(samples) + 1, last + 1)

    def worked(self, samples: int, seconds: float) -> None:
        """A group of this many samples kept a thread busy for this many seconds."""
        enough = int(samples * GROUP_SECONDS / seconds) if seconds > 0 else self.limit
        self.wanted = max(1, min(enough, 2 * samples, self.limit))

    def _counts(self, seconds: float = 0.0) -> dict[str, Any]:
        """What the source has counted since the last call, which took it these seconds."""
        context = self.source.runner.progress.context
        if context is None:
            return {}
        report = context.report
        new, reported = Report(), self._reported
        new.counts = report.counts - reported.counts
        new.reasons = report.reasons - reported.reasons
        if not isinstance(self.source.pipeline[0], Pooled):  # who waits for other threads is not at work
            new.spend("parse", max(0.0, seconds - new.spent(*STAGES)))
        if not new.counts:
            return {}
        reported.counts, reported.reasons = report.counts.copy(), report.reasons.copy()
        return {**new.counts, "reasons": dict(new.reasons)}


def _after(items: Iterator[Any], count: int) -> Iterator[Any]:
    """What comes after the first items."""
    try:
        yield from islice(items, count, None)
    finally:
        close(items)


def _timed(groups: _Groups, function: Callable[[_Group], _Group], group: _Group) -> _Group:
    samples, begun = len(group.items), time.thread_time()
    result = function(group)
    if samples:
        groups.worked(samples, time.thread_time() - begun)
    return result


def _fused(stages: Sequence[Stage], context: PassContext, group: _Group) -> _Group:
    """Run a group through the stages; errors stay among the items, for the consumer to ask the handlers."""
    if not stages:
        return group
    deferred = _Deferred(context.report)
    with PassContext(epoch=context.epoch, report=deferred).in_force():
        source: Iterator[Any] = deferred.noted(group.items)
        for stage in stages:
            source = stage(source)
    try:
        for item in source:
            deferred.items.append(item)
            deferred.numbers.append(deferred.number)
    except Exception as exn:  # not met by a handler: this is where the stream ends
        deferred.ask(reraise_exception, exn, "samples_dropped")
    result = _Group(deferred.items, group.places, group.counts)
    result.numbers = deferred.numbers
    result.one_by_one = not deferred.eventful and len(set(deferred.numbers)) == len(deferred.numbers)
    if deferred.counts:
        deferred.add(group.counts)
        result.counts = {**deferred.counts, "reasons": dict(deferred.reasons)}
    return result


class _Deferred(Report):
    """Takes down what handlers are to be asked and told, among the items, for the consumer to do it in order."""

    def __init__(self, report: Report) -> None:
        super().__init__(strict=report.strict)
        self.items: list[Any] = []
        self.eventful = False
        self.number = 0
        """Of the sample that was taken in last, ..."""
        self.numbers: list[int] = []
        """... and of that of which each item was made."""

    def noted(self, samples: list[Any]) -> Iterator[Any]:
        """The samples, while their numbers are taken down."""
        for self.number, sample in enumerate(samples):
            yield sample

    def ask(self, handler: Handler, exn: Exception, counted_as: str) -> bool:
        self._take_down(lambda report: report.ask(handler, exn, counted_as))
        return True

    def success_for(self, handler: object) -> Callable[[], Any] | None:
        succeeded = super().success_for(handler)
        if succeeded is None:
            return None
        return partial(self._take_down, lambda _: (succeeded(), True)[1])

    def _take_down(self, happened: Callable[[Report], bool]) -> None:
        self.items.append(_Event(happened))
        self.numbers.append(self.number)
        self.eventful = True


class _Event:
    """Something that happened between two items; it says whether the stream goes on."""

    __slots__ = ("happened",)

    def __init__(self, happened: Callable[[Report], bool]) -> None:
        self.happened = happened
