"""Datasets that torch takes for its own, and their lengths."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from webdataset.base.iterables import LengthIfKnown, TorchIterable


class Numbers(TorchIterable):
    """Some numbers, of which it may be known how many they are."""

    __len__ = LengthIfKnown(lambda numbers: (lambda: numbers.count) if numbers.known else None)

    def __init__(self, count: int, known: bool) -> None:
        self.count = count
        self.known = known

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


def test_a_length_that_is_known_is_a_method() -> None:
    assert len(Numbers(3, known=True)) == 3
    assert hasattr(Numbers(3, known=True), "__len__")


def test_a_length_that_is_not_known_is_not_there_and_says_why() -> None:
    numbers = Numbers(3, known=False)
    assert not hasattr(numbers, "__len__")
    assert not hasattr(Numbers, "__len__")
    assert list(numbers) == [0, 1, 2]
    with pytest.raises(TypeError, match=r"a streamed Numbers has no len\(\): .* exact=True"):
        len(numbers)


def test_they_are_torch_datasets_once_torch_is_there() -> None:
    from torch.utils.data import IterableDataset

    numbers = Numbers(3, known=False)
    assert isinstance(numbers, IterableDataset)
    assert type(pickle.loads(pickle.dumps(numbers))) is Numbers
