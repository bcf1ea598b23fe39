"""Random numbers of transforms: the same whenever a sample comes again, whatever the workers."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy
import pytest
import torch

import webdataset as wds
from webdataset.filters.seeds import drawing_from


def augmented(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "x": (random.random(), float(numpy.random.rand()), float(torch.rand(1)))}


def values(dataset: Any) -> dict[str, Any]:
    return {sample["__key__"]: sample["x"] for sample in dataset}


def as_it_is(item: Any) -> Any:
    return item


@pytest.mark.parametrize("exact", [False, True])
def test_augmentations_do_not_depend_on_the_workers(make_shards: Callable[..., list[str]], exact: bool) -> None:
    urls = make_shards(4, samples=5)

    def loader(workers: int, kind: str) -> Any:
        dataset = wds.WebDataset(urls, exact=exact).map(wds.repeatable(augmented, seed=3))
        return wds.WebLoader(dataset, batch_size=None, num_workers=workers, workers=kind, collate_fn=as_it_is)

    epochs = [values(loader) for loader in [loader(0, "process")] for _ in range(2)]
    for workers, kind in ((2, "process"), (2, "thread")):
        again = loader(workers, kind)
        assert [values(again), values(again)] == epochs
    assert epochs[0] != epochs[1]
    assert len(set(epochs[0].values())) == 20


def test_augmentations_repeat_after_a_resume(make_shards: Callable[..., list[str]]) -> None:
    urls = make_shards(3, samples=7)

    def make() -> Any:
        return wds.WebDataset(urls, shardshuffle=3).map(wds.repeatable(augmented)).shuffle(5)

    dataset = make()
    iterator = iter(dataset)
    list(islice(iterator, 9))
    state = dataset.state_dict()
    resumed = make()
    resumed.load_state_dict(state)
    assert [sample["x"] for sample in resumed] == [sample["x"] for sample in iterator]


def test_seeds_differ_by_sample_shard_epoch_and_seed(make_shards: Callable[..., list[str]]) -> None:
    urls = make_shards(2, samples=3)
    dataset = wds.WebDataset(urls).seeded(5)
    first, second = ([sample["__seed__"] for sample in dataset] for _ in range(2))
    other = [sample["__seed__"] for sample in wds.WebDataset(urls).seeded(6)]
    assert len({*first, *second, *other}) == 18
    assert all(0 <= seed < 1 << 63 for seed in first)
    assert [sample["__seed__"] for sample in wds.WebDataset(urls[::-1]).seeded(5)] == [*first[3:], *first[:3]]


def test_the_global_generators_are_as_they_were() -> None:
    def drawn() -> Any:
        return random.random(), float(numpy.random.rand()), float(torch.rand(1))

    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    expected = [drawn(), drawn()]
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    before = drawn()
    with drawing_from(7):
        within = drawn()
    assert [before, drawn()] == expected
    with drawing_from(7):
        assert drawn() == within


def test_a_sample_without_a_key_is_an_error() -> None:
    with pytest.raises(wds.SampleError, match="key"):
        list(wds.DataPipeline([[{"x": 1}]], wds.map(wds.repeatable(augmented))))


def test_a_function_that_is_called_by_itself_takes_the_seed_of_the_sample() -> None:
    function = wds.repeatable(augmented)
    assert function({"__seed__": 4})["x"] == function({"__seed__": 4})["x"] != function({"__seed__": 5})["x"]
    with pytest.raises(wds.SampleError, match="epoch"):
        function({"__key__": "a"})
