"""What becomes of samples that do not divide evenly: full batches drop them, others are padded, or `remainder` says."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

import webdataset as wds
from exact_support import batched, exact, flat, keys, most, total

pytestmark = pytest.mark.usefixtures("own_cache")


def ranks(folder, world, size=3, **options):
    """The full batches of each rank."""
    return [
        batched(exact(folder, rank=rank, world_size=world, **options), size, partial=False) for rank in range(world)
    ]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_full_batches_drop_what_is_left_over_on_any_number_of_ranks_and_workers(folder, world):
    steps = total() // (3 * world)
    for workers, kind in product((0, 2), ("thread", "process")):
        loaders = [
            wds.WebLoader(data, batch_size=None, num_workers=workers, workers=kind) for data in ranks(folder, world)
        ]
        found = [keys(loader) for loader in loaders]
        assert [len(loader) for loader in loaders] == [len(given) for given in found] == [steps] * world
        assert {len(batch) for given in found for batch in given} == {3}
        assert Counter(Counter(flat(flat(found))).values()) == {1: 3 * steps * world}


def test_full_batches_that_are_padded_repeat_samples_up_to_the_last_batch(folder):
    found = flat(keys(data) for data in ranks(folder, 2, remainder="pad"))
    assert [len(batch) for batch in found] == [3] * 8
    assert Counter(Counter(flat(found)).values()) == {1: 16, 2: 4}


def test_lists_and_the_loaders_own_batches_drop_as_batched_does(folder):
    assert [len(one) for one in exact(folder).listed(3, partial=False)] == [3] * 6
    for workers in ("thread", "process"):
        loader = wds.WebLoader(exact(folder).to_tuple("__key__"), batch_size=3, drop_last=True, workers=workers)
        assert [len(batch) for batch in keys(loader)] == [3] * 6
        assert len(loader) == 6


def test_smaller_batches_are_padded_unless_something_else_is_said(folder):
    found = flat(keys(batched(exact(folder, rank=rank, world_size=3), 3)) for rank in range(3))
    assert Counter(Counter(flat(found)).values()) == {1: 19, 2: 1}


def test_a_piece_of_an_epoch_of_full_batches_repeats_no_sample(folder):
    (data,) = ranks(folder, 1)
    pieces = data.with_epoch(4)
    epochs = [flat(keys(pieces)) for _ in range(3)]  # twelve batches: two epochs of six
    assert [len(given) for given in epochs] == [12, 12, 12]
    assert max(Counter(epochs[0] + epochs[1][:6]).values()) == 1
    assert max(Counter(epochs[1][6:] + epochs[2]).values()) == 1


def test_repeated_epochs_of_full_batches_each_drop_their_own_rest(folder):
    (data,) = ranks(folder, 1)
    found = keys(data.repeat(2))
    assert [len(batch) for batch in found] == [3] * 12
    assert max(Counter(flat(found[:6])).values()) == 1


@pytest.mark.parametrize("stop", [1, 5, 6])
def test_full_batches_resume_where_they_were(folder, stop):
    (data,), (again,) = ranks(folder, 1), ranks(folder, 1)
    whole = keys(data), keys(data)
    loader = wds.WebLoader(again, batch_size=None)
    batches = iter(loader)
    first = keys(next(batches) for _ in range(stop))
    state = loader.state_dict()
    resumed = wds.WebLoader(ranks(folder, 1)[0], batch_size=None)
    resumed.load_state_dict(state)
    assert first + keys(resumed) == whole[0]
    assert keys(resumed) == whole[1]


def test_full_batches_resume_on_another_number_of_ranks(folder):
    (data,) = ranks(folder, 1)
    batches = iter(data)
    first = flat(keys(next(batches) for _ in range(2)))
    state = data.state_dict()
    rest = []
    for one in ranks(folder, 2):
        one.load_state_dict(state)
        rest += keys(one)
    assert [len(batch) for batch in rest] == [3] * 4  # fourteen are left, two of them are too few
    assert max(Counter(first + flat(rest)).values()) == 1


def test_the_plan_says_what_full_batches_leave_out(folder):
    (data,) = ranks(folder, 1)
    assert (data.plan().dropped, data.plan().repeated) == (2, 0)
    plan = wds.plan(exact(folder).catalogue, batch=3, partial=False)
    assert (plan.dropped, plan.repeated) == (2, 0)
    padded = wds.plan(exact(folder).catalogue, batch=3, partial=False, remainder="pad")
    assert (padded.dropped, padded.repeated) == (0, 1)


def test_a_mixture_takes_the_remainder_that_one_of_its_datasets_has(folder):
    def mixed(*remainders):
        datasets = [exact(folder, remainder=remainder) for remainder in remainders]
        mix = wds.RandomMix(datasets, longest=True)
        return wds.DataPipeline(mix, wds.to_tuple("__key__"), wds.batched(3, partial=False))

    assert [len(mixed(*given)) for given in [(None, None), (None, "drop"), ("pad", None)]] == [13, 13, 14]
    with pytest.raises(ValueError, match="remainder"):
        len(mixed("pad", "drop"))


def test_full_batches_are_filled_where_samples_were_left_out(folder):
    chosen = exact(folder).select(most).to_tuple("__key__").batched(3, partial=False)
    found = keys(chosen)
    assert [len(batch) for batch in found] == [3] * 6 == [3] * len(chosen)
    kept = 18 - chosen.stats()["samples_repeated"]
    assert len(set(flat(found))) >= kept > 9
    with pytest.raises(wds.EmptyDatasetError, match="batch"):
        list(exact(folder).select(lambda sample: sample["__key__"].endswith("-001")).batched(4, partial=False))
