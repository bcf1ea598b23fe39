"""Where a trainer is: states that fit, and states that do not."""

from __future__ import annotations

import pytest

import webdataset as wds
from remote_support import Fleet, dataset, flat, keys, write_shards

pytestmark = pytest.mark.together("remote")


def state_after(urls, batches, world=2, **options):
    with wds.RemoteLoader(urls, rank=0, world_size=world, patience=60, **options) as loader:
        items = iter(loader)
        for _ in range(batches):
            next(items)
        state = loader.state_dict()
        items.close()
        return state


def loaded(urls, state, world, **options):
    loader = wds.RemoteLoader(urls, rank=0, world_size=world, patience=60, job="other", **options)
    with loader:
        loader.load_state_dict(state)
        return keys(loader)


def test_ranks_that_have_not_taken_as_many_each_are_told_how_to_go_on(fleet) -> None:
    state = state_after(fleet.urls, 3, feeds=8)
    with pytest.raises(wds.StateError, match=r"after 6 batches of 2 ranks, 4 ranks cannot .*go on with 2 ranks"):
        loaded(fleet.urls, state, 4)


def test_the_feeds_of_a_state_hold_until_its_epoch_ends(fleet) -> None:
    state = state_after(fleet.urls, 4, feeds=4)
    with wds.RemoteLoader(fleet.urls, rank=0, world_size=2, feeds=16, patience=60, job="other") as loader:
        loader.load_state_dict(state)
        assert loader.state_dict()["feeds"] == 4
        keys(loader)
        assert loader.state_dict()["feeds"] == 16


@pytest.mark.parametrize(
    "damage",
    [{"position": 3}, {"feeds": 3}, {"feeds": 0}, {"topology": {}}, {"epoch": "x"}, {"position": 1000}, {"skip": -1}],
)
def test_a_damaged_state_is_told(fleet, damage) -> None:
    state = state_after(fleet.urls, 1, feeds=8)
    with pytest.raises(wds.StateError, match="damaged"):
        loaded(fleet.urls, {**state, **damage}, 2)


def without_batches(shards):
    return wds.WebDataset(shards, exact=True, seed=5).decode().to_tuple("__key__", "cls")


def test_samples_without_batches_are_given_one_by_one_and_resumed_between_them(tmp_path) -> None:
    shards = write_shards(tmp_path, (40, 30))
    with Fleet(1, without_batches, shards) as fleet:
        with wds.RemoteLoader(fleet.urls, feeds=2, patience=60) as loader:
            assert len(loader) == 70
            whole = [key for key, _ in loader]
            assert sorted(whole) == [f"{i:05d}" for i in range(70)]
            loader.set_epoch(0)
            items = iter(loader)
            taken = [next(items)[0] for _ in range(21)]
            state = loader.state_dict()
        with wds.RemoteLoader(fleet.urls, feeds=2, patience=60) as loader:
            loader.load_state_dict(state)
            assert taken + [key for key, _ in loader] == whole


def mixture(shards):
    first = wds.WebDataset(shards[:1], exact=True, seed=5)
    second = wds.WebDataset(shards[1:], exact=True, seed=5)
    mix = wds.RandomMix([first, second], [0.5, 0.5], longest=True)
    return wds.DataPipeline(mix, wds.to_tuple("__key__"), wds.batched(4))


def selected(shards):
    base = wds.WebDataset(shards, exact=True, seed=5).decode().select(lambda sample: sample["cls"] % 3 == 0)
    return base.to_tuple("__key__").batched(4)


def bucketed(shards):
    return wds.WebDataset(shards, exact=True, seed=5).bucketed("cls", [2, 3], batchsize=4)


def in_order(shards):
    return dataset(shards, shuffle_bytes=0)


def names(batches):
    return [list(batch["__key__"] if isinstance(batch, dict) else batch[0]) for batch in batches]


@pytest.mark.parametrize("make", [mixture, selected, bucketed, in_order])
def test_mixtures_selections_buckets_and_shards_in_order_are_as_locally(shards, make) -> None:
    with Fleet(2, make, shards) as fleet, wds.RemoteLoader(fleet.urls, patience=60) as loader:
        local = names(make(shards))
        found = names(loader)
        assert len(found) == len(local)
        if make is not selected:
            assert sorted(flat(found)) == sorted(flat(local))
        if make in (bucketed, in_order):
            assert found == local
        assert {*flat(found)} == {*flat(local)}
        loader.set_epoch(0)
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = loader.state_dict()
        batches.close()
        loader.load_state_dict(state)
        assert names(loader) == found[5:]
