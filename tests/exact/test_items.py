"""Samples and items of an exact dataset by number, key and slice."""

from __future__ import annotations

import pickle
import random

import pytest

import webdataset as wds
from exact_support import exact, urls

pytestmark = pytest.mark.usefixtures("own_cache")


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
        with pytest.raises(TypeError, match="batched" if name == "unbatched" else name):
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
    with pytest.raises(wds.SampleError) as raised:
        dataset[4]
    assert (raised.value.key, "dataset.samples" in raised.value.hint) == ("uneven0-004", True)


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
    with pytest.raises(wds.SampleError, match="select_files") as raised:
        nothing.samples[4]
    assert raised.value.key == "uneven0-004"


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
