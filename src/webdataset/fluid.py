"""The filters as methods, for every kind of dataset: `dataset.shuffle(1000).decode("rgb")`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from . import filters
from .base.stages import Filter, suggesting
from .base.workers import pytorch_worker_info
from .filters import FilterMethods
from .handlers import Handler, close
from .pipeline import DataPipeline

if TYPE_CHECKING:
    from .display.describing import Description
    from .display.previews import Preview


class FluidInterface(FilterMethods):
    """Mixin that gives a DataPipeline the filters as methods; each returns a new dataset.

    Add your own: `class MyDataset(WebDataset): every = wds.fluent(my_filter)`.
    """

    compose: Callable[..., Self]

    @suggesting(method=True)
    def shuffle(  # type: ignore[override]  # as programs call it
        self,
        size: int,
        initial: int = 100,
        rng: Any = None,
        seed: Any = None,
        handler: Handler | None = None,
        *,
        max_bytes: int | None = None,
    ) -> Self:
        """Shuffle samples in a buffer of `size`, starting when `initial` are there; less than 1 changes nothing.

        The same `seed` gives the same order on every pass.

        Args:
            size: samples in the buffer
            initial: how many there are before the first is given
            rng: a random.Random to draw from
            seed: what the order is made from
            handler: what to do about errors
            max_bytes: the most that the buffer holds
        """
        given = {"initial": initial, "rng": rng, "seed": seed, "handler": handler, "max_bytes": max_bytes}
        kept = {name: value for name, value in given.items() if value is not None and (name, value) != ("initial", 100)}
        stage = filters.shuffle(size, **kept)
        return self if size < 1 else self.compose(stage)

    def mcached(self) -> Self:
        """Keep the samples of a complete pass in memory and serve later passes from there."""
        return self.compose(filters.Cached())

    def lmdb_cached(
        self,
        fname: str | os.PathLike[str],
        map_size: float = 1e12,
        pickler: object = pickle,
        chunksize: int = 500,
        *,
        allow_pickle: bool | None = None,
    ) -> Self:
        """Keep the samples of a complete pass in an LMDB file and serve later passes from there.

        Args:
            fname: the path of the file
            map_size: the most bytes that it may have
            pickler: what turns samples into bytes and back
            chunksize: how many samples are written at a time
            allow_pickle: let stored samples hold any object; None asks `WDS_ALLOW_PICKLE`
        """
        return self.compose(filters.LMDBCached(fname, map_size, pickler, chunksize, allow_pickle=allow_pickle))

    def dbcache(
        self,
        fname: str | os.PathLike[str],
        size: float,
        source: Iterable[Any] | None = None,
        shuffle: bool = False,
        verbose: bool = True,
        *,
        allow_pickle: bool | None = None,
    ) -> Self:
        """Keep the first `size` samples in a SQLite file and serve later passes from there.

        Args:
            fname: the path of the file
            size: how many samples to keep
            source: what the samples come from, if it is not a stage of a pipeline
            shuffle: whether to serve them in random order
            verbose: whether to say what happens
            allow_pickle: let stored samples hold any object; None asks `WDS_ALLOW_PICKLE`
        """
        return self.compose(filters.DBCache(fname, size, source, shuffle, verbose, allow_pickle=allow_pickle))

    def ddp_equalize(self, length: int) -> Self:
        """Give every rank the same number of items, its share of `length` rounded up, by repeating the stream."""
        _, world_size, _, _ = pytorch_worker_info()
        result: Any = self.compose()
        per_rank = -(-length // world_size)
        return result.repeat(nbatches=per_rank).with_length(per_rank, silent=True)  # type: ignore[no-any-return]

    def preview(self, n: int = 9) -> Preview:
        """The first `n` items, shown as pictures in a notebook; the dataset itself stays where it is.

        >>> FluidWrapper([{"__key__": "a", "cls": 3}]).preview()
        a
          cls  3
        """
        from .display.previews import Preview

        return Preview(_first(self, n))

    def describe(self, n: int = 1000) -> Description:
        """Statistics of the first `n` items, as `wl info` prints them: fields, types, shapes, ranges and sizes.

        >>> FluidWrapper([{"__key__": "a", "cls": 3}, {"__key__": "b", "cls": 5}]).describe().fields["cls"].range.ends()
        [3.0, 5.0]
        """
        from .display.describing import describe
        from .display.previews import fields_of

        return describe({"__key__": "", **fields_of(item)} for item in _first(self, n))

    def test(
        self,
        length: int | None = None,
        checker: Callable[[Any], Any] | None = None,
        mock_sample: object = None,
        mock_length: int = 10000,
        mock: bool = False,
    ) -> Self:
        """For trying a program out: check every sample, declare a length, or give a made-up sample instead of the data.

        Args:
            length: what `len()` says
            checker: a function of the sample, which raises an error if it is wrong
            mock_sample: the sample to give instead of the data
            mock_length: how many times
            mock: whether to give it

        >>> list(FluidWrapper([1, 2]).test(mock_sample="sample", mock_length=2, mock=True))
        ['sample', 'sample']
        """
        result: Any = self.compose()
        if mock:
            result.pipeline = [[mock_sample] * mock_length]
        if checker is not None:
            result = result.map(partial(_checked, checker))
        return result if length is None else result.with_length(length, silent=True)  # type: ignore[no-any-return]


def _first(dataset: Any, n: int) -> Iterator[Any]:
    """The first items of a pass that is not counted as one of the dataset's."""
    items = iter(dataset.compose())
    try:
        yield from islice(items, n)
    finally:
        close(items)


def _checked(checker: Callable[[Any], Any], sample: object) -> Any:
    checker(sample)
    return sample


class FluidWrapper(DataPipeline, FluidInterface):
    """Any iterable dataset, with the fluent methods.

    Args:
        initial: the dataset

    >>> list(FluidWrapper([1, 2, 3]).slice(2))
    [1, 2]
    """

    def __init__(self, initial: object) -> None:
        super().__init__([initial])


class Processor(FluidWrapper):
    """A stage applied to a dataset, `Processor(dataset, wds.map, f)`, which is a dataset; or, without the dataset, a
    function that waits for it, `Processor(wds.map, f)(dataset)`.

    Args:
        first: the dataset, or the stage
        *args: the stage, after a dataset, and its options
        **kw: options of the stage

    >>> list(Processor([1, 2], filters.map, str)), list(Processor(filters.map, str)([1, 2]))
    (['1', '2'], ['1', '2'])
    """

    def __init__(self, first: Any, *args: Any, **kw: Any) -> None:
        given = hasattr(first, "__iter__")
        super().__init__(first if given else ())
        function, *options = args if given else (first, *args)
        self.processing = (function if isinstance(function, Filter) else Filter(function))(*options, **kw)
        self.pipeline = [first, self.processing] if given else []

    def __call__(self, dataset: object) -> FluidWrapper:
        return FluidWrapper(dataset).compose(self.processing)
