"""Exact epochs of another length: `with_epoch` and `repeat`, saved and taken up again."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from tests_support import tar_bytes

SIZES = (7, 11, 6)
EPOCH = 6
"""Batches of 4 in an epoch."""

WORKERS = [
    pytest.param({"num_workers": 0}, id="none"),
    pytest.param({"num_workers": 2}, id="processes"),
    pytest.param({"num_workers": 2, "persistent_workers": True}, id="persistent"),
    pytest.param({"num_workers": 2, "workers": "thread"}, id="threads"),
]


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for number, size in enumerate(SIZES):
        names = [f"{number}-{i:03d}" for i in range(size)]
        files = [(f"{name}.txt", b"x" * (number + int(name[2:]))) for name in names]
        (folder / f"{number:06d}.tar").write_bytes(tar_bytes(files))
    return [str(folder / f"{number:06d}.tar") for number in range(len(SIZES))]


def exact(shards: list[str], size: int = 4, **options: Any) -> Any:
    return wds.WebDataset(shards, exact=True, seed=1, lanes=8, **options).to_tuple("__key__").batched(size)


def keys(batches: Any) -> list[list[str]]:
    return [list(batch[0]) for batch in batches]


def flat(lists: Any) -> list[Any]:
    return list(chain.from_iterable(lists))


def stream(shards: list[str], epochs: int) -> list[list[str]]:
    dataset = exact(shards)
    return [batch for _ in range(epochs) for batch in keys(dataset)]


def saved(pipeline: Any) -> Any:
    return json.loads(json.dumps(pipeline.state_dict()))


# -- datasets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 4, EPOCH, 7, 2 * EPOCH, 15])
def test_with_epoch_cuts_the_sequence_of_epochs(shards, length):
    dataset = exact(shards).with_epoch(length)
    rounds = [keys(dataset) for _ in range(4)]
    assert [len(each) for each in rounds] == [length] * 4
    assert len(dataset) == length
    assert flat(rounds) == stream(shards, 10)[: 4 * length]


def test_repeat_gives_that_many_epochs_each_time(shards):
    dataset = exact(shards).repeat(2)
    assert len(dataset) == 2 * EPOCH
    assert [keys(dataset), keys(dataset)] == [stream(shards, 4)[: 2 * EPOCH], stream(shards, 4)[2 * EPOCH :]]


def test_repeat_without_a_number_goes_on_for_ever(shards):
    batches = iter(exact(shards).repeat())
    assert keys(next(batches) for _ in range(20)) == stream(shards, 4)[:20]


def test_repeat_with_a_number_of_batches_begins_with_an_epoch(shards):
    dataset = exact(shards).repeat(2, nbatches=8)
    epochs = stream(shards, 4)
    assert len(dataset) == 8
    assert [keys(dataset), keys(dataset)] == [epochs[:8], epochs[2 * EPOCH : 2 * EPOCH + 8]]


def of_four(dataset: Any) -> Any:
    return dataset.with_epoch(4)


def of_eight(dataset: Any) -> Any:
    return dataset.with_epoch(8)


def of_an_epoch(dataset: Any) -> Any:
    return dataset.with_epoch(EPOCH)


def twice(dataset: Any) -> Any:
    return dataset.repeat(2)


def cut_short(dataset: Any) -> Any:
    return dataset.repeat(2, nbatches=8)


def check_resumes_at_every_item(make: Any) -> None:
    """What comes before a save and after the load is what an uninterrupted run gives, round by round."""
    run = make()
    rounds, states = [], [(0, 0, saved(run))]
    for number in range(3):
        rounds.append([])
        for batch in run:
            rounds[-1].append(list(batch[0]))
            states.append((number, len(rounds[-1]), saved(run)))
        states.append((number + 1, 0, saved(run)))
    rounds.append(keys(run))
    for number, count, state in states:
        resumed = make()
        resumed.load_state_dict(state)
        assert saved(resumed)["round"] == state["round"]
        assert keys(resumed) == rounds[number][count:], (number, count)
        if number < 3:
            assert keys(resumed) == rounds[number + 1], (number, count)


@pytest.mark.parametrize("rounds", [of_four, of_eight, of_an_epoch, twice, cut_short])
def test_a_dataset_goes_on_at_every_batch(shards, rounds):
    check_resumes_at_every_item(lambda: rounds(exact(shards)))


def test_samples_without_batches_go_on_in_the_middle_of_a_step(shards):
    def make() -> Any:
        return wds.WebDataset(shards, exact=True, seed=1).to_tuple("__key__").with_epoch(30)

    run = make()
    samples = [key for _ in range(3) for (key,) in run]
    other = make()
    batches = iter(other)
    for _ in range(27):
        next(batches)
    resumed = make()
    resumed.load_state_dict(saved(other))
    assert [key for _ in range(2) for (key,) in resumed] == samples[27:60]


def test_bucketed_epochs_go_on_and_know_their_lengths(shards):
    def make() -> Any:
        bucketed = wds.WebDataset(shards, exact=True, seed=1).bucketed("txt", [4, 8], batchsize=3, among=8)
        return bucketed.map(lambda batch: (batch["__key__"],)).with_epoch(5)

    check_resumes_at_every_item(make)
    dataset = wds.WebDataset(shards, exact=True, seed=1).bucketed("txt", [4, 8], batchsize=3, among=8)
    for number in range(4):
        dataset.set_epoch(number)
        assert len(dataset) == len(list(dataset))


def test_set_epoch_counts_what_with_epoch_makes(shards):
    dataset = exact(shards).with_epoch(4)
    assert keys(dataset.set_epoch(3)) == stream(shards, 4)[12:16]
    assert keys(dataset.set_epoch(4)) == stream(shards, 4)[16:20]
    assert keys(dataset.set_epoch(0)) == stream(shards, 4)[:4]


def test_a_round_that_was_abandoned_is_followed_by_what_it_did_not_give(shards):
    dataset = exact(shards).with_epoch(4)
    batches = iter(dataset)
    next(batches)
    batches.close()
    assert keys(dataset) == stream(shards, 1)[1:5]


def test_a_dataset_of_which_nothing_is_left_ends(shards):
    dataset = wds.WebDataset(shards, exact=True).select(lambda _: False).with_epoch(4)
    assert list(dataset) == []


# -- loaders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", WORKERS)
def test_a_loader_goes_on_across_the_ends_of_epochs(shards, workers):
    def make() -> Any:
        return wds.WebLoader(exact(shards), batch_size=None, **workers).with_epoch(5)

    loader = make()
    assert len(loader) == 5
    batches = stream(shards, 5)
    found = []
    for _ in range(2):
        found += keys(loader)
    assert found == batches[:10]
    running = iter(loader)
    found += keys(next(running) for _ in range(3))
    resumed = make()
    resumed.load_state_dict(saved(loader))
    running.close()
    found += keys(resumed)
    assert found == batches[:15]
    assert keys(resumed) == batches[15:20]


@pytest.mark.parametrize("workers", WORKERS)
def test_with_epoch_of_the_dataset_is_that_of_its_loader(shards, workers):
    loader = wds.WebLoader(exact(shards).with_epoch(4), batch_size=None, **workers)
    assert len(loader) == 4
    assert [keys(loader), keys(loader)] == [stream(shards, 2)[:4], stream(shards, 2)[4:8]]
    assert keys(loader.set_epoch(1)) == stream(shards, 2)[4:8]


def test_a_loader_that_makes_the_batches_counts_the_datasets_samples(shards):
    dataset = wds.WebDataset(shards, exact=True, seed=1, lanes=8).to_tuple("__key__").with_epoch(16)
    loader = wds.WebLoader(dataset, batch_size=4, workers="thread")
    assert len(loader) == 4
    assert keys(loader) == stream(shards, 1)[:4]


def test_stages_after_a_loader_that_hold_samples_begin_with_an_epoch(shards):
    loader = wds.WebLoader(exact(shards), batch_size=None).unbatched().batched(2).with_epoch(4)
    rounds = [keys(loader), keys(loader)]
    epochs = stream(shards, 2)
    assert [flat(each) for each in rounds] == [flat(epochs[:2]), flat(epochs[EPOCH : EPOCH + 2])]
    with pytest.raises(wds.StateError, match="hold"):
        loader.state_dict()


# -- other numbers of ranks --------------------------------------------------------------------------


def run(shards: list[str], state: Any, world: int, size: int, steps: int = 1, **options: Any) -> tuple[list[Any], Any]:
    """Some steps of all ranks, as global batches, and the merged state after them."""
    ranks, states = [], []
    for rank in range(world):
        dataset = exact(shards, size, rank=rank, world_size=world, **options).with_epoch(100)
        if state is not None:
            dataset.load_state_dict(state)
        batches = iter(dataset)
        ranks.append(keys(batch for _, batch in zip(range(steps), batches, strict=False)))
        states.append(dataset.state_dict())
        batches.close()
    together = [sorted(flat(step)) for step in zip(*ranks, strict=True)]
    return together, json.loads(json.dumps(wds.merge_states(states)))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds=st.lists(st.sampled_from([1, 2, 4]), min_size=2, max_size=5), steps=st.integers(1, 5))
def test_the_same_global_batches_come_from_any_number_of_ranks(shards, worlds, steps):
    expected, _ = run(shards, None, 1, 4, len(worlds) * steps)
    found, state = [], None
    for world in worlds:
        batches, state = run(shards, state, world, 4 // world, steps)
        found += batches
    assert found == expected
    assert state["round"]["given"] == len(worlds) * steps


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), remainder=st.sampled_from(["pad", "drop"]))
def test_no_sample_comes_twice_before_all_came_once(shards, data, remainder):
    seen: Counter[str] = Counter()
    state = None
    for _ in range(data.draw(st.integers(1, 4))):
        world, size, steps = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 4)))
        batches, state = run(shards, state, world, size, steps, remainder=remainder)
        seen.update(flat(batches))
    if remainder == "drop":
        assert max(seen.values()) <= state["epoch"] + 1
    elif state["epoch"]:
        assert len(seen) == sum(SIZES)
        assert min(seen.values()) >= state["epoch"]


def test_items_of_another_size_are_counted_by_their_samples(shards):
    _, state = run(shards, None, 2, 2, steps=4)
    _, other = run(shards, state, 1, 8, steps=0)
    assert (state["round"]["given"], other["round"]["given"]) == (4, 2)


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (lambda dataset: dataset, ""),
        (lambda dataset: dataset.with_epoch(5), r"with_epoch\(5\)"),
        (lambda dataset: dataset.repeat(3), r"repeat\(3\)"),
    ],
)
def test_a_state_of_epochs_of_another_length_is_refused(shards, make, other):
    state = exact(shards).with_epoch(4).state_dict()
    with pytest.raises(wds.StateError, match=rf"with_epoch\(4\).*{other}"):
        make(exact(shards)).load_state_dict(state)


def test_stages_after_with_epoch_of_a_dataset_within_are_refused(shards):
    inner = wds.WebDataset(shards, exact=True).with_epoch(4)
    with pytest.raises(ValueError, match="stage"):
        list(wds.DataPipeline(inner, wds.batched(2)))


def test_a_mixture_of_cut_datasets_is_refused_with_the_cure(shards):
    parts = [wds.WebDataset(shards, exact=True).with_epoch(4), wds.WebDataset(shards, exact=True)]
    with pytest.raises(ValueError, match="samples="):
        list(wds.DataPipeline(wds.RandomMix(parts)))
