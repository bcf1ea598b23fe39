"""A source and stages, folded into an iterator.

>>> from webdataset.filters import batched
>>> pipeline = DataPipeline(lambda: iter([(1,), (2,), (3,)]), batched(2, partial=False))
>>> [batch[0].tolist() for batch in pipeline]
[[1, 2]]
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from .base.context import PassContext
from .base.iterables import LengthIfKnown, TorchIterable, real_class
from .base.mailbox import left_regularly, publish
from .base.progress import PipelineProgress
from .base.reports import Report
from .base.rounds import ENDLESS
from .base.stages import PipelineStage, start
from .display.reprs import ShownPipeline
from .filters import FilterMethods
from .filters.batches import left_for_batch
from .handlers import close
from .resume.streamed import StreamedRunner

if TYPE_CHECKING:
    from .exact.items import ExactSamples


class DataPipeline(ShownPipeline, TorchIterable, PipelineStage):
    """A dataset made of a source and stages; a stage is a function from iterator to iterator.

    `with_epoch`, `repeat`, `with_length` and `append` change the pipeline and return it; `compose` returns a new one.
    The filters as methods are those of `WebDataset` and the mixtures; `FluidWrapper(pipeline)` has them, too. torch's
    DataLoader takes it as an IterableDataset.

    Args:
        *args: the source, and the stages
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        self.pipeline: list[Any] = []
        self.length = -1
        self.repetitions = 1
        self.nsamples = -1
        self.strict: bool | None = None
        self._progress = PipelineProgress()
        for stage in args:
            if stage is None:
                continue
            if isinstance(stage, list):
                self.pipeline.extend(stage)
            else:
                self.pipeline.append(stage)
        if self.exact:
            add_length_method(self)

    if TYPE_CHECKING:

        def __len__(self) -> int: ...

    else:
        __len__ = LengthIfKnown()  # pipelines that have one are of a class with the method

        def __getattr__(self, name: str) -> object:
            kind = getattr(type(self), "_without_len", type(self)).__name__
            if not name.startswith("_") and hasattr(FilterMethods, name) and not hasattr(type(self), name):
                cure = f"compose(wds.{name}(...)) does it, and FluidWrapper(pipeline) has all methods"
                raise AttributeError(f"a {kind} has no method {name!r}: {cure}", name=name, obj=self)
            try:
                return object.__getattribute__(self, name)  # raises what it raised before
            except AttributeError as error:
                if error.obj is not self or error.name != name:
                    raise  # a property's own
                raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self) from None

    def __bool__(self) -> bool:
        return not hasattr(self, "__len__") or len(self) > 0

    def __dir__(self) -> list[str]:
        """What is of use to those who use it, for editors and notebooks."""
        return [name for name in super().__dir__() if name not in INTERNAL and (name[0] != "_" or name[:2] == "__")]

    # -- reading ---------------------------------------------------------------------------------

    @property
    def runner(self) -> Any:
        """What runs it, as its stages are now: `resume.streamed.StreamedRunner`, or `exact.runner.ExactRunner`."""
        if not self.exact:
            return StreamedRunner(self, self._progress, DataPipeline)
        from .exact.runner import ExactRunner

        return ExactRunner(self, self._progress)

    def __iter__(self) -> Iterator[Any]:
        return self.runner.items()  # type: ignore[no-any-return]

    def iterator(self) -> Iterator[Any]:
        """All passes, one after the other; a pass that gives nothing ends it."""
        return self.runner.passes()  # type: ignore[no-any-return]

    def iterator1(self) -> Iterator[Any]:
        """One pass over the source."""
        if not self.pipeline:
            raise ValueError("the pipeline is empty or closed: give it a source as its first stage")
        progress = self._progress
        context = PassContext(epoch=progress.passes.begin(), strict=self.strict, base_seed=progress.base_seed)
        progress.context = context
        with ExitStack() as opened:
            opened.callback(publish, progress.mailbox, context.report)
            opened.enter_context(left_regularly(progress.mailbox, context.report))
            with context.in_force():
                items = self.runner.one_pass(context, opened)
            yield from items

    def invoke(self, f: Any, *args: Any, **kw: Any) -> Any:
        """Start one stage on its source; the first stage has none.

        Args:
            f: the stage
            *args: its source, unless it is the first
            **kw: passed on to it
        """
        return start(left_for_batch(f, self.pipeline), *args, **kw)

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
        if self._progress.context is not None:
            total.add(self._progress.context.report.as_dict())
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
            return _stored(self)
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

        return items(self.pipeline, _stored(self), which, self.invoke)

    # -- where it is -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the pipeline is, after the latest item that it gave: small, and fit for JSON."""
        return self.runner.state()  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the `state` was saved."""
        self.runner.load(state)

    def placed(self) -> Iterator[tuple[Any, Any]]:
        """The items, each with a position: a small value of which `state_from_mark` makes the state after that item."""
        items, runner = iter(self), self.runner
        try:
            for item in items:
                yield runner.position(), item
        finally:
            close(items)

    def state_from_mark(self, mark: object) -> dict[str, Any]:
        """The state after the item that `placed()` gave with the position `mark`."""
        return self.runner.state(mark)  # type: ignore[no-any-return]

    def set_epoch(self, epoch: int) -> Self:
        """Make `epoch` that of the next pass, in all workers: shard order depends on it.

        Of an exact dataset with `with_epoch` or `repeat`, it is the number of the epoch in that sense.
        """
        self.runner.set_epoch(epoch)
        return self

    # -- building --------------------------------------------------------------------------------

    def append(self, f: Any) -> Self:
        """Add a stage to this pipeline.

        Args:
            f: the stage: a function from an iterator to an iterator, a filter or a `PipelineStage`
        """
        self.pipeline.append(f)
        return self

    def compose(self, *args: Any) -> Self:
        """A new pipeline with these stages added.

        Args:
            *args: the stages
        """
        result = copy.copy(self)
        result.pipeline = [*self.pipeline, *args]
        result._progress = self._progress.for_composition()
        return result

    def stage(self, i: int) -> Any:
        """The stage at place `i`."""
        return self.pipeline[i]

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """Make an epoch of exactly this many items, repeating or cutting the stream; changes the pipeline.

        Each worker of a DataLoader gives that many; of an exact dataset, all together do, on each rank.

        Args:
            nsamples: the number of items: samples, or batches if the pipeline makes batches
            nbatches: the same, under another name; the larger counts
        """
        self.repetitions = ENDLESS
        self.nsamples = max(nsamples, nbatches)
        return self

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """Read the source this many times (endlessly, if not given), at most `nbatches` items in all.

        Args:
            nepochs: how many times; without end if it is not above 0
            nbatches: the most items in all
        """
        self.repetitions = nepochs if nepochs > 0 else ENDLESS
        self.nsamples = nbatches
        return self

    def with_length(self, n: int, silent: bool = False) -> Self:
        """Give the pipeline a `len()`; the data stays as it is.

        Args:
            n: what `len()` says
            silent: do not warn that the data stays as it is

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

    def close(self) -> None:
        """Release what the stages hold; the pipeline cannot be read afterwards."""
        for stage in self.pipeline:
            close = getattr(stage, "close", None)
            if callable(close):
                close()
        self.pipeline = []

    # -- helpers ---------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        kind = type(self)
        return _rebuilt, (getattr(kind, "_without_len", kind), self.__dict__, self.length)

    def __copy__(self) -> Self:
        result = type(self).__new__(type(self))
        result.__dict__.update(self.__dict__)
        result._progress = copy.copy(self._progress)
        return result


INTERNAL = frozenset({"invoke", "iterator1", "run", "runner", "placed", "state_from_mark", "nsamples", "repetitions"})
"""Names without an underscore, for programs of old and the package's own use, that completion does not offer."""


def _stored(pipeline: DataPipeline) -> ExactSamples:
    """The samples of an exact pipeline, kept with it; `samples` may be an attribute of a subclass's own."""
    kept: ExactSamples | None = vars(pipeline).get("_stored")
    if kept is None:
        from .exact.items import ExactSamples, parts_of

        kept = ExactSamples([part.shards for part in parts_of(pipeline.pipeline)], strict=pipeline.strict)
        vars(pipeline)["_stored"] = kept
    return kept


def add_length_method(pipeline: object) -> Any:
    """Give an object a `len()` that is its `length` attribute."""
    real_class.__set__(pipeline, _with_len(type(pipeline)))
    return pipeline


_length_classes: dict[type, type] = {}


def _with_len(kind: type) -> type:
    """The class with a `__len__`: a class of its own, because len() and hasattr() look at the class."""
    if hasattr(kind, "_without_len"):
        return kind
    if kind not in _length_classes:

        def __len__(self: DataPipeline) -> int:  # noqa: N807 - becomes the method of that name
            return int(self.length) if self.length >= 0 else int(self.runner.length())

        body = {"__len__": __len__, "_without_len": kind, "__doc__": kind.__doc__, "__module__": kind.__module__}
        _length_classes[kind] = type(f"{kind.__name__}_Length", (kind,), body)
    return _length_classes[kind]


def _rebuilt(kind: type, state: dict[str, Any], length: int) -> DataPipeline:
    result: DataPipeline = object.__new__(kind)
    result.__dict__.update(state)
    if length >= 0 or result.exact:
        real_class.__set__(result, _with_len(kind))
    return result
