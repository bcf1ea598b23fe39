"""Where the samples of a streamed pass come from, and how they are read again when it is resumed.

Each source counts what it gives, says what its position is, and can be started again from what was saved of it.
"""

from __future__ import annotations

import base64
import random
import sys
import threading
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, compress, islice
from operator import length_hint
from typing import TYPE_CHECKING, Any

from webdataset.base.behaviour import behaviour_of
from webdataset.base.context import PassContext
from webdataset.base.mixing import Turns
from webdataset.base.positions import named
from webdataset.base.stages import Stage
from webdataset.errors import StateError
from webdataset.filters.order import shuffled_from
from webdataset.handlers import close

from .layout import Layout, is_mixture, is_pipeline, kind_of, runs_ahead
from .positions import History, InMixture, InShard, InShuffle

if TYPE_CHECKING:
    from webdataset.base.rounds import RunnablePipeline

END = sys.maxsize
MANY = 1000
"""Shards in a state beyond which those of which the shuffle holds no samples are put together."""


class Count:
    """Counts what passes a place, without running Python code for it."""

    def __init__(self, start: int = 0) -> None:
        self._numbers = iter(range(start + 1, END))

    def over(self, source: Iterable[Any]) -> Iterator[Any]:
        return compress(source, self._numbers)

    def __call__(self) -> int:
        return END - 1 - length_hint(self._numbers)


class PassBuilder:
    """What the parts of a run are built with."""

    def __init__(
        self, context: PassContext, invoke: Callable[..., Any], opened: ExitStack, wrap: Callable[[Any], Any]
    ) -> None:
        self.context = context
        self.invoke = invoke
        self.opened = opened
        self.wrap = wrap

    def chained(self, source: Any, stages: Iterable[Any], *, resumed: bool) -> Iterator[Any]:
        """A source through stages; checks that are for the first sample of a pass are for that only."""
        for stage in stages:
            if not (resumed and behaviour_of(stage).skip_on_resume):
                source = self.kept(iter(self.invoke(stage, source)))
        return iter(source)

    def seek(self, pipeline: RunnablePipeline, position: object) -> None:
        """Let a pipeline within go on from a position in this pass; if it is not read any more, not in the next."""
        pipeline.runner.forget_pass()
        if position is not None:
            pipeline.runner.seek(position)
            self.opened.callback(pipeline.runner.finish_resumed)

    def kept(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """An iterator that is closed with the pass."""
        self.opened.callback(close, iterator)
        return iterator


def source_of(layout: Layout, builder: PassBuilder) -> Any:
    if layout.reader:
        shards = _Shards(layout, builder)
        return shards if layout.shuffle is None else _Shuffled(layout.shuffle, shards, builder)
    if layout.shuffle is None and is_mixture(layout.shards[0]):
        return _Mixture(layout.shards[0], builder)
    if layout.shuffle is None and is_pipeline(layout.shards[0]):
        return _Inner(layout.shards[0], builder)
    if runs_ahead(layout.shards[0]):
        return _ThreadedSource(layout.shards[0], builder)
    items = _Items(layout, builder)
    return items if layout.shuffle is None else _Shuffled(layout.shuffle, items, builder)


class _Items:
    """Items of any source, such as a list: to go on, it is read from its beginning."""

    simple = True
    """Whether the position is the number of items that were given."""

    def __init__(self, layout: Layout, builder: PassBuilder) -> None:
        self._layout = layout
        self._builder = builder
        self.count = Count()

    def started(self, saved: int | None = None) -> Iterator[Any]:
        return self.resumed(saved or 0, (), None)[0]

    def resumed(self, given: int, wanted: Sequence[int], history: object) -> tuple[Iterator[Any], dict[int, Any]]:  # noqa: ARG002
        """What comes after a number of items, and those of them that are wanted, by number."""
        builder = self._builder
        source = builder.kept(iter(builder.invoke(self._layout.shards[0])))
        stream = self.count.over(builder.chained(source, self._layout.head, resumed=given > 0))
        return stream, passed_over(stream, 0, given, wanted)

    def position(self) -> tuple[Any, ...]:
        return (self.count(),)

    def saved(self, position: object) -> object:
        return position

    def history(self) -> None:
        """What else must be known to read items again."""
        return


class _Shards:
    """Samples of shards: to go on, the shard is read from its beginning."""

    simple = True

    def __init__(self, layout: Layout, builder: PassBuilder) -> None:
        self._layout = layout
        self._builder = builder
        self.count = Count()
        self._first = 0
        self._lost = False
        self._sums = [0]
        """Checksums of the urls of the first shards."""
        self.shards, self.samples = [0], [0]
        """The numbers of shards and of samples that were read, at the end of each shard."""
        self._packed: tuple[int, str] = 0, ""
        self._lock = threading.Lock()
        """A thread may read while another asks where it is."""

    def started(self, saved: Any = None) -> Iterator[Any]:
        shard, offset, known, digest = InShard() if saved is None else named(InShard, saved)
        listed, before = self._listed(known, digest)
        self.shards = [shard]
        stream = self._read(chain(before[shard:], listed), self._builder, resumed=saved is not None)
        self._pass_over(stream, 0, offset, ())
        return stream

    def resumed(self, given: int, wanted: Sequence[int], history: Any) -> tuple[Iterator[Any], dict[int, Any]]:
        """The samples after a number of them, and those of them that are wanted, by number."""
        known, digest, packed = named(History, history)
        self.shards, self.samples = _unpacked(packed)
        at = bisect_right(self.samples, given)
        del self.shards[at:], self.samples[at:]
        listed, before = self._listed(known, digest)
        found: dict[int, Any] = {}
        for part in range(1, at):
            low, high = self.samples[part - 1 : part + 1]
            these = [number for number in wanted if low <= number < high]
            if these:
                found |= self._read_again(before[self.shards[part - 1] : self.shards[part]], (low, high), these)
        self.count = Count(self.samples[-1])
        stream = self._read(chain(before[self.shards[-1] :], listed), self._builder, resumed=True)
        found |= self._pass_over(stream, self.samples[-1], given, wanted)
        return stream, found

    def position(self) -> tuple[Any, ...]:
        return (self.count(),)

    def saved(self, position: int) -> InShard:
        with self._lock:
            at = bisect_right(self.samples, position) - 1
            shard = self.shards[at]
            return InShard(shard, position - self.samples[at], *self._known(shard))

    def history(self) -> History:
        """What else must be known to read samples again: how many there were in each shard."""
        with self._lock:
            if self._packed[0] != len(self.shards):
                self._packed = len(self.shards), _packed(self.shards, self.samples)
            return History(*self._known(self.shards[-1]), self._packed[1])

    def forget(self, given: int, wanted: Iterable[int]) -> None:
        """Put the shards together of which no samples are wanted any more."""
        with self._lock:
            last = len(self.shards) - 1
            needed = {bisect_right(self.samples, number) for number in wanted}
            needed |= set(range(max(1, bisect_right(self.samples, given)), last + 1))
            kept = sorted({0, last, *needed, *(at - 1 for at in needed)} & set(range(last + 1)))
            self.shards, self.samples = [self.shards[at] for at in kept], [self.samples[at] for at in kept]

    def _known(self, shard: int) -> tuple[int, int]:
        if self._lost:
            raise StateError("the place cannot be saved: the stage that opens shards does not pass on their numbers")
        known = min(shard + 1, len(self._sums) - 1)
        return known, self._sums[known]

    def _listed(self, known: int, digest: int) -> tuple[Iterator[Any], list[Any]]:
        """The shards, but for the first ones, which must be those that the state was saved with; and the first ones."""
        source, *stages = self._layout.shards
        builder = self._builder
        listed = self._summed(builder.chained(builder.kept(iter(builder.invoke(source))), stages, resumed=False))
        before = list(islice(listed, known))
        if self._sums[-1] != digest:
            raise StateError(
                f"the state does not fit: the first {known} shards are others, or come in another order",
                hint="go on with the shards, the seed and the splitting with which it was saved",
            )
        return listed, before

    def _summed(self, shards: Iterator[Any]) -> Iterator[Any]:
        for shard in shards:
            url = shard.get("url") if isinstance(shard, dict) else shard
            self._sums.append(zlib.crc32(str(url).encode("utf-8", "surrogatepass"), self._sums[-1]))
            yield shard

    def _read(self, shards: Iterator[Any], builder: PassBuilder, *, resumed: bool) -> Iterator[Any]:
        self._first = self.shards[-1]
        builder.context.on_shard_end = self._ended
        numbered = ({**shard, "__number__": n} if isinstance(shard, dict) else shard for n, shard in enumerate(shards))
        stages = [*self._layout.reader, *self._layout.head]
        return self.count.over(builder.chained(numbered, stages, resumed=resumed))

    def _read_again(self, shards: list[Any], span: tuple[int, int], wanted: Sequence[int]) -> dict[int, Any]:
        """Samples of shards that were read before, which gave those from a number up to another."""
        from .picking import picked

        outer, (first, end) = self._builder, span
        known = outer.context
        context = PassContext(epoch=known.epoch, strict=known.strict, base_seed=known.base_seed)
        reader, head = self._layout.reader, self._layout.head
        with ExitStack() as opened, context.in_force():
            builder = PassBuilder(context, outer.invoke, opened, outer.wrap)
            if len(reader) == 1 and all(kind_of(stage) in ("each", "selects", "observes") for stage in head):
                samples = picked(shards, [number - first for number in wanted], end - first, reader[0], context.report)
                if samples is not None:
                    passed = list(builder.chained(iter(samples), head, resumed=True))
                    if len(passed) == len(wanted):
                        return dict(zip(wanted, passed, strict=True))
            stream = builder.chained(iter(shards), [*reader, *head], resumed=True)
            return passed_over(stream, first, wanted[-1] + 1, wanted)

    def _pass_over(self, stream: Iterator[Any], first: int, given: int, wanted: Sequence[int]) -> dict[int, Any]:
        ends = len(self.shards)
        found = passed_over(stream, first, given, wanted)
        if len(self.shards) > ends:
            raise _changed(given - first)
        return found

    def _ended(self, source: dict[str, Any]) -> None:
        """A shard has come to its end: all its samples have passed."""
        number = source.get("__number__")
        if number is None:
            self._lost = True
            return
        with self._lock:
            self.shards.append(self._first + number + 1)
            self.samples.append(self.count())


class _Inner:
    """Items of a pipeline within this one, which says itself where it is."""

    simple = False

    def __init__(self, pipeline: RunnablePipeline, builder: PassBuilder) -> None:
        self._pipeline = pipeline
        self._builder = builder

    def started(self, saved: object = None) -> Iterator[Any]:
        self._builder.seek(self._pipeline, saved)
        return self._builder.kept(iter(self._builder.invoke(self._pipeline)))

    def position(self) -> tuple[Any, ...]:
        return (self._pipeline.runner.position(),)

    def saved(self, position: object) -> object:
        return position


class _ThreadedSource:
    """Items of stages that threads run ahead of what is taken from them, and which say themselves where they are."""

    simple = False

    def __init__(self, stage: Any, builder: PassBuilder) -> None:
        self._stage = stage
        self._builder = builder

    def started(self, saved: object = None) -> Iterator[Any]:
        self._stage.seek(saved)
        return self._builder.kept(iter(self._builder.invoke(self._stage)))

    def position(self) -> tuple[Any, ...]:
        return (self._stage.position(),)

    def saved(self, position: object) -> Any:
        return self._stage.saved(position)


class _Mixture:
    """Items of several pipelines, mixed."""

    simple = False

    def __init__(self, mix: Any, builder: PassBuilder) -> None:
        self._mix = mix
        self._builder = builder
        self._pipelines = [each if is_pipeline(each) else self._wrapped(each) for each in mix.datasets]
        self._turns = Turns()

    def started(self, saved: Any = None) -> Iterator[Any]:
        nowhere = InMixture(0, (), (None,) * len(self._pipelines))
        at = nowhere if saved is None else named(InMixture, saved)
        self._turns = Turns(at.turns, at.ended)
        for pipeline, position in zip(self._pipelines, at.positions, strict=True):
            self._builder.seek(pipeline, position)
        return self._builder.kept(self._mix.started(self._pipelines, self._turns))

    def _wrapped(self, dataset: object) -> RunnablePipeline:
        """Anything else, as a pipeline that is made again for every pass, with what it draws."""
        pipeline: RunnablePipeline = self._builder.wrap(
            [tuple(dataset) if isinstance(dataset, (str, bytes)) else dataset]
        )
        pipeline.runner.progress.base_seed = self._builder.context.seed()
        return pipeline

    def position(self) -> tuple[Any, ...]:
        positions = tuple([pipeline.runner.position() for pipeline in self._pipelines])
        return (InMixture(self._turns.taken, tuple(self._turns.ended), positions),)

    def saved(self, position: object) -> object:
        return position


class _Shuffled:
    """The samples of a source, shuffled: what the buffer held follows from the seed and the number that came out."""

    simple = True

    def __init__(self, stage: Any, source: Any, builder: PassBuilder) -> None:
        self._stage = stage
        self._source = source
        self._builder = builder
        self._count = Count()
        self._few = 0
        given = stage.options() if isinstance(stage, Stage) else vars(stage)
        self._sizes: tuple[int, int] = given["bufsize"], given["initial"]
        self._seed = given["seed"]
        self._number = 0
        """Of the seed that the pass gave, or of the epoch that a detshuffle counts."""

    def started(self, saved: Any = None) -> Iterator[Any]:
        context = self._builder.context
        if saved is None:
            stream = self._source.started()
            self._number = context.seeds + 1
            stream = self._builder.chained(stream, [self._stage], resumed=False)
            self._number = self._number if isinstance(self._stage, Stage) else self._stage.epoch
            return self._count.over(stream)
        out, pulled, self._number, history = named(InShuffle, saved)
        given, buffer, rng, ended = self._repeated(out, pulled)
        stream, found = self._source.resumed(given, sorted(buffer), history)
        if isinstance(self._stage, Stage):
            context.seeds += self._seed is None
        else:
            self._stage.epoch = self._number
        buffer = [found[number] for number in buffer]
        self._count = Count(out)
        return self._count.over(shuffled_from(iter(()) if ended else stream, *self._sizes, rng, buffer))

    def position(self) -> tuple[Any, ...]:
        return (self._count(),)

    def saved(self, position: int) -> InShuffle:
        pulled = self._source.count()
        if len(getattr(self._source, "shards", ())) > self._few + MANY:
            given, buffer, _, _ = self._repeated(position, pulled)
            self._source.forget(given, buffer)
            self._few = len(self._source.shards)
        return InShuffle(position, pulled, self._number, self._source.history())

    def _repeated(self, out: int, pulled: int) -> tuple[int, list[Any], random.Random, bool]:
        """How many numbers went in until `out` came out, what was held then, and whether the source had ended.

        At most `pulled` went in: if it takes more, that was because no more came.
        """
        for most in (END, pulled):
            buffer: list[Any] = []
            rng, numbers = random.Random(self._drawn_seed()), iter(range(most))
            deque(islice(shuffled_from(numbers, *self._sizes, rng, buffer), out), maxlen=0)
            given = most - length_hint(numbers)
            if given <= pulled and most == END:
                return given, buffer, rng, False
        return pulled, buffer, rng, True

    def _drawn_seed(self) -> Any:
        if not isinstance(self._stage, Stage):
            return self._seed + self._number
        return self._builder.context.numbered_seed(self._number) if self._seed is None else self._seed


def passed_over(stream: Iterator[Any], first: int, given: int, wanted: Sequence[int]) -> dict[int, Any]:
    """Leave out items up to number `given`, the next one being number `first`, but for those that are wanted."""
    found = {}
    for number in (each for each in wanted if first <= each < given):
        _leave_out(stream, number - first)
        found[number] = next(stream, stream)
        if found[number] is stream:
            raise _changed(given)
        first = number + 1
    _leave_out(stream, given - first)
    return found


def _leave_out(stream: Iterator[Any], count: int) -> None:
    if sum(1 for _ in islice(stream, count)) < count:
        raise _changed(count)


def _changed(count: int) -> StateError:
    return StateError(
        f"the data has changed since the state was saved: there are less than the {count} items that were read then",
        hint="go on with the data with which it was saved, or start again without the state",
    )


def _packed(shards: Sequence[int], samples: Sequence[int]) -> str:
    """Two growing sequences as a short string."""
    steps = (f"{s - r}:{n - m}" for r, s, m, n in zip(shards, shards[1:], samples, samples[1:], strict=False))
    text = ";".join([f"{shards[0]}:{samples[0]}", *steps])
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def _unpacked(text: str) -> tuple[list[int], list[int]]:
    shards, samples = [], []
    shard = sample = 0
    for step in zlib.decompress(base64.b85decode(text)).decode().split(";"):
        more, there = step.split(":")
        shard, sample = shard + int(more), sample + int(there)
        shards.append(shard)
        samples.append(sample)
    return shards, samples
