"""What an epoch will be, told without reading data."""

from __future__ import annotations

import pytest

import webdataset as wds
from exact_support import batched, exact, total, urls

pytestmark = pytest.mark.usefixtures("own_cache")


def test_a_plan_of_shards_is_that_of_the_dataset(folder):
    plan = wds.plan(urls(folder), ranks=2, batch=4)
    assert plan.samples == total()
    assert plan.steps == len(batched(exact(folder, rank=0, world_size=2), 4))


def test_a_plan_tells_what_is_repeated(folder):
    dataset = batched(exact(folder, rank=0, world_size=3), 4)
    plan = dataset.plan()
    list(dataset)
    assert plan.repeated == -total() % 3


def test_a_plan_tells_the_sizes_of_the_batches(folder):
    dataset = batched(exact(folder, rank=1, world_size=3), 4)
    assert dataset.plan().sizes(1).tolist() == [len(batch[0]) for batch in dataset]


def test_a_streamed_dataset_has_no_plan(folder):
    with pytest.raises(TypeError, match="exact"):
        wds.WebDataset(urls(folder)).plan()
