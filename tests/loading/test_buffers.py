"""Batches in reused memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import webdataset as wds

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def loader(dataset, num_workers=2, **kw):
    return wds.WebLoader(dataset, num_workers=num_workers, workers="thread", **kw)


def numbered_arrays(count):
    return wds.FluidWrapper(range(count)).map(lambda n: (np.full((4, 4), n), n, str(n)))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_stay_as_they_are_unless_a_pool_is_asked_for(workers):
    for batches in (
        list(loader(numbered_arrays(40), workers, batch_size=2)),
        list(loader(numbered_arrays(40).batched(2), workers, batch_size=None)),
    ):
        assert [int(batch[0][0, 0, 0]) for batch in batches] == list(range(0, 40, 2))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("pool", [1, 3])
def test_a_batch_from_the_pool_is_valid_until_so_many_further_ones_were_taken(workers, own, pool):
    if own:
        batches = loader(numbered_arrays(201), workers, batch_size=2, pool=pool)
    else:
        batches = loader(numbered_arrays(201).batched(2), workers, batch_size=None, pool=pool)
    held, places = [], set()
    for n, (arrays, numbers, texts) in enumerate(batches):
        held = [*held, arrays][-pool:]
        first = max(0, n - pool + 1)
        assert [int(each[0, 0, 0]) for each in held] == [2 * m for m in range(first, n + 1)]
        assert numbers.tolist() == [2 * n, 2 * n + 1][: len(texts)]
        places.add(arrays.data_ptr())
    assert n == 100
    assert len(places) <= pool + 2 * 2 + 2


@pytest.mark.parametrize("workers", [0, 4])
def test_batches_of_a_dataset_with_indices_come_from_the_pool_too(workers):
    data = [(np.full(8, n), {"n": torch.full((2,), n)}) for n in range(300)]
    held = []
    for n, (arrays, fields) in enumerate(loader(data, workers, batch_size=3, pool=2)):
        held = [*held, arrays][-2:]
        assert [int(each[0, 0]) for each in held] == [3 * m for m in range(max(0, n - 1), n + 1)]
        assert fields["n"][:, 0].tolist() == [3 * n, 3 * n + 1, 3 * n + 2]


def test_a_pool_gives_the_batches_that_there_would_be_without():
    samples = [
        {"image": np.full((2, 3), n, np.uint8), "pair": (torch.tensor(n), n / 2), "text": str(n), "list": [n, n]}
        for n in range(10)
    ]
    plain, pooled = (list(loader(samples, 2, batch_size=4, pool=pool)) for pool in (0, 10))
    assert repr(plain) == repr(pooled)


def test_samples_that_do_not_stack_are_an_error_with_a_pool_too():
    data = wds.FluidWrapper([(np.zeros(2),), (np.zeros(3),)])
    with pytest.raises(wds.filters.BatchError, match="different shapes"):
        list(loader(data.batched(2), 1, batch_size=None, pool=1))
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        list(loader(data, 1, batch_size=2, pool=1))


def test_a_pool_needs_batches_that_we_make():
    for options in ({"batch_size": None}, {"batch_size": 2, "collate_fn": list}):
        with pytest.raises(ValueError, match="pool= needs batches that the loader makes"):
            loader(numbered_arrays(3), pool=2, **options)
    with pytest.raises(ValueError, match="processes send every batch in memory of its own"):
        wds.WebLoader(numbered_arrays(3), pool=2)
