"""RemoteLoader with producers that are processes of their own."""

from __future__ import annotations

import json
import pickle
from collections import Counter

import numpy as np
import pytest

import webdataset as wds
from remote_support import Fleet, dataset, flat, keys

pytestmark = pytest.mark.xdist_group("remote")

PIPELINES = [
    (4, "pad", True),
    (4, "drop", False),
    (7, "uneven", True),
    (5, "pad", False),
    (8, "drop", True),
    (7, None, False),
]
TOPOLOGIES = [(1, 1), (1, 16), (2, 4), (4, 8)]


def loader(urls, **options):
    return wds.RemoteLoader(urls, **{"timeout": 20, "patience": 60, **options})


def ranks(urls, world, **options):
    return [loader(urls, rank=rank, world_size=world, **options) for rank in range(world)]


def read(loaders):
    """What each rank gets, taken in turn, as ranks that train together do."""
    found = [keys(one) for one in loaders]
    for one in loaders:
        one.close()
    return found


def in_step(found):
    return [batch for step in zip(*found, strict=True) for batch in step]


@pytest.mark.parametrize(("batch", "remainder", "partial"), PIPELINES)
def test_length_repeats_and_drops_are_those_of_local_ranks_in_20_topologies(shards, batch, remainder, partial) -> None:
    with Fleet(2, served, shards, batch, remainder, partial) as fleet:
        for world, feeds in TOPOLOGIES:
            local = [
                keys(served(shards, batch, remainder, partial, rank=rank, world_size=world)) for rank in range(world)
            ]
            loaders = ranks(fleet.urls, world, feeds=feeds)
            lengths = [len(one) for one in loaders]
            found = read(loaders)
            assert lengths == [len(one) for one in found] == [len(one) for one in local]
            given, wanted = Counter(flat(flat(found))), Counter(flat(flat(local)))
            assert sum(given.values()) == sum(wanted.values())
            assert len(given) == len(wanted)
            if remainder == "uneven":
                assert given == wanted


def served(shards, batch, remainder, partial, **ranks):
    return dataset(shards, batch, remainder=remainder, partial=partial, **ranks)


def test_the_sequence_is_the_same_for_1_2_and_4_producers(fleet) -> None:
    found = [read([loader(fleet.urls[:count])]) for count in (1, 2, 4)]
    assert found[0] == found[1] == found[2]
    assert Counter(flat(found[0][0])) == Counter(f"{i:05d}" for i in range(129))


def test_the_sequence_in_whole_rounds_is_the_same_for_other_numbers_of_ranks(fleet) -> None:
    alone = in_step(read(ranks(fleet.urls, 1, feeds=8)))
    for world in (2, 4, 8):
        together = in_step(read(ranks(fleet.urls, world, feeds=8)))
        assert together[:32] == alone[:32]  # four rounds of eight batches of four
        assert Counter(flat(together)) >= Counter(f"{i:05d}" for i in range(129))


def test_every_epoch_has_another_order_and_set_epoch_chooses_it(fleet) -> None:
    with loader(fleet.urls) as one:
        first, second = keys(one), keys(one)
        assert first != second
        one.set_epoch(0)
        assert keys(one) == first


def test_it_goes_on_after_any_batch(fleet) -> None:
    with loader(fleet.urls) as one:
        whole = keys(one)
        for taken in (0, 1, 7, 32, 33):
            one.set_epoch(0)
            batches = iter(one)
            for _ in range(taken):
                next(batches)
            state = json.loads(json.dumps(one.state_dict()))
            batches.close()
            with loader(fleet.urls[::2], job="other") as other:
                other.load_state_dict(state)
                assert keys(other) == whole[taken:]
                assert keys(other) != whole  # the next epoch


def test_other_numbers_of_ranks_go_on_where_some_have_stopped(fleet) -> None:
    before = ranks(fleet.urls, 2, feeds=8)
    taken = []
    for one in before:
        batches = iter(one)
        taken += flat([list(next(batches)[0]) for _ in range(6)])
        state = one.state_dict()
        batches.close()
    merged = wds.merge_states([one.state_dict() for one in before])
    for world in (1, 3, 4, 5):
        rest = []
        for one in ranks(fleet.urls, world):
            one.load_state_dict(merged if world == 1 else state)
            rest += flat(keys(one))
            one.close()
        assert {*taken}.isdisjoint(rest) or len(taken + rest) > 129
        assert {*taken, *rest} == {f"{i:05d}" for i in range(129)}
        assert len(taken + rest) - 129 < 4 * world
    for one in before:
        one.close()


def test_the_rest_of_an_epoch_is_resumed_by_other_ranks(fleet) -> None:
    before = ranks(fleet.urls, 2, feeds=8)
    taken = []
    for one in before:
        batches = iter(one)
        taken += flat([list(next(batches)[0]) for _ in range(17)])  # one more than the whole rounds have
        state = one.state_dict()
        batches.close()
        one.close()
    # 136 samples of 129 were given, so nothing is left
    with loader(fleet.urls) as one:
        one.load_state_dict(state)
        assert {*taken, *flat(keys(one))} == {f"{i:05d}" for i in range(129)}


def test_a_state_of_something_else_is_refused_with_the_difference(fleet, shards) -> None:
    with loader(fleet.urls) as one, Fleet(1, dataset, shards, 8) as others, loader(others.urls) as other:
        with pytest.raises(wds.StateError, match=r"cut\[0\] .*4 .*8"):
            other.load_state_dict(one.state_dict())
        with pytest.raises(wds.StateError, match="machines"):
            one.load_state_dict(dataset(shards).state_dict())
        with pytest.raises(wds.StateError, match="damaged"):
            one.load_state_dict({**one.state_dict(), "position": -1})


def test_epochs_of_another_length_follow_on_each_other(fleet) -> None:
    with loader(fleet.urls) as one:
        whole = keys(one) + keys(one)
        one.set_epoch(0)
        pieces = one.with_epoch(20)
        assert len(pieces) == 20
        pieces.set_epoch(0)
        assert keys(pieces) + keys(pieces) == whole[:40]


def test_stages_after_the_loader_are_applied(fleet) -> None:
    with loader(fleet.urls) as one:
        singles = list(one.unbatched().slice(3))
    assert [len(single) for single in singles] == [2, 2, 2]


def test_arrays_are_tensors_on_the_device_if_the_program_uses_torch(fleet) -> None:
    torch = pytest.importorskip("torch")
    with loader(fleet.urls) as one:
        assert isinstance(next(iter(one))[1], torch.Tensor)
    with loader(fleet.urls, device="meta") as one:
        assert next(iter(one))[1].device.type == "meta"
    with loader(fleet.urls, pin_memory=True) as one:
        assert next(iter(one))[1].is_pinned() is torch.cuda.is_available()


def test_a_loader_travels_to_another_process_without_its_connections(fleet) -> None:
    with loader(fleet.urls) as one:
        first = keys(one)
        copied = pickle.loads(pickle.dumps(one))
        copied.set_epoch(0)
        with copied:
            assert keys(copied) == first


def with_noise(urls):
    def noisy(sample):
        draw = np.random.default_rng(sample["__seed__"])
        return {**sample, "noise": draw.random()}

    base = wds.WebDataset(urls, exact=True, seed=5).seeded(3).map(noisy)
    return base.to_tuple("__key__", "noise").batched(4)


def test_a_batch_that_is_made_again_is_augmented_in_the_same_way(shards) -> None:
    def noise(one):
        return {key: float(value) for names, values in one for key, value in zip(names, values, strict=True)}

    with Fleet(2, with_noise, shards) as fleet, loader(fleet.urls) as one, loader(fleet.urls[1:], job="other") as other:
        assert noise(one) == noise(other)
        local = noise(with_noise(shards))
        one.set_epoch(0)
        assert noise(one) == local


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"job": "x" * 101}, "job="),
        ({"urls": "dns://cpu:7880"}, "keys"),
        ({"urls": []}, "producer"),
        ({"urls": ["tcp://[::1]:1", "tcp://[::1]:1"]}, "twice"),
        ({"rank": 0}, "world_size="),
        ({"rank": 2, "world_size": 2}, "rank 2"),
        ({"rank": 0, "world_size": 3, "feeds": 4}, "feeds="),
        ({"timeout": 0}, "timeout="),
        ({"urls": "tcp://cpu-0:1"}, "keys"),
        ({"urls": "zpush://[::1]:1"}, "sending"),
    ],
)
def test_wrong_arguments_are_told_at_once(wrong, word) -> None:
    with pytest.raises(ValueError, match=word):
        loader(**{"urls": "tcp://[::1]:1", **wrong})
