"""A source and stages, folded into an iterator.

>>> from webdataset.filters import batched
>>> pipeline = DataPipeline(lambda: iter([(1,), (2,), (3,)]), batched(2, partial=False))
>>> [batch[0].tolist() for batch in pipeline]
[[1, 2]]
"""

from __future__ import annotations

import copy
import operator
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from .base.iterables import TorchIterable, real_class
from .base.mailbox import leave
from .base.passes import PassCounter
from .base.reports import Report
from .base.stages import PipelineStage, start
from .base.workers import is_loader_worker, pytorch_worker_info
from .resume.marks import Marked, drawn_chance
from .resume.states import stream_mark, stream_state

if TYPE_CHECKING:
    from .exact.items import ExactSamples

ENDLESS = sys.maxsize
_NOTHING: Any = object()
_NO_PROGRAM: Any = (((), False), None)


class DataPipeline(Marked, TorchIterable, PipelineStage):
    """A dataset made of a source and stages; a stage is a function from iterator to iterator.

    `with_epoch`, `repeat`, `with_length` and `append` change the pipeline and return it; `compose` and the fluent
    methods return a new one. torch's DataLoader takes it as an IterableDataset.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        self.pipeline: list[Any] = []
        self.length = -1
        self.repetitions = 1
        self.nsamples = -1
        self.strict: bool | None = None
        self._passes = PassCounter()
        self._report: Report | None = None
        self._report_folder: str | None = None
        self._place: Any = None
        """Where the latest pass is; None before there was one."""
        self._resume: Any = None
        """Where the next pass is to begin, if a state was loaded."""
        self._program: tuple[Any, Any] = _NO_PROGRAM
        """For which stages, and whether in turn, the latest program is; and the program."""
        self._in_steps = False
        """Whether a loader of ours reads an exact pipeline in this process."""
        for stage in args:
            if stage is None:
                continue
            if isinstance(stage, list):
                self.pipeline.extend(stage)
            else:
                self.pipeline.append(stage)
        if self.exact:
            add_length_method(self)

    # -- reading ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        rounds = self.rounds()
        if rounds is not None:
            return rounds.items(self.iterator1)  # type: ignore[no-any-return]
        if self._has_ended():
            return iter(())
        return self._limited(self.iterator()) if self.nsamples > 0 else self.iterator()

    def iterator(self) -> Iterator[Any]:
        """All passes, one after the other; a pass that gives nothing ends it."""
        mark = self._begin()
        resumed = mark is not None
        for number in range(mark.passes if mark else 0, self.repetitions):
            self._pass_number = number
            one_pass = self.iterator1()
            try:
                first = next(one_pass, _NOTHING)
                if first is not _NOTHING:
                    yield first
                    yield from one_pass
                elif not resumed:
                    break
            finally:
                one_pass.close()  # type: ignore[attr-defined]
            resumed = False
        self._end()

    def iterator1(self) -> Iterator[Any]:
        """One pass over the source."""
        if not self.pipeline:
            raise ValueError("the pipeline is empty or closed: give it a source as its first stage")
        self._report = report = Report(strict=self.strict, epoch=self._passes.begin(), chance=self._chance)
        with ExitStack() as opened:
            opened.callback(self._publish_report)
            if self.exact:
                yield from self._opened(opened, self._exact_pass(report))
                return
            with report.in_force():
                items = self._started(report, opened, DataPipeline)
            yield from items

    def invoke(self, f: Any, *args: Any, **kw: Any) -> Any:
        """Start one stage on its source; the first stage has none."""
        return start(f, *args, **kw)

    def run(self, src: Any = None) -> Iterator[Any]:
        """Read the pipeline as the first stage of another."""
        if src is not None:
            raise ValueError("a pipeline can only be the first stage of another: it has a source of its own")
        return iter(self)

    def stats(self) -> dict[str, Any]:
        """What the latest pass in this process read, skipped and dropped, and why.

        >>> sorted(DataPipeline([]).stats())[:3]
        ['bytes_read', 'members_dropped', 'reasons']
        """
        total = Report()
        total.add((self._report or total).as_dict())
        for stage in self.pipeline:
            inner = getattr(stage, "stats", None)
            if callable(inner):
                total.add(inner())
        return total.as_dict()

    # -- exact epochs ----------------------------------------------------------------------------

    @property
    def exact(self) -> bool:
        """Whether all samples come from datasets with exact epochs: `len()` is known, any step can be resumed."""
        return bool(self.pipeline) and getattr(self.pipeline[0], "exact", False)

    @cached_property  # which leaves the name to subclasses that set an attribute of their own
    def samples(self) -> ExactSamples:
        """The samples of an exact dataset as they are stored: a sequence, by number, by key, or slices of it."""
        if self.exact:
            return self._stored
        name = type(self).__name__
        raise AttributeError(f"a streamed {name!r} object has no samples: WebDataset(..., exact=True) has")

    def __getitem__(self, which: SupportsIndex | str | slice) -> Any:
        """An item of an exact dataset by the number or key of its sample, or a list of them for a slice.

        Samples are numbered as they are stored, over all ranks. Every stage must make one item of one sample; where
        one does not, as `batched` or `select`, `samples` has the samples without the stages.
        """
        if not self.exact:
            name = type(self).__name__
            raise TypeError(f"a streamed {name!r} object is not subscriptable: WebDataset(..., exact=True) is")
        from .exact.items import items

        return items(self.pipeline, self._stored, which, self.invoke)

    @cached_property
    def _stored(self) -> ExactSamples:
        from .exact.items import ExactSamples, parts_of

        return ExactSamples([part.shards for part in parts_of(self.pipeline)], strict=self.strict)

    def program(self) -> Any:
        """What an exact pipeline does, as `webdataset.exact.program.Program`."""
        from .exact.program import GROUP, program_of

        # torch takes items from its workers in turn, one each; our loader takes whole steps
        in_turn = pytorch_worker_info()[3] > 1 and not self._in_steps
        stages, kept_in_turn = self._program[0]
        same = len(stages) == len(self.pipeline) and all(map(operator.is_, stages, self.pipeline))
        nested = hasattr(self.pipeline[0], "pipeline") or hasattr(self.pipeline[0], "datasets")
        if nested or not same or kept_in_turn != in_turn:
            made = program_of(self.pipeline, group=1 if in_turn else GROUP)
            self._program = (tuple(self.pipeline), in_turn), made
        return self._program[1]

    @property
    def place(self) -> Any:
        """Where an exact pipeline is, after the latest item that it gave; None before there was one."""
        return self._place

    @place.setter
    def place(self, place: Any) -> None:
        self._place = place

    def rounds(self) -> Any:
        """How epochs are repeated or cut (`exact.rounds.Rounds`); None if they are not, or are not exact."""
        if not self.exact or (self.repetitions == 1 and self.nsamples <= 0):
            return None
        from .exact.rounds import Rounds

        return Rounds(self, self.limits())

    def limits(self) -> Any:
        """How long its rounds are, as `webdataset.exact.rounds.Limits`."""
        from .exact.rounds import Limits

        return Limits(None if self.repetitions == ENDLESS else self.repetitions, max(self.nsamples, 0))

    def of_one_pass(self) -> Self:
        """This pipeline, or a copy that counts its passes in common with it and neither repeats nor cuts them."""
        if self.repetitions == 1 and self.nsamples <= 0:
            return self
        result = copy.copy(self)
        result.repetitions, result.nsamples = 1, -1
        return result

    def items_in_passes(self, count: int) -> int:
        """How many items the next passes over an exact pipeline have, on this rank; or that which is under way."""
        program, epoch = self.program(), self.next_epoch()
        if not program.varies:
            return int(program.length()) * count
        under_way = self.place is not None and self.place.epoch + 1 == epoch
        first = epoch - under_way
        return sum(program.length(number) for number in range(first, first + count))

    def state_dict(self) -> dict[str, Any]:
        """Where the pipeline is, after the latest item that it gave: small, and fit for JSON."""
        return self.state_from_mark(self.mark())

    def mark(self) -> Any:
        """Where the pipeline is, after the latest item that it gave, for `state_from_mark`."""
        return (self._place or self.next_place()) if self.exact else super().mark()

    def state_from_mark(self, mark: Any) -> dict[str, Any]:
        """The state after the item that `placed()` gave with a mark."""
        if not self.exact:
            return stream_state(self, mark)
        from .exact.states import exact_state

        _, _, worker, workers = pytorch_worker_info()
        place = type(self.next_place())(*mark)
        return exact_state(self.program(), place, self.limits(), worker=worker, workers=workers)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        if not self.exact:
            self.load_mark(stream_mark(self, state))
            return
        from .exact.states import exact_place

        _, _, _, workers = pytorch_worker_info()
        self.resume_at(exact_place(self.program(), state, self.limits(), workers=workers))

    def resume_at(self, place: Any) -> None:
        """Make the next pass begin at a place of an epoch."""
        self._place = self._resume = place
        if is_loader_worker():
            self._passes.go_on(place.epoch)
        else:
            self._passes.set(place.epoch)

    def steps(self, place: Any, threads: int = 0) -> Iterator[Any]:
        """One pass over an exact pipeline from a place on, for this worker, by steps: `(place, items)`."""
        self._in_steps = True
        self._report = report = Report(strict=self.strict, epoch=place.epoch)
        _, _, worker, workers = pytorch_worker_info()
        options = {"worker": worker, "workers": workers, "threads": threads}
        with ExitStack() as opened:
            opened.callback(self._publish_report)
            yield from self._opened(opened, self.program().steps(place, report, self.invoke, **options))

    def read_steps(self, epoch: int) -> Iterator[Any]:
        """One pass over an exact pipeline by steps, all of this rank, with the samples as they are read."""
        from .exact.run import Run

        self._report = report = Report(strict=self.strict, epoch=epoch)
        place = self._begin_at(epoch)
        run = Run(self.program(), place, report, ahead=True)
        with ExitStack() as opened:
            opened.callback(run.close)
            for step in self._opened(opened, run.steps()):
                yield place, step

    def count(self, counts: dict[str, Any]) -> None:
        """Add what a worker has counted to the report of the latest pass."""
        if self._report is not None:
            self._report.add(counts)

    def publish(self, report: Report) -> None:
        """Leave a report, and the error that is being handled, for the loader that started this worker."""
        if self._report_folder is not None:
            leave(self._report_folder, report)

    def next_place(self) -> Any:
        """Where the next pass over an exact pipeline begins."""
        from .exact.program import Place

        return self.resume_place() or Place(self.next_epoch())

    def next_epoch(self) -> int:
        """The epoch of the next pass over an exact pipeline."""
        return self._passes.next() if pytorch_worker_info()[3] > 1 else self._passes.latest()

    def resume_place(self) -> Any:
        """Where the next pass is to begin, if a state was loaded that is of its epoch; else None."""
        return self._resume if self._resume is not None and self._resume.epoch == self.next_epoch() else None

    def resumed(self) -> None:
        """The pass that was to go on from a loaded state has begun."""
        self._resume = self._of_workers = None

    def _begin_at(self, epoch: int) -> Any:
        from .exact.program import Place

        place, self._resume = self._resume, None
        return place if place is not None and place.epoch == epoch else Place(epoch)

    def _exact_pass(self, report: Report) -> Iterator[Any]:
        self._place = place = self._begin_at(report.epoch)
        _, _, worker, workers = pytorch_worker_info()
        items = self.program().items(place, report, self.invoke, worker=worker, workers=workers)
        for self._place, item in items:
            yield item
        self._place = type(place)(place.epoch + 1)

    # -- building --------------------------------------------------------------------------------

    def append(self, f: Any) -> Self:
        """Add a stage to this pipeline."""
        self.pipeline.append(f)
        return self

    def compose(self, *args: Any) -> Self:
        """A new pipeline with these stages added."""
        result = copy.copy(self)
        result.pipeline = [*self.pipeline, *args]
        result._passes = PassCounter()
        result._report = result._place = result._resume = None
        result._run = result._going_on = result._of_workers = None
        result._chance = drawn_chance()
        return result

    def stage(self, i: int) -> Any:
        """The stage at this place."""
        return self.pipeline[i]

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Make an epoch of exactly this many items, repeating or cutting the stream; changes the pipeline.

        Each worker of a DataLoader gives that many; of an exact dataset, all together do, on each rank.
        """
        self.repetitions = ENDLESS
        self.nsamples = max(nsamples, nbatches)
        return self

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Read the source this many times (endlessly, if not given), at most `nbatches` items in all."""
        self.repetitions = nepochs if nepochs > 0 else ENDLESS
        self.nsamples = nbatches
        return self

    def with_length(self, n: int, silent: bool = False) -> Self:
        """Give the pipeline a `len()`; the data stays as it is.

        >>> len(DataPipeline([]).with_length(10, silent=True))
        10
        """
        if n < 0:
            raise ValueError(f"a length is a number of items, got {n!r}")
        if not silent:
            message = "with_length() only sets what len() says; with_epoch() changes how many items there are"
            warnings.warn(message, stacklevel=2)
        self.length = n
        real_class.__set__(self, _with_len(type(self)))
        return self

    def set_epoch(self, epoch: int) -> Self:
        """Make this the epoch of the next pass, in all workers: shard order depends on it.

        Of an exact dataset with `with_epoch` or `repeat`, it is the number of the epoch in that sense.
        """
        rounds = self.rounds()
        if rounds is None:
            self._passes.set(epoch)
        else:
            rounds.set_epoch(epoch)
        return self

    def close(self) -> None:
        """Release what the stages hold; the pipeline cannot be read afterwards."""
        for stage in self.pipeline:
            close = getattr(stage, "close", None)
            if callable(close):
                close()
        self.pipeline = []

    # -- helpers ---------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        kind = type(self)
        own = self.__dict__ | {"_run": None, "_program": _NO_PROGRAM}  # a pass is under way in this process only
        return _rebuilt, (getattr(kind, "_without_len", kind), own, self.length)

    def __copy__(self) -> Self:
        result = type(self).__new__(type(self))
        result.__dict__.update(self.__dict__)
        return result

    def _opened(self, opened: ExitStack, iterator: Iterator[Any]) -> Iterator[Any]:
        close = getattr(iterator, "close", None)
        if callable(close):
            opened.callback(close)
        return iterator

    def _publish_report(self) -> None:
        """Leave the counts where the loader that started this worker finds them."""
        if self._report is not None:
            self.publish(self._report)


def exact_length(pipeline: Any) -> int:
    """How many items an exact pipeline gives."""
    if pipeline.repetitions == ENDLESS:
        if pipeline.nsamples > 0:
            return int(pipeline.nsamples)
        raise TypeError("the pipeline repeats without end: with_epoch(n) gives it a length")
    length = int(pipeline.items_in_passes(pipeline.repetitions))
    return min(length, pipeline.nsamples) if pipeline.nsamples > 0 else length


def add_length_method(pipeline: Any) -> Any:
    """Give an object a `len()` that is its `length` attribute."""
    real_class.__set__(pipeline, _with_len(type(pipeline)))
    return pipeline


_length_classes: dict[type, type] = {}


def _with_len(kind: type) -> type:
    """The class with a `__len__`: a class of its own, because len() and hasattr() look at the class."""
    if hasattr(kind, "_without_len"):
        return kind
    if kind not in _length_classes:

        def __len__(self: Any) -> int:  # noqa: N807 - becomes the method of that name
            return int(self.length) if self.length >= 0 else exact_length(self)

        body = {"__len__": __len__, "_without_len": kind, "__doc__": kind.__doc__, "__module__": kind.__module__}
        _length_classes[kind] = type(f"{kind.__name__}_Length", (kind,), body)
    return _length_classes[kind]


def _rebuilt(kind: type, state: dict[str, Any], length: int) -> Any:
    result: Any = object.__new__(kind)
    result.__dict__.update(state)
    if length >= 0 or result.exact:
        real_class.__set__(result, _with_len(kind))
    return result
