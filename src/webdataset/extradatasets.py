"""Small datasets for tests and for changing a dataset's length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice, repeat
from typing import Any

from .base.behaviour import Behaviour
from .base.iterables import TorchIterable
from .base.stages import PipelineStage
from .filters.closing import closing
from .handlers import close


class MockDataset(TorchIterable):
    """The same sample, again and again.

    Args:
        sample: the sample
        length: how many times

    >>> list(MockDataset({"cls": 7}, 2))
    [{'cls': 7}, {'cls': 7}]
    """

    def __init__(self, sample: object, length: int) -> None:
        self.sample = sample
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return (_copied(sample) for sample in repeat(self.sample, self.length))


class repeatedly(TorchIterable, PipelineStage):  # noqa: N801 - named like the function it stands for
    """A dataset repeated: a number of times, or up to a number of items, or without end.

    >>> list(repeatedly([1, 2, 3], nepochs=2)), list(repeatedly([1, 2, 3], nbatches=4))
    ([1, 2, 3, 1, 2, 3], [1, 2, 3, 1])
    """

    behaviour = Behaviour("holds", "repeatedly() counts passes of its own; repeat() does it so that it can be saved")

    def __init__(
        self,
        source: Iterable[Any],
        nepochs: int | None = None,
        nbatches: int | None = None,
        length: int | None = None,
    ) -> None:
        self.source = source
        self.nepochs = nepochs
        self.nbatches = nbatches
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return self.run(self.source)

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("the length is not known: repeatedly(source, length=n) declares it")
        return self.length

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        return _repeated(src, self.nepochs, self.nbatches)


class with_epoch(TorchIterable, PipelineStage):  # noqa: N801 - named like the method it stands for
    """Epochs of exactly `length` items: the dataset is repeated and cut as needed, each epoch from its beginning.

    Args:
        dataset: what to repeat or cut
        length: the number of items

    >>> list(with_epoch([1, 2, 3], 5))
    [1, 2, 3, 1, 2]
    """

    behaviour = Behaviour(
        "holds", "with_epoch() as a stage counts items of its own; the method does it so that they can be saved"
    )

    def __init__(self, dataset: Iterable[Any], length: int) -> None:
        self.dataset = dataset
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return self.run(self.dataset)

    def __len__(self) -> int:
        return self.length

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        return _repeated(src, None, self.length)


class with_length(TorchIterable, PipelineStage):  # noqa: N801 - named like the method it stands for
    """A dataset with a declared `len()`, its data unchanged.

    Args:
        dataset: the items
        length: what `len()` says

    >>> dataset = with_length([1, 2, 3], 5)
    >>> list(dataset), len(dataset)
    ([1, 2, 3], 5)
    """

    def __init__(self, dataset: Iterable[Any], length: int) -> None:
        self.dataset = dataset
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)

    def __len__(self) -> int:
        return self.length

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        return iter(src)


class ResizedDataset(with_epoch):
    """Epochs of `length` items that declare a length of `nominal`, as in the 0.1 API.

    >>> dataset = ResizedDataset([1, 2, 3], 4, nominal=2)
    >>> list(dataset), len(dataset)
    ([1, 2, 3, 1], 2)
    """

    def __init__(self, dataset: Iterable[Any], length: int, nominal: int | None = None) -> None:
        super().__init__(dataset, length)
        self.nominal = length if nominal is None else nominal

    def __len__(self) -> int:
        return self.nominal


ChoppedDataset = ResizedDataset


def _repeated(source: Iterable[Any], nepochs: int | None, nbatches: int | None) -> Iterator[Any]:
    passes = _passes(source, nepochs)
    return closing(passes, islice(passes, nbatches))


def _passes(source: Iterable[Any], nepochs: int | None) -> Iterator[Any]:
    """Pass after pass, until one gives nothing."""
    for _ in count() if nepochs is None else range(nepochs):
        iterator = iter(source)
        empty = True
        try:
            for item in iterator:
                empty = False
                yield item
        finally:
            close(iterator)
        if empty:
            return


def _copied(sample: Any) -> Any:
    return sample.copy() if isinstance(sample, (dict, list)) else sample
