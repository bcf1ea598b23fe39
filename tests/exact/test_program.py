"""Exact epochs on real shards: every sample once, on any number of ranks and workers, resumable anywhere."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import tarfile
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from tests_support import tar_bytes

SIZES = {"uneven": (7, 11, 2), "equal": (6, 6, 6), "one": (23,)}


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for name, sizes in SIZES.items():
        for number, size in enumerate(sizes):
            files = []
            for i in range(size):
                key = f"{name}{number}-{i:03d}"
                files += [(f"{key}.cls", str(i).encode()), (f"{key}.txt", b"x" * (37 * i % 60))]
            (folder / f"{name}-{number:06d}.tar").write_bytes(tar_bytes(files))
    return folder


def urls(folder, name="uneven"):
    return [str(folder / f"{name}-{number:06d}.tar") for number in range(len(SIZES[name]))]


def total(name="uneven"):
    return sum(SIZES[name])


def exact(folder, name="uneven", **options):
    return wds.WebDataset(urls(folder, name), exact=True, **{"seed": 1, "lanes": 8, **options})


def keys(batches):
    return [list(batch[0]) for batch in batches]


def flat(batches):
    return [key for batch in batches for key in batch]


def batched(dataset, size, **options):
    return dataset.to_tuple("__key__").batched(size, **options)


# -- every sample once -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
def test_every_rank_gives_as_many_batches_and_every_sample_comes_once(folder, monkeypatch, name, world):
    for workers, size, remainder in product((0, 2, 3), (1, 2, 4, 7), ("pad", "drop", "uneven")):
        seen, counts, repeated, dropped = Counter(), set(), 0, 0
        for rank in range(world):
            dataset = batched(exact(folder, name, rank=rank, world_size=world, remainder=remainder), size)
            plan = dataset.plan()
            repeated, dropped = plan.repeated, plan.dropped
            batches = 0
            for worker in range(max(1, workers)):
                if workers:
                    monkeypatch.setenv("WORKER", str(worker))
                    monkeypatch.setenv("NUM_WORKERS", str(workers))
                for batch in keys(dataset.set_epoch(0)):
                    seen.update(batch)
                    batches += 1
            monkeypatch.delenv("WORKER", raising=False)
            monkeypatch.delenv("NUM_WORKERS", raising=False)
            counts.add(batches)
            assert batches == len(dataset)
        assert len(counts) == 1
        assert sum(seen.values()) == total(name) + repeated - dropped
        assert len(seen) == total(name) - dropped
        if remainder == "pad":
            assert repeated <= world - 1


@pytest.mark.parametrize(
    ("workers", "kind"), [(0, "process"), (2, "process"), (0, "thread"), (1, "thread"), (4, "thread")]
)
def test_loaders_give_the_order_of_one_process(folder, workers, kind):
    dataset = batched(exact(folder), 3)
    serial = [keys(dataset) for _ in range(2)]
    loader = wds.WebLoader(batched(exact(folder), 3), batch_size=None, num_workers=workers, workers=kind)
    assert len(loader) == 7
    assert [keys(loader) for _ in range(2)] == serial
    assert serial[0] != serial[1]
    assert sorted(flat(serial[0])) == sorted(flat(serial[1]))


def test_persistent_workers_go_on_to_the_next_epoch(folder):
    dataset = batched(exact(folder), 3)
    serial = [keys(dataset) for _ in range(3)]
    options = {"batch_size": None, "num_workers": 2, "persistent_workers": True}
    loader = wds.WebLoader(batched(exact(folder), 3), **options)
    assert [keys(loader) for _ in range(3)] == serial


def test_spawned_workers_give_the_same(folder):
    dataset = batched(exact(folder), 3)
    options = {"batch_size": None, "num_workers": 2, "multiprocessing_context": "spawn"}
    assert keys(wds.WebLoader(batched(exact(folder), 3), **options)) == keys(dataset)


def test_the_loaders_own_batches_are_the_plans(folder):
    loader = wds.WebLoader(exact(folder).to_tuple("__key__"), batch_size=3, num_workers=2)
    assert keys(loader) == keys(batched(exact(folder), 3))
    whole = wds.WebLoader(exact(folder, remainder="drop").to_tuple("__key__"), batch_size=3, drop_last=True)
    assert [len(batch) for batch in keys(whole)] == [3] * 6 == [3] * len(whole)


def test_a_plain_dataloader_gives_every_sample_once(folder):
    from torch.utils.data import DataLoader

    for workers, size in product((0, 1, 2), (None, 4)):
        loader = DataLoader(exact(folder).to_tuple("__key__"), batch_size=size, num_workers=workers)
        found = [key for (item,) in loader for key in ([item] if size is None else item)]
        assert Counter(Counter(found).values()) == {1: 20}


def test_one_shard_keeps_all_workers_busy_and_is_read_once(folder, monkeypatch):
    read, shares = 0, []
    for rank, worker in product(range(8), range(2)):
        monkeypatch.setenv("WORKER", str(worker))
        monkeypatch.setenv("NUM_WORKERS", "2")
        dataset = exact(folder, "one", rank=rank, world_size=8, lanes=64)
        shares.append(len(list(dataset)))
        read += dataset.stats()["bytes_read"]
    assert min(shares) >= 1
    assert sum(shares) == 24
    # every sample is less than the gap that is read over, in a shard as small as this
    assert read <= 1.1 * 16 * os.path.getsize(urls(folder, "one")[0])


def test_many_ranks_read_no_more_than_the_shard(tmp_path, monkeypatch):
    path = tmp_path / "big.tar"
    path.write_bytes(tar_bytes([(f"{i:04d}.bin", bytes(60_000)) for i in range(256)]))
    read = 0
    for rank, worker in product(range(8), range(4)):
        monkeypatch.setenv("WORKER", str(worker))
        monkeypatch.setenv("NUM_WORKERS", "4")
        dataset = wds.WebDataset(str(path), exact=True, rank=rank, world_size=8)
        assert len(list(dataset)) == 8
        read += dataset.stats()["bytes_read"]
    assert read <= 1.1 * path.stat().st_size


def test_the_global_batches_are_the_same_on_1_2_3_and_4_ranks(folder):
    def batches(world):
        ranks = [keys(batched(exact(folder, rank=rank, world_size=world), 12 // world)) for rank in range(world)]
        return [sorted(flat(step)) for step in zip(*ranks, strict=True)]

    assert batches(1)[0] == batches(2)[0] == batches(3)[0] == batches(4)[0]
    assert len(batches(1)) == len(batches(4)) == 2


def test_rank_and_world_size_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        found += [sample["__key__"] for sample in exact(folder)]
    assert Counter(Counter(found).values()) == {1: 20}


def test_an_unshuffled_epoch_has_the_order_of_the_shards(folder):
    plain = [sample["__key__"] for sample in wds.WebDataset(urls(folder))]
    assert [sample["__key__"] for sample in exact(folder, shuffle_bytes=0)] == plain


def test_samples_are_those_of_streaming(folder):
    def comparable(sample):
        return sorted((name, value) for name, value in sample.items())

    streamed = sorted(map(comparable, wds.WebDataset(urls(folder))))
    assert sorted(map(comparable, exact(folder))) == streamed


def test_uneven_epochs_mark_what_is_real(folder):
    found = [
        (sample["__key__"], sample["__real__"])
        for rank in range(3)
        for sample in exact(folder, rank=rank, world_size=3, remainder="uneven")
    ]
    assert len(found) == 21
    assert Counter(Counter(key for key, real in found if real).values()) == {1: 20}


def test_repeats_are_counted(folder):
    dataset = batched(exact(folder, rank=2, world_size=3), 4)
    list(dataset)
    plan = dataset.plan()
    assert plan.repeated == 1
    counted = 0
    for rank in range(3):
        one = batched(exact(folder, rank=rank, world_size=3), 4)
        list(one)
        counted += one.stats().get("samples_repeated", 0)
    assert counted == 1


# -- filters, batches, mixtures --------------------------------------------------------------------


def few(sample):
    return int(sample["cls"]) % 3 == 0


def most(sample):
    return int(sample["cls"]) % 5 != 0


def test_a_selection_comes_once_and_every_rank_has_as_many_batches(folder):
    lengths, found = set(), []
    for rank in range(2):
        dataset = batched(exact(folder, rank=rank, world_size=2).select(few), 3)
        batches = keys(dataset)
        lengths.add(len(batches))
        found += flat(batches)
        assert len(batches) == len(dataset)
    assert len(lengths) == 1
    wanted = {sample["__key__"] for sample in wds.WebDataset(urls(folder)) if few(sample)}
    assert set(found) == wanted


def test_random_samples_are_the_same_for_every_topology_and_others_in_the_next_epoch(folder):
    def found(epoch=0, **options):
        return {sample["__key__"] for sample in exact(folder, "one", **options).rsample(0.5, seed=3).set_epoch(epoch)}

    alone = found()
    assert 4 < len(alone) < 19
    assert found(rank=0, world_size=2) | found(rank=1, world_size=2) == alone
    assert found(epoch=1) != alone


def test_a_selection_that_leaves_nothing_is_an_error(folder):
    with pytest.raises(wds.EmptyDatasetError, match="leaves no sample"):
        list(batched(exact(folder).select(lambda sample: False), 3))


def test_unbatched_and_batched_again(folder):
    dataset = batched(exact(folder), 4).unbatched()
    assert len(dataset) == 20
    assert len(list(dataset)) == 20
    again = dataset.batched(6)
    assert len(again) == len(list(again)) == 4


def test_a_mixture_of_exact_datasets_is_exact(folder):
    def mixture(rank=0, world=1):
        datasets = [exact(folder, name, rank=rank, world_size=world) for name in ("uneven", "equal")]
        return wds.DataPipeline(
            wds.RandomMix(datasets, [0.7, 0.3], longest=True, seed=5), wds.to_tuple("__key__"), wds.batched(4)
        )

    alone = keys(mixture())
    assert len(alone) == len(mixture()) == 10
    assert Counter(Counter(flat(alone)).values()) == {1: 38}
    both = [keys(mixture(rank, 2)) for rank in range(2)]
    assert Counter(Counter(flat(both[0] + both[1])).values()) == {1: 38}
    loader = wds.WebLoader(mixture(), batch_size=None, num_workers=2)
    assert keys(loader) == alone


def test_the_stages_of_mixed_datasets_keep_to_the_plan(folder):
    def mixture():
        datasets = [exact(folder, name).shuffle(100).rsample(0.8, seed=2) for name in ("uneven", "equal")]
        return [sample["__key__"] for sample in wds.RandomMix(datasets, longest=True, seed=1)]

    assert mixture() == mixture()
    with pytest.raises(ValueError, match="after the mixture"):
        list(wds.RandomMix([exact(folder).batched(3), exact(folder).batched(3)]))


def test_a_mixture_by_turns(folder):
    datasets = [exact(folder, name) for name in ("uneven", "equal")]
    found = [sample["__key__"][:2] for sample in wds.RoundRobin(datasets)]
    assert Counter(found) == {"un": 18, "eq": 18}


def test_a_mixture_of_a_fixed_size(folder):
    mix = wds.RandomMix([exact(folder, "uneven"), exact(folder, "equal")], [3, 1], samples=80)
    dataset = wds.DataPipeline(mix)
    assert len(dataset) == 80
    assert Counter(sample["__key__"][:2] for sample in dataset) == {"un": 60, "eq": 20}


def test_exact_and_streamed_datasets_do_not_mix(folder):
    with pytest.raises(ValueError, match="or none"):
        list(wds.RandomMix([exact(folder), wds.WebDataset(urls(folder))]))


def test_what_needs_the_whole_stream_is_refused(folder):
    with pytest.raises(ValueError, match="needs the whole stream"):
        list(exact(folder).slice(3))
    with pytest.raises(ValueError, match="shuffle_bytes"):
        list(exact(folder, shuffle_bytes=0).shuffle(10))
    assert len(list(exact(folder).shuffle(10))) == 20


def test_length_is_known_with_an_index_only(folder):
    assert len(exact(folder)) == 20
    assert len(exact(folder).batched(3)) == 7
    assert len(exact(folder, remainder="drop").batched(3, partial=False)) == 6
    with pytest.raises(TypeError):
        len(wds.WebDataset(urls(folder)))


# -- samples by number -----------------------------------------------------------------------------


def test_samples_by_number_key_and_slice(folder):
    dataset = exact(folder)
    assert dataset[8]["__key__"] == "uneven1-001"
    assert dataset[-1]["__key__"] == "uneven2-001"
    assert dataset["uneven1-010"]["cls"] == b"10"
    assert [sample["__key__"] for sample in dataset[5:9]] == [
        "uneven0-005",
        "uneven0-006",
        "uneven1-000",
        "uneven1-001",
    ]
    with pytest.raises(IndexError):
        dataset[20]
    with pytest.raises(KeyError):
        dataset["nowhere"]
    with pytest.raises(TypeError, match="float"):
        dataset[1.5]


def pair(sample):
    return sample["__key__"], sample["cls"]


def keyed(sample):
    return {**sample, "draw": random.random()}


@pytest.mark.parametrize(
    "stages",
    [
        [wds.decode(), wds.to_tuple("__key__", "cls")],
        [wds.decode(), wds.map(pair)],
        [wds.shuffle(100), wds.rename(cls="cls"), wds.map_dict(cls=int), wds.map(pair)],
        [wds.map(wds.repeatable(keyed)), wds.to_tuple("__key__", "draw")],
        [wds.seeded(3), wds.to_tuple("__key__", "__seed__")],
        [wds.extract_keys("*.cls", "*.txt")],
    ],
)
def test_items_by_number_are_those_of_the_first_epoch(folder, stages):
    dataset = exact(folder).compose(*stages)
    by_number = [dataset[i] for i in range(len(dataset.samples))]
    assert by_number == dataset[:]
    assert sorted(by_number) == sorted(dataset)
    assert by_number == [dataset[i] for i in range(len(dataset.samples))]


def test_items_are_numbered_as_they_are_stored(folder):
    stored = exact(folder, shuffle_bytes=0).to_tuple("__key__")
    shuffled = exact(folder, rank=1, world_size=2).to_tuple("__key__").shuffle(10).with_epoch(3)
    assert shuffled[:] == stored[:] == list(stored)


def test_items_by_number_key_and_slice_have_the_stages_applied(folder):
    import numpy as np

    dataset = exact(folder).decode().map(pair)
    assert dataset["uneven1-003"] == ("uneven1-003", 3)
    assert dataset[np.int64(8)] == dataset[8 - 20] == ("uneven1-001", 1)
    assert dataset[8:5:-2] == [("uneven1-001", 1), ("uneven0-006", 6)]
    assert dataset[30:] == []


OTHERS = {
    "batched": lambda dataset: dataset.batched(3),
    "listed": lambda dataset: dataset.listed(3),
    "unbatched": lambda dataset: dataset.batched(3).unbatched(),
    "bucketed": lambda dataset: dataset.bucketed("txt", [10, 20], batchsize=3),
    "select": lambda dataset: dataset.select(len),
    "rsample": lambda dataset: dataset.rsample(0.5),
    "slice": lambda dataset: dataset.slice(10),
    "sorted": lambda dataset: dataset.compose(sorted),
}


@pytest.mark.parametrize("name", OTHERS)
def test_items_that_are_not_of_one_sample_have_no_number_but_the_samples_have(folder, name):
    dataset = OTHERS[name](exact(folder))
    for which in (3, "uneven1-003", slice(2)):
        with pytest.raises(TypeError, match=rf"{'batched' if name == 'unbatched' else name}.*dataset\.samples"):
            dataset[which]
    assert len(dataset.samples) == 20
    assert dataset.samples[3]["__key__"] == "uneven0-003"
    assert dataset.samples["uneven1-003"]["cls"] == b"3"
    assert dataset.samples[2:5] == exact(folder)[2:5]


@pytest.mark.parametrize(
    "stage", [wds.map(lambda sample: None), wds.map(pair, handler=wds.ignore_and_continue)], ids=["None", "handler"]
)
def test_a_sample_that_the_stages_drop_is_an_error_by_number(folder, stage):
    dataset = exact(folder).rename(y="cls").compose(stage)
    with pytest.raises(wds.SampleError, match=r"leave nothing .* key uneven0-004.*dataset\.samples"):
        dataset[4]


def test_the_samples_are_a_sequence(folder):
    samples = exact(folder).batched(4).samples
    assert [sample["__key__"] for sample in samples] == [sample["__key__"] for sample in samples[:]]
    assert "uneven2-001" in samples
    assert "nowhere" not in samples
    assert samples[4] in samples
    assert samples.index(samples[4]) == 4
    assert repr(samples) == "<20 samples in 3 shards>"
    copy = pickle.loads(pickle.dumps(samples))
    assert copy[-1] == samples[-1] == samples[19]
    with pytest.raises(IndexError):
        samples[20]


def test_the_samples_are_what_reading_gives_with_files_selected_and_renamed(folder):
    chosen = {
        "select_files": lambda name: name.endswith("label"),
        "rename_files": lambda name: name.replace("cls", "label"),
    }
    dataset = exact(folder, shuffle_bytes=0, **chosen)
    assert dataset.samples[:] == dataset[:] == list(dataset)
    assert list(dataset[0]) == ["__key__", "__url__", "__local_path__", "label"]
    nothing = exact(folder, select_files=lambda name: not name.startswith("uneven0-004"))
    with pytest.raises(wds.SampleError, match=r"select_files leaves nothing .* key uneven0-004"):
        nothing.samples[4]


def test_a_mixture_has_the_samples_of_all_its_datasets(folder):
    mix = wds.RandomMix([exact(folder, "equal").map(pair), exact(folder, "one").decode().map(pair)], longest=True)
    dataset = wds.DataPipeline(mix, wds.map(list))
    assert len(dataset.samples) == 18 + 23
    assert dataset[17] == ["equal2-005", b"5"]
    assert dataset[18] == ["one0-000", 0]
    assert dataset["one0-022"] == dataset[-1] == ["one0-022", 22]
    assert sorted(map(str, dataset)) == sorted(map(str, dataset[:]))
    assert len(wds.DataPipeline(exact(folder), wds.batched(4)).samples) == 20


def test_samples_that_count_by_their_marks_have_them_by_number(folder):
    dataset = exact(folder, remainder="uneven").to_tuple("__key__", "__real__")
    assert dataset[3] == ("uneven0-003", True)


def test_a_streamed_dataset_has_neither_samples_nor_items_by_number(folder):
    streamed = wds.WebDataset(urls(folder), shardshuffle=False)
    for dataset in (streamed, streamed.batched(3), wds.DataPipeline([1, 2])):
        assert not hasattr(dataset, "samples")
        with pytest.raises(AttributeError, match="exact=True"):
            dataset.samples  # noqa: B018 - it is the access that fails
        with pytest.raises(TypeError, match="exact=True"):
            dataset[0]


def test_subclasses_may_have_an_attribute_of_that_name(folder):
    class Mine(wds.WebDataset):
        def __init__(self, *args, **kw):
            super().__init__(*args, **kw)
            self.samples = 20

    assert Mine(urls(folder), shardshuffle=False).samples == Mine(urls(folder), exact=True).samples == 20
    assert Mine(urls(folder), exact=True)[3]["__key__"] == "uneven0-003"


def test_torch_iterates_over_a_dataset_and_indexes_its_samples(folder):
    import torch

    dataset = exact(folder).to_tuple("__key__")
    loaded = torch.utils.data.DataLoader(dataset, batch_size=None)
    assert [key for (key,) in loaded] == [key for (key,) in exact(folder).to_tuple("__key__")]
    by_number = torch.utils.data.DataLoader(dataset.samples, batch_size=6, shuffle=True, collate_fn=list)
    assert sorted(sample["__key__"] for batch in by_number for sample in batch) == sorted(key for (key,) in dataset)


# -- states ----------------------------------------------------------------------------------------

PIPELINES = {
    "batches": lambda dataset: batched(dataset, 3),
    "samples": lambda dataset: dataset.to_tuple("__key__").map(lambda sample: [sample]),
    "selected": lambda dataset: batched(dataset.select(few), 3),
    "unbatched": lambda dataset: batched(dataset, 4).unbatched().map(lambda sample: [sample]),
    "rebatched": lambda dataset: batched(dataset, 2).unbatched().batched(3),
}


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_resuming_at_every_item_gives_the_uninterrupted_run(folder, pipeline):
    def make():
        return PIPELINES[pipeline](exact(folder))

    whole = keys(make()) + keys(make().set_epoch(1))
    for stop in range(len(whole)):
        dataset = make()
        seen = []
        while len(seen) <= stop:
            run = iter(dataset)
            for batch in run:
                seen.append(list(batch[0]))
                if len(seen) > stop:
                    break
        state = json.loads(json.dumps(dataset.state_dict()))
        again = make()
        again.load_state_dict(state)
        assert again.state_dict() == {**state, "base": again.state_dict()["base"]}
        rest = keys(again) + ([] if len(seen) > len(whole) // 2 else keys(again))
        assert (seen + rest)[: len(whole)] == whole


@pytest.mark.parametrize(("workers", "kind"), [(0, "process"), (2, "process"), (3, "thread")])
def test_loaders_resume_at_every_batch_with_batches_in_flight(folder, workers, kind):
    def make(workers=workers):
        dataset = batched(exact(folder).select(few), 3)
        return wds.WebLoader(dataset, batch_size=None, num_workers=workers, workers=kind)

    whole = keys(make())
    for stop in range(0, len(whole) + 1, 2):
        loader = make()
        run = iter(loader)
        seen = [list(next(run)[0]) for _ in range(stop)]
        state, again = loader.state_dict(), loader.state_dict()
        assert state == again
        run.close()
        other = make(1)
        other.load_state_dict(json.loads(json.dumps(state)))
        assert seen + keys(other) == whole


def test_a_state_is_small_whatever_the_buffer(folder):
    loader = wds.WebLoader(batched(exact(folder, shuffle_bytes="1GiB"), 3), batch_size=None, num_workers=2)
    next(iter(loader))
    assert len(json.dumps(loader.state_dict())) < 2000


def everything(dataset):
    return dataset.map(dict)


def selected(dataset):
    return dataset.select(most)


@pytest.mark.parametrize("chosen", [everything, selected])
def test_the_topology_may_change_at_every_save(folder, chosen):
    def run(state, world, workers, size, steps):
        ranks, states = [], []
        for rank in range(world):
            dataset = batched(chosen(exact(folder, rank=rank, world_size=world)), size)
            loader = wds.WebLoader(dataset, batch_size=None, num_workers=workers, workers="thread")
            if state is not None:
                loader.load_state_dict(state)
            ranks.append([list(batch[0]) for _, batch in zip(range(steps), loader, strict=False)])
            states.append(loader.state_dict())
        return [sorted(flat(step)) for step in zip(*ranks, strict=True)], wds.merge_states(states)

    whole = [sorted(batch) for batch in keys(batched(chosen(exact(folder)), 6))]
    found, state = [], None
    for world, workers, steps in ((2, 3, 1), (3, 1, 1), (1, 8, 1), (2, 2, 9)):
        batches, state = run(state, world, workers, 6 // world, steps)
        found += batches
    if chosen is everything:
        assert [sorted(set(batch)) for batch in found] == whole
    # a rank of whose batch nothing is left gives a sample again
    assert sorted(set(flat(found))) == sorted(flat(whole))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_chain_of_saves_and_topologies_loses_and_repeats_nothing(folder, data):
    seen, state = Counter(), None
    repeated = 0
    for _ in range(data.draw(st.integers(1, 4))):
        world, size, steps = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 7), st.integers(0, 4)))
        states = []
        for rank in range(world):
            dataset = batched(exact(folder, rank=rank, world_size=world), size)
            if state is not None:
                dataset.load_state_dict(state)
            run = iter(dataset)
            for _, batch in zip(range(steps), run, strict=False):
                seen.update(batch[0])
            run.close()
            repeated += dataset.stats().get("samples_repeated", 0)
            states.append(dataset.state_dict())
        state = json.loads(json.dumps(wds.merge_states(states)))
        if state["position"] == total() or state["epoch"] > 0:
            break
    assert sum(seen.values()) - repeated == (total() if state["epoch"] > 0 else state["position"])
    assert len(seen) == sum(seen.values()) - repeated


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"seed": 2}, "seed was 1 and is 2"),
        ({"name": "equal"}, "data was"),
        ({"lanes": 4}, "lanes was 8 and is 4"),
        ({"shuffle_bytes": "1MiB"}, "shuffle_bytes was 268435456 and is 1048576"),
    ],
)
def test_a_state_of_something_else_is_refused_with_the_difference(folder, change, difference):
    state = batched(exact(folder), 3).state_dict()
    with pytest.raises(wds.StateError, match=difference):
        batched(exact(folder, **change), 3).load_state_dict(state)


def test_a_state_of_another_pipeline_is_refused(folder):
    state = batched(exact(folder), 3).state_dict()
    with pytest.raises(wds.StateError, match="stages"):
        batched(exact(folder).select(few), 3).load_state_dict(state)
    with pytest.raises(wds.StateError, match="no state"):
        batched(exact(folder), 3).load_state_dict({"model": 1})
    with pytest.raises(wds.StateError, match="version"):
        batched(exact(folder), 3).load_state_dict({**state, "version": 99})


@pytest.mark.parametrize(
    "damage",
    [{"step": 10**6}, {"position": 1}, {"step": -1}, {"start": "x"}, {"topology": {}}, {"round": {"number": 1}}],
)
def test_a_damaged_state_is_refused(folder, damage):
    state = batched(exact(folder), 3).state_dict()
    with pytest.raises(wds.StateError, match="damaged"):
        batched(exact(folder), 3).load_state_dict({**state, **damage})


def test_a_state_that_lacks_something_is_refused(folder):
    state = batched(exact(folder), 3).state_dict()
    for name in ("epoch", "position", "skip", "topology", "of", "kind", "version"):
        rest = {key: value for key, value in state.items() if key != name}
        with pytest.raises(wds.StateError):
            batched(exact(folder, rank=0, world_size=2), 3).load_state_dict(rest)


def test_states_of_streams_are_not_merged(folder):
    states = []
    for rank in range(2):
        state = wds.WebDataset(urls(folder)).state_dict()
        states.append({**state, "topology": {**state["topology"], "rank": rank, "world": 2}})
    with pytest.raises(wds.StateError, match="every rank goes on with its own"):
        wds.merge_states(states)
    with pytest.raises(wds.StateError, match="no states of datasets"):
        wds.merge_states([{"model": 1}])


def test_stages_after_a_loader_that_hold_samples_have_no_state(folder):
    loader = wds.WebLoader(batched(exact(folder), 3), batch_size=None)
    assert loader.map(list).state_dict()["position"] == 0
    with pytest.raises(wds.StateError, match="may hold samples"):
        loader.unbatched().shuffle(10).state_dict()


def test_states_of_different_batches_do_not_merge(folder):
    states = []
    for rank in range(2):
        dataset = batched(exact(folder, rank=rank, world_size=2), 3)
        run = iter(dataset)
        for _ in range(rank + 1):
            next(run)
        states.append(dataset.state_dict())
    with pytest.raises(wds.StateError, match="position"):
        wds.merge_states(states)
    with pytest.raises(wds.StateError, match="not those of all 2 ranks"):
        wds.merge_states(states[:1])


def test_restoring_reads_no_more_than_a_window(tmp_path):
    paths = []
    for shard in range(8):
        paths.append(str(tmp_path / f"{shard}.tar"))
        with open(paths[-1], "wb") as file:
            file.write(tar_bytes([(f"{shard}-{i:05d}.bin", bytes(1000)) for i in range(2000)]))
    options = {"exact": True, "shuffle_bytes": "1MiB", "block_bytes": "64KiB", "lanes": 8}

    def make():
        return wds.WebDataset(paths, **options).to_tuple("__key__").batched(100)

    whole = keys(make())
    dataset = make()
    run = iter(dataset)
    for _ in range(144):
        next(run)
    again = make()
    again.load_state_dict(dataset.state_dict())
    rest = iter(again)
    assert list(next(rest)[0]) == whole[144]
    assert again.stats()["bytes_read"] < 3 << 20
    assert [whole[144], *keys(rest)] == whole[144:]


# -- faults ----------------------------------------------------------------------------------------


def test_a_shard_that_changed_since_it_was_indexed_is_an_error(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([(f"{i}.cls", b"1") for i in range(10)]))
    dataset = wds.WebDataset(str(path), exact=True)
    assert len(list(dataset)) == 10
    path.write_bytes(tar_bytes([(f"{i}.cls", b"2") for i in range(9)]))
    with pytest.raises(wds.ShardError, match="changed since"):
        list(dataset)


def test_a_handler_may_leave_out_what_cannot_be_read(tmp_path):
    paths = []
    for name in "ab":
        paths.append(tmp_path / f"{name}.tar")
        paths[-1].write_bytes(tar_bytes([(f"{name}{i}.cls", b"1") for i in range(10)]))
    dataset = wds.WebDataset([str(path) for path in paths], exact=True, handler=wds.ignore_and_continue)
    os.truncate(paths[1], 2048)
    assert sorted(sample["__key__"][0] for sample in dataset) == ["a"] * 10
    assert dataset.stats()["samples_dropped"] == 10


def test_compressed_shards_and_commands_are_refused_with_the_cure(tmp_path):
    import gzip

    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(tar_bytes([("a.cls", b"1")])))
    with pytest.raises(wds.ShardError, match="compressed"):
        wds.WebDataset(str(path), exact=True)
    with pytest.raises(wds.ShardError, match="cache_dir"):
        wds.WebDataset(f"pipe:cat {path}", exact=True)


def test_the_output_of_a_command_is_read_from_its_copy(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([(f"{i}.cls", b"1") for i in range(10)]))
    dataset = wds.WebDataset(f"pipe:cat {path}", exact=True, cache_dir=str(tmp_path / "cache"))
    assert len(list(dataset)) == 10
    assert dataset[3]["__key__"] == "3"


def test_options_that_do_not_go_together(folder):
    with pytest.raises(ValueError, match="resampled"):
        wds.WebDataset(urls(folder), exact=True, resampled=True)
    with pytest.raises(ValueError, match="pad, drop, uneven"):
        exact(folder, remainder="wrap")
    with pytest.raises(ValueError, match="rank= and world_size="):
        exact(folder, rank=1)
    with pytest.raises(ValueError, match="partial=False"):
        list(batched(exact(folder, remainder="uneven"), 3, partial=False))
    with pytest.raises(ValueError, match="a size such as"):
        exact(folder, shuffle_bytes="lots")


def test_shards_are_named_in_all_the_usual_ways(folder, tmp_path):
    for path in urls(folder):
        (tmp_path / os.path.basename(path)).symlink_to(path)
    ways = [str(tmp_path) + "/", tmp_path, f"{folder}/uneven-{{000000..000002}}.tar", f"{folder}/uneven-*.tar"]
    ways += [Path(urls(folder)[0]), wds.SimpleShardList(urls(folder)), wds.index(urls(folder))]
    assert [len(wds.WebDataset(way, exact=True)) for way in ways] == [20, 20, 20, 20, 7, 20, 20]
    with pytest.raises(TypeError, match="need a list of shards"):
        wds.WebDataset(wds.ResampledShards(urls(folder)), exact=True)
    with pytest.raises(wds.MissingShardError):
        wds.WebDataset(str(tmp_path / "nowhere.tar"), exact=True)


def test_too_few_samples_for_all_ranks_is_said(folder):
    dataset = exact(folder, rank=0, world_size=21, remainder="drop")
    with pytest.raises(wds.EmptyDatasetError, match="20 samples are too few for one on each of 21 ranks"):
        list(dataset)
    with pytest.raises(wds.EmptyDatasetError, match="no shards were given"):
        wds.WebDataset([], exact=True)


def test_too_few_samples_for_whole_batches_is_said(folder):
    with pytest.raises(wds.EmptyDatasetError, match="too few for a batch of 30"):
        list(batched(exact(folder, remainder="drop"), 30, partial=False))


# -- over the network ------------------------------------------------------------------------------


def test_an_exact_epoch_over_http_reads_every_byte_once(nginx, folder):
    remote = [nginx.put(f"exact/{os.path.basename(path)}", Path(path).read_bytes()) for path in urls(folder, "equal")]
    dataset = wds.WebDataset(remote, exact=True, seed=1, lanes=8)
    local = exact(folder, "equal")
    assert [sample["__key__"] for sample in dataset] == [sample["__key__"] for sample in local]
    assert dataset.stats()["bytes_read"] <= sum(map(os.path.getsize, urls(folder, "equal")))


def test_one_process_reads_from_a_server_for_all_workers(nginx, folder):
    paths = urls(folder, "equal")
    remote = [nginx.put(f"exact/{os.path.basename(path)}", Path(path).read_bytes()) for path in paths]
    local = keys(batched(exact(folder, "equal"), 4))

    def make(workers, **options):
        dataset = batched(wds.WebDataset(remote, exact=True, seed=1, lanes=8), 4)
        return wds.WebLoader(dataset, batch_size=None, num_workers=workers, **options)

    loader = make(2)
    assert keys(loader) == local
    stats = loader.stats()
    assert stats["bytes_read"] <= sum(map(os.path.getsize, paths))
    assert stats["samples_read"] == 18
    run = iter(loader)
    before = [list(next(run)[0]) for _ in range(2)]
    state = loader.state_dict()
    run.close()
    other = make(2, multiprocessing_context="spawn")
    other.load_state_dict(state)
    assert before + keys(other) == keys(batched(exact(folder, "equal"), 4).set_epoch(1))


def fails(sample):
    raise ValueError(f"no good: {sample['__key__']}")


def test_an_error_in_a_worker_of_a_remote_dataset_has_its_place(nginx, folder):
    path = urls(folder, "one")[0]
    dataset = wds.WebDataset(nginx.put("exact/one.tar", Path(path).read_bytes()), exact=True).map(fails)
    with pytest.raises(ValueError, match="no good: one0-") as caught:
        list(wds.WebLoader(dataset, batch_size=None, num_workers=1))
    assert any("in worker 0 of 1" in note for note in caught.value.__notes__)


def test_many_samples_keep_their_order_through_everything(tmp_path):
    rng = random.Random(3)
    paths = []
    for shard in range(6):
        paths.append(str(tmp_path / f"{shard}.tar"))
        sizes = [rng.randrange(3000) for _ in range(rng.randrange(50, 300))]
        with open(paths[-1], "wb") as file:
            file.write(tar_bytes([(f"{shard}-{i:05d}.bin", bytes(size)) for i, size in enumerate(sizes)]))
    options = {"exact": True, "shuffle_bytes": "200k", "block_bytes": "16k", "seed": 9}
    whole = [sample["__key__"] for sample in wds.WebDataset(paths, **options)]
    assert len(set(whole)) == len(whole) == sum(wds.index(paths).counts)
    ranks = [[sample["__key__"] for sample in wds.WebDataset(paths, rank=r, world_size=4, **options)] for r in range(4)]
    together = [set(step) for step in zip(*ranks, strict=True)]
    assert together[: len(whole) // 4] == [set(whole[i : i + 4]) for i in range(0, len(whole) // 4 * 4, 4)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Shards whose samples are large, so that each can be read when it is due."""
    folder, noise = tmp_path_factory.mktemp("photos"), random.Random(1)
    paths = [folder / f"{number}.tar" for number in range(3)]
    for number, path in enumerate(paths):
        files = []
        for i in range(50 + number):
            photo = noise.randbytes(noise.randrange(30_000, 90_000))
            files += [(f"{number}-{i}.cls", b"%d" % i), (f"{number}-{i}.jpg", photo)]
        path.write_bytes(tar_bytes(files))
    return [str(path) for path in paths]


def test_large_samples_of_files_come_as_they_are_in_the_order_of_the_plan(photos):
    known = {sample["__key__"]: sample for sample in wds.WebDataset(photos, shardshuffle=False)}
    dataset = wds.WebDataset(photos, exact=True, lanes=4)
    one_by_one = wds.WebDataset(photos, exact=True, lanes=4, select_files=bool)
    for _ in range(2):
        found = list(dataset)
        assert sorted(sample["__key__"] for sample in found) == sorted(known)
        assert all(sample == known[sample["__key__"]] for sample in found)
        assert found == list(one_by_one)
        assert dataset.stats()["bytes_read"] <= sum(map(os.path.getsize, photos))


def test_large_samples_with_long_names_are_not_read_twice(tmp_path):
    path = tmp_path / "a.tar"
    names = [f"{'k' * 120 if i % 9 == 0 else ''}{i}.jpg" for i in range(200)]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 40_000
            archive.addfile(member, io.BytesIO(name.encode()[:1] * 40_000))
    dataset = wds.WebDataset([str(path)], exact=True)
    samples = list(dataset)
    assert sorted(sample["__key__"] + ".jpg" for sample in samples) == sorted(names)
    assert all(sample["jpg"] == sample["__key__"].encode()[:1] * 40_000 for sample in samples)
    assert dataset.stats()["bytes_read"] <= path.stat().st_size


def test_large_samples_of_files_are_not_held(photos):
    dataset = wds.WebDataset(photos, exact=True, lanes=4)
    next(iter(dataset))
    assert 0 < dataset.stats()["bytes_read"] < 0.6 * sum(map(os.path.getsize, photos))


def test_a_damaged_header_among_large_samples_is_found(photos, tmp_path):
    damaged = tmp_path / "damaged.tar"
    damaged.write_bytes(Path(photos[0]).read_bytes())
    wds.index([str(damaged)])
    status = damaged.stat()
    with open(damaged, "r+b") as file:
        file.seek(0)
        file.write(b"x")
    os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(wds.WebDatasetError, match=r"damaged\.tar"):
        list(wds.WebDataset([str(damaged)], exact=True))


def test_a_stage_that_is_replaced_takes_effect(folder):
    dataset = exact(folder).to_tuple("__key__")
    for size in range(1, 8):  # the stage before is gone, and a new one may stand at its place in memory
        dataset.pipeline[2:] = [wds.batched(size)]
        assert len(dataset) == -(-total("uneven") // size)


@pytest.mark.parametrize("known", [(), (1,), (0, 2)])
def test_a_list_need_not_tell_the_sizes_of_its_shards(folder, tmp_path, known):
    shards = [
        {"url": url, "nsamples": count} | ({"filesize": os.path.getsize(url)} if number in known else {})
        for number, (url, count) in enumerate(zip(urls(folder), SIZES["uneven"], strict=True))
    ]
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}))
    ranks = [wds.WebDataset(str(listed), exact=True, rank=rank, world_size=2, remainder="uneven") for rank in range(2)]
    given = [sample["__key__"] for data in ranks for sample in data]
    assert sorted(given) == sorted(sample["__key__"] for sample in exact(folder))
