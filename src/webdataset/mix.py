"""Mixing: several datasets as one."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf
from typing import Any

from .handlers import close
from .iterables import TorchIterable
from .passes import PassCounter
from .reports import Report
from .workers import make_seed, pytorch_worker_info

END = object()


class RoundRobin(TorchIterable):
    """One sample of each dataset in turn, until the first ends, or with `longest` until all have.

    >>> list(RoundRobin([[1, 2, 3], "ab"]))
    [1, 'a', 2, 'b', 3]
    """

    def __init__(self, datasets: Sequence[Iterable[Any]], longest: bool = False) -> None:
        self.datasets = datasets
        self.longest = longest
        self._passes = PassCounter()

    @property
    def exact(self) -> bool:
        """Whether all datasets have exact epochs; their samples are then mixed by a plan."""
        return _are_exact(self.datasets)

    def __iter__(self) -> Iterator[Any]:
        if self.exact:
            return _planned(self)
        return round_robin_longest(*self.datasets) if self.longest else round_robin_shortest(*self.datasets)


class RandomMix(TorchIterable):
    """Samples of several datasets, each drawn with its weight, until one ends, or with `longest` until all have.

    The weights need not add up to one; a dataset that ended no longer counts. The same seed gives each
    worker the same choices on every pass; without one, every pass has its own.

    A mixture of datasets with exact epochs has exact epochs itself. `samples=n` then makes an epoch of n samples, for
    which every dataset is repeated as often as its weight asks for.

    >>> sorted(RandomMix([[1, 2, 3], [10, 20]], probs=[0.7, 0.3], longest=True))
    [1, 2, 3, 10, 20]
    """

    def __init__(
        self,
        datasets: Sequence[Iterable[Any]],
        probs: Sequence[float] | None = None,
        longest: bool = False,
        *,
        seed: Any = None,
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
    def exact(self) -> bool:
        """Whether all datasets have exact epochs; their samples are then mixed by a plan."""
        return _are_exact(self.datasets)

    def __iter__(self) -> Iterator[Any]:
        if self.exact:
            return _planned(self)
        return random_samples(self.datasets, self.probs, self.longest, rng=self._rng())

    def _rng(self) -> random.Random:
        if self.seed is None:
            return random.Random()
        rank, _, worker, _ = pytorch_worker_info()
        return random.Random(make_seed(self.seed, rank, worker))


def _are_exact(datasets: Sequence[Any]) -> bool:
    exact = [bool(getattr(dataset, "exact", False)) for dataset in datasets]
    if any(exact) and not all(exact):
        raise ValueError("a mixture is exact if all its datasets are WebDataset(..., exact=True), or none is")
    return any(exact)


def _planned(mix: Any) -> Iterator[Any]:
    """A pass over a mixture of exact datasets that is read by itself, rather than as the source of a pipeline."""
    from .exact import Place, program_of

    program = program_of([mix])
    assert program is not None
    report = Report(epoch=mix._passes.begin())
    _, _, worker, workers = pytorch_worker_info()
    for _, item in program.items(Place(report.epoch), report, worker=worker, workers=workers):
        yield item


def round_robin_shortest(*sources: Iterable[Any]) -> Iterator[Any]:
    """One item of each source in turn, until one has no more.

    >>> list(round_robin_shortest([1, 2], "abc"))
    [1, 'a', 2, 'b']
    """
    iterators = [iter(source) for source in sources]
    try:
        while iterators:
            for iterator in iterators:
                if (item := next(iterator, END)) is END:
                    return
                yield item
    finally:
        _close_all(iterators)


def round_robin_longest(*sources: Iterable[Any]) -> Iterator[Any]:
    """One item of each source in turn, until all have no more.

    >>> list(round_robin_longest([1, 2], "abc"))
    [1, 'a', 2, 'b', 'c']
    """
    iterators = [iter(source) for source in sources]
    active = list(iterators)
    try:
        while active:
            ended = []
            for iterator in active:
                if (item := next(iterator, END)) is END:
                    ended.append(iterator)
                else:
                    yield item
            active = [iterator for iterator in active if iterator not in ended]
    finally:
        _close_all(iterators)


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
    return _drawn([iter(source) for source in sources], weights, longest, drawn)


def _drawn(iterators: list[Iterator[Any]], weights: list[float], longest: bool, drawn: Any) -> Iterator[Any]:
    # a source of weight zero would be drawn when rounding puts the number on its border
    active = [(iterator, weight) for iterator, weight in zip(iterators, weights, strict=True) if weight > 0]
    try:
        while active:
            borders = list(accumulate(weight for _, weight in active))
            chosen = yield from _drawn_until_one_ends([iterator for iterator, _ in active], borders, drawn)
            if not longest:
                return
            del active[chosen]
    finally:
        _close_all(iterators)


def _drawn_until_one_ends(iterators: list[Iterator[Any]], borders: list[float], drawn: Any) -> Any:
    total, last = borders[-1], len(borders) - 1
    while True:
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
