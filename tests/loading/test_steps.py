"""Which epoch a loader of an exact dataset begins, and where it begins it."""

from __future__ import annotations

import weakref
from typing import Any

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
