"""Where a trainer is: states that fit, and states that do not."""

from __future__ import annotations

import json

import pytest

import webdataset as wds
from remote_support import Fleet, dataset, flat, keys, write_shards

pytestmark = pytest.mark.xdist_group("remote")


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


def taken_by(loaders, count):
    """What ranks take in so many steps, and a state after them."""
    found = []
    for loader in loaders:
        batches = iter(loader)
        found += [key for _, batch in zip(range(count), batches, strict=False) for key in batch[0]]
        state = loader.state_dict()
        batches.close()
    return found, json.loads(json.dumps(state))


def ranks_of(urls, world, state=None, **options):
    loaders = [
        wds.RemoteLoader(urls, rank=rank, world_size=world, patience=60, job="ranks", **options)
        for rank in range(world)
    ]
    for loader in loaders:
        if state is not None:
            loader.load_state_dict(state)
    return loaders


@pytest.mark.parametrize("worlds", [(1, 2), (1, 3, 2, 5), (3, 1, 4), (2, 7, 7, 1)])
def test_any_number_of_ranks_goes_on_after_any_batch(fleet, worlds) -> None:
    for first in (1, 3, 19 // worlds[0]):
        taken: list[str] = []
        state = None
        for number, world in enumerate(worlds):
            loaders = ranks_of(fleet.urls, world, state)
            last = number == len(worlds) - 1
            found, state = taken_by(loaders, 1000 if last else first if not number else 1)
            taken += found
            for loader in loaders:
                loader.close()
        assert {*taken} == {f"{i:05d}" for i in range(129)}
        assert len(taken) - 129 < 4 * max(worlds)  # filled up at the end, so that all ranks have as many


def test_ranks_in_the_middle_of_a_round_that_others_began_go_on_as_they_would_have(fleet) -> None:
    _, begun = taken_by(ranks_of(fleet.urls, 1), 5)
    [loader] = ranks_of(fleet.urls, 3, begun)[:1]
    whole = keys(loader)
    for count in (1, 3, 4, 5):
        [loader] = ranks_of(fleet.urls, 3, begun)[:1]
        found, state = taken_by([loader], count)
        [again] = ranks_of(fleet.urls, 3, state)[:1]
        assert found + flat(keys(again)) == flat(whole)
        assert len(keys(again)) == len(again)  # the next epoch is a whole one


def test_lengths_are_those_of_whole_epochs_and_rounds_go_on_after_other_ranks(fleet) -> None:
    _, begun = taken_by(ranks_of(fleet.urls, 1), 5)
    [loader] = ranks_of(fleet.urls, 3, begun)[:1]
    assert len(loader) == 11
    [loader] = ranks_of(fleet.urls, 3, begun)[:1]
    whole = keys(loader) + keys(loader)
    [loader] = ranks_of(fleet.urls, 3, begun)[:1]
    rounds = loader.with_epoch(4)
    assert keys(rounds) + keys(rounds) + keys(rounds) == whole[:12]


def test_the_feeds_of_a_state_hold_until_its_epoch_ends(fleet) -> None:
    state = state_after(fleet.urls, 4, feeds=4)
    with wds.RemoteLoader(fleet.urls, rank=0, world_size=2, feeds=16, patience=60, job="other") as loader:
        loader.load_state_dict(state)
        assert loader.state_dict()["feeds"] == 4
        keys(loader)
        assert loader.state_dict()["feeds"] == 16


@pytest.mark.parametrize(
    "damage",
    [
        {"order": 0},
        {"feeds": 9999},
        {"feeds": 0},
        {"topology": {}},
        {"epoch": "x"},
        {"position": 1000},
        {"skip": -1},
    ],
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
