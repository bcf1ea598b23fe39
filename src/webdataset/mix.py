"""Mixing: several datasets as one."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any, Self

from .base.context import current_pass
from .base.counter import PassCounter
from .base.iterables import LengthIfKnown
from .base.mixing import Mixture, Turns
from .base.reports import Report
from .base.stages import suggesting
from .base.workers import make_seed, pytorch_worker_info
from .display.reprs import ShownPipeline
from .fluid import FluidInterface, FluidWrapper
from .handlers import close

END = object()


class _Mixture(ShownPipeline, Mixture, FluidInterface):
    """Mixtures as users make them, with the fluent methods: each gives a pipeline that reads the mixture."""

    _passes: PassCounter

    def __iter__(self) -> Iterator[Any]:
        return _planned(self) if self.exact else self.started(self.datasets, Turns())

    if TYPE_CHECKING:

        def compose(self, *args: object) -> Self: ...

        def __len__(self) -> int: ...

    else:
        __len__ = LengthIfKnown(lambda mixture: FluidWrapper(mixture).__len__ if mixture.exact else None)

        def compose(self, *args: object) -> FluidWrapper:
            """A pipeline that reads the mixture, and does this with it."""
            return FluidWrapper(self).compose(*args)

    def __bool__(self) -> bool:
        return True

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> Self:
        """A pipeline with epochs of exactly this many samples of the mixture."""
        return self.compose().with_epoch(nsamples, nbatches)

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> Self:
        """A pipeline that reads the mixture this many times (endlessly, if not given)."""
        return self.compose().repeat(nepochs, nbatches)

    def with_length(self, n: int, silent: bool = False) -> Self:
        """A pipeline that reads the mixture and has a `len()`; the data stays as it is."""
        return self.compose().with_length(n, silent)


class RoundRobin(_Mixture):
    """One sample of each dataset in turn, until the first ends, or with `longest` until all have.

    Args:
        datasets: the datasets
        longest: go on until all have ended

    >>> list(RoundRobin([[1, 2, 3], "ab"]))
    [1, 'a', 2, 'b', 3]
    """

    def __init__(self, datasets: Sequence[Iterable[Any]], longest: bool = False) -> None:
        self.datasets = datasets
        self.longest = longest
        self._passes = PassCounter()

    def started(self, sources: Sequence[Iterable[Any]], turns: Turns) -> Iterator[Any]:
        """Mix these `sources`, beginning after the `turns` that were taken."""
        return _in_turn([iter(source) for source in sources], self.longest, turns)


class RandomMix(_Mixture):
    """Samples of several datasets, each drawn with its weight, until one ends, or with `longest` until all have.

    The weights need not add up to one; a dataset that ended no longer counts. The same seed gives each
    worker the same choices on every pass; without one, every pass has its own.

    A mixture of datasets with exact epochs has exact epochs itself. `samples=n` then makes an epoch of n samples, for
    which every dataset is repeated as often as its weight asks for.

    Args:
        datasets: the datasets
        probs: the weight of each; None for equal ones
        longest: go on until all have ended
        seed: the seed of the choice
        samples: samples of an epoch, of exact datasets

    >>> sorted(RandomMix([[1, 2, 3], [10, 20]], probs=[0.7, 0.3], longest=True))
    [1, 2, 3, 10, 20]
    """

    @suggesting(method=True)
    def __init__(
        self,
        datasets: Sequence[Iterable[Any]],
        probs: Sequence[float] | None = None,
        longest: bool = False,
        *,
        seed: object = None,
        samples: int | None = None,
    ) -> None:
        _checked_weights(probs, len(datasets))
        self.datasets = datasets
        self.probs = probs
        self.longest = longest
        self.seed = seed
        self.samples = samples
        self._passes = PassCounter()
        if samples is not None and not self.exact:
            raise ValueError("samples= needs datasets with exact epochs: WebDataset(..., exact=True)")

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each dataset."""
        return (1.0,) * len(self.datasets) if self.probs is None else tuple(map(float, self.probs))

    def started(self, sources: Sequence[Iterable[Any]], turns: Turns) -> Iterator[Any]:
        """Mix these `sources`, beginning after the `turns` that were taken."""
        rng = self._rng()
        for _ in range(turns.taken):
            rng.random()
        weights = _checked_weights(self.probs, len(sources))
        return _drawn([iter(source) for source in sources], weights, self.longest, rng.random, turns)

    def _rng(self) -> random.Random:
        if self.seed is None:
            return random.Random(current_pass().seed())
        rank, _, worker, _ = pytorch_worker_info()
        return random.Random(make_seed(self.seed, rank, worker))


def _planned(mix: _Mixture) -> Iterator[Any]:
    """A pass over a mixture of exact datasets that is read by itself, rather than as the source of a pipeline."""
    from .exact.positions import in_epoch
    from .exact.program import program_of

    program = program_of([mix])
    assert program is not None
    epoch = mix._passes.begin()
    _, _, worker, workers = pytorch_worker_info()
    items = program.items(in_epoch(epoch), Report(), worker=worker, workers=workers)
    try:
        yield from items
    finally:
        items.close()


def round_robin_shortest(*sources: Iterable[Any]) -> Iterator[Any]:
    """One item of each source in turn, until one has no more.

    >>> list(round_robin_shortest([1, 2], "abc"))
    [1, 'a', 2, 'b']
    """
    return _in_turn([iter(source) for source in sources], False, Turns())


def round_robin_longest(*sources: Iterable[Any]) -> Iterator[Any]:
    """One item of each source in turn, until all have no more.

    >>> list(round_robin_longest([1, 2], "abc"))
    [1, 'a', 2, 'b', 'c']
    """
    return _in_turn([iter(source) for source in sources], True, Turns())


def random_samples(
    sources: Sequence[Iterable[Any]],
    probs: Sequence[float] | None = None,
    longest: bool = False,
    *,
    rng: random.Random | None = None,
) -> Iterator[Any]:
    """Items of several sources, each drawn with its weight.

    >>> list(random_samples([[1, 2], "never"], [1, 0]))
    [1, 2]
    """
    weights = _checked_weights(probs, len(sources))
    drawn = (random.Random() if rng is None else rng).random
    return _drawn([iter(source) for source in sources], weights, longest, drawn, Turns())


def _in_turn(iterators: list[Iterator[Any]], longest: bool, turns: Turns) -> Iterator[Any]:
    try:
        while len(turns.ended) < (len(iterators) if longest else min(1, len(iterators))):
            chosen = turns.taken % len(iterators)
            turns.taken += 1
            if chosen in turns.ended:
                continue
            if (item := next(iterators[chosen], END)) is END:
                turns.ended.append(chosen)
            else:
                yield item
    finally:
        _close_all(iterators)


def _drawn(
    iterators: list[Iterator[Any]], weights: list[float], longest: bool, drawn: Callable[[], float], turns: Turns
) -> Iterator[Any]:
    try:
        while longest or not turns.ended:
            # a source of weight zero would be drawn when rounding puts the number on its border
            active = [n for n, weight in enumerate(weights) if weight > 0 and n not in turns.ended]
            if not active:
                return
            borders = list(accumulate(weights[n] for n in active))
            chosen = yield from _drawn_until_one_ends([iterators[n] for n in active], borders, drawn, turns)
            turns.ended.append(active[chosen])
    finally:
        _close_all(iterators)


def _drawn_until_one_ends(
    iterators: list[Iterator[Any]], borders: list[float], drawn: Callable[[], float], turns: Turns
) -> Generator[Any, None, int]:
    total, last = borders[-1], len(borders) - 1
    while True:
        turns.taken += 1
        chosen = bisect(borders, drawn() * total, 0, last)
        if (item := next(iterators[chosen], END)) is END:
            return chosen
        yield item


def _checked_weights(probs: Sequence[float] | None, count: int) -> list[float]:
    weights = [1.0] * count if probs is None else [float(prob) for prob in probs]
    if len(weights) != count:
        raise ValueError(f"{len(weights)} probabilities for {count} datasets: give one for each")
    if not all(0 <= weight < inf for weight in weights) or (weights and sum(weights) == 0):
        raise ValueError(f"probabilities must be numbers of at least 0, and not all 0, got {weights}")
    return weights


def _close_all(iterators: list[Iterator[Any]]) -> None:
    for iterator in iterators:
        close(iterator)
