"""Which epoch a loader of an exact dataset begins, and where it begins it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any

import numpy
import pytest

import webdataset as wds

WORKERS = [
    pytest.param({"num_workers": 0}, id="none"),
    pytest.param({"num_workers": 2}, id="processes"),
    pytest.param({"num_workers": 2, "persistent_workers": True}, id="persistent"),
    pytest.param({"num_workers": 2, "workers": "thread"}, id="threads"),
]


@pytest.fixture
def dataset(make_shards):
    return wds.WebDataset(make_shards(3, samples=7), exact=True, seed=1).to_tuple("__key__").batched(2)


def keys(batches: Any) -> list[Any]:
    return [names for (names,) in batches]


def epoch_of(dataset: Any, number: int) -> list[Any]:
    return keys(dataset.compose().set_epoch(number))


@pytest.mark.parametrize("workers", WORKERS)
def test_set_epoch_chooses_the_order(dataset, workers):
    loader = wds.WebLoader(dataset, batch_size=None, **workers)
    assert [keys(loader.set_epoch(number)) for number in (2, 0)] == [epoch_of(dataset, 2), epoch_of(dataset, 0)]
    assert keys(loader) == epoch_of(dataset, 1)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_pass_that_was_abandoned_does_not_change_the_epoch_of_the_next(dataset, workers):
    """Workers of the abandoned one may only begin when the next one has begun."""
    loader = wds.WebLoader(dataset, batch_size=None, **workers)
    for _ in range(3):
        abandoned = iter(loader)
        next(abandoned)
        assert keys(loader.set_epoch(1)) == epoch_of(dataset, 1)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_state_that_is_loaded_counts_after_a_first_batch_was_looked_at(dataset, workers):
    loader = wds.WebLoader(dataset, batch_size=None, **workers)
    batches = iter(loader.set_epoch(1))
    before = keys(next(batches) for _ in range(4))
    state = loader.state_dict()
    other = wds.WebLoader(dataset.compose(), batch_size=None, **workers)
    looked_at = iter(other)
    next(looked_at)
    other.set_epoch(1).load_state_dict(state)
    assert before + keys(other.set_epoch(1)) == epoch_of(dataset, 1)


def test_the_state_after_set_epoch_is_the_beginning_of_that_epoch(dataset):
    loader = wds.WebLoader(dataset, batch_size=None)
    next(iter(loader))
    loader.set_epoch(5)
    state = loader.state_dict()
    assert (state["epoch"], state["position"]) == (5, 0)


@pytest.mark.parametrize("workers", WORKERS)
def test_a_loader_whose_pass_was_abandoned_goes_when_nobody_has_it(dataset, workers):
    """Otherwise its worker processes would stay until Python looks for cycles, and then be waited for."""
    loader = wds.WebLoader(dataset, batch_size=None, **workers)
    batches = iter(loader)
    next(batches)
    seen = weakref.ref(loader)
    del loader, batches
    assert seen() is None


# -- batches in reused memory ------------------------------------------------------------------------


@pytest.fixture
def numbers(tmp_path):
    with wds.ShardWriter(f"{tmp_path}/%03d.tar", maxcount=50, verbose=0) as writer:
        for n in range(200):
            writer.write({"__key__": f"{n:03d}", "npy": numpy.full((64, 64), n)})
    return wds.WebDataset([f"{tmp_path}/{n:03d}.tar" for n in range(4)], exact=True, seed=1).decode().to_tuple("npy")


def values(batch: Any) -> list[int]:
    return [int(row[0][0]) for row in batch[0]]


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("pool", [1, 3])
def test_batches_in_reused_memory_are_valid_as_long_as_was_said(numbers, pool, threads):
    dataset = numbers.batched(4)
    expected = [values(batch) for batch in dataset]
    loader = wds.WebLoader(dataset.compose(), batch_size=None, num_workers=threads, workers="thread", pool=pool)
    held: deque[Any] = deque(maxlen=pool)
    places = set()
    for number, batch in enumerate(loader, 1):
        held.append(batch)
        places.add(numpy.asarray(batch[0]).ctypes.data)
        assert [values(each) for each in held] == expected[number - len(held) : number]
    assert len(places) <= pool + 2 * threads
    assert len(expected) == 50


def test_the_loaders_own_batches_lie_in_reused_memory_too(numbers):
    loader = wds.WebLoader(numbers, batch_size=4, num_workers=2, workers="thread", pool=2)
    places = {numpy.asarray(batch[0]).ctypes.data for batch in loader}
    assert len(places) <= 6


def test_states_do_not_depend_on_where_batches_lie(numbers):
    pooled = wds.WebLoader(numbers.batched(4), batch_size=None, num_workers=2, workers="thread", pool=2)
    batches = iter(pooled)
    before = [values(next(batches)) for _ in range(5)]
    plain = wds.WebLoader(numbers.batched(4), batch_size=None)
    plain.load_state_dict(pooled.state_dict())
    assert before + [values(batch) for batch in plain] == [values(batch) for batch in numbers.batched(4)]


def test_reused_memory_needs_batches_that_the_library_makes(numbers):
    for dataset in (numbers, numbers.batched(4, collation_fn=list)):
        with pytest.raises(ValueError, match="pool= needs batches"):
            wds.WebLoader(dataset, batch_size=None, workers="thread", pool=2)
    with pytest.raises(ValueError, match="pool= needs batches"):
        wds.WebLoader(numbers, batch_size=4, collate_fn=list, workers="thread", pool=2)
    with pytest.raises(ValueError, match="pool= is for workers"):
        wds.WebLoader(numbers.batched(4), batch_size=None, pool=2)
