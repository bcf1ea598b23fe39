"""Collation as torch does it, in memory that is used again."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import webdataset as wds
from webdataset.loading.collation import collated_as_torch

Pair = namedtuple("Pair", "a b")

SAMPLES = {
    "numbers": [1, 2, 3],
    "floats": [1.5, 2.5],
    "texts": ["a", "b"],
    "bytes": [b"a", b"b"],
    "arrays": [np.full((2, 3), n) for n in range(3)],
    "arrays of one value": [np.array(n) for n in range(3)],
    "tensors": [torch.full((2, 3), n) for n in range(3)],
    "bools": [torch.tensor([True, False])] * 2,
    "tuples": [(n, str(n), np.full(2, n)) for n in range(3)],
    "lists": [[n, torch.full((2,), n)] for n in range(3)],
    "dicts": [{"a": n, "b": {"c": np.full(2, n, np.float32)}} for n in range(3)],
    "named tuples": [Pair(n, torch.ones(2)) for n in range(3)],
    "numpy's numbers": [np.float32(n) for n in range(3)],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_result_is_that_of_torch(name):
    def same(one, other):
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
        elif isinstance(one, dict):
            assert one.keys() == other.keys()
            [same(one[key], other[key]) for key in one]
        elif isinstance(one, (list, tuple)):
            assert len(one) == len(other)
            [same(*pair) for pair in zip(one, other, strict=True)]
        else:
            assert one == other

    same(collated_as_torch(SAMPLES[name]), default_collate(SAMPLES[name]))


def arrays(count):
    return wds.FluidWrapper(range(count)).map(lambda n: (np.full((256, 1024), n), n))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("own", [True, False])
def test_batches_of_threads_stay_as_they_are_while_they_are_held(workers, own):
    dataset = arrays(40) if own else arrays(40).batched(2)
    size = 2 if own else None
    held = list(wds.WebLoader(dataset, batch_size=size, num_workers=workers, workers="thread"))
    assert [batch[0][:, 0, 0].tolist() for batch in held] == [[n, n + 1] for n in range(0, 40, 2)]


@pytest.mark.parametrize("own", [True, False])
def test_the_memory_of_batches_that_are_dropped_is_used_again(own):
    dataset = arrays(200) if own else arrays(200).batched(2)
    loader = wds.WebLoader(dataset, batch_size=2 if own else None, num_workers=2, workers="thread")
    places = {batch[0].data_ptr() for batch in loader}
    assert len(places) <= 10


def test_samples_of_different_lengths_are_an_error():
    with pytest.raises(wds.BatchError if hasattr(wds, "BatchError") else AssertionError, match="different numbers"):
        collated_as_torch([(1, 2), (1,)])
