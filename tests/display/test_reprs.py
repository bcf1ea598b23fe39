"""Pipelines, mixtures, loaders, plans and states in words and as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import webdataset as wds

pytestmark = pytest.mark.usefixtures("own_cache")


def lines(thing: Any) -> list[str]:
    return repr(thing).splitlines()


def double(sample: Any) -> Any:
    return sample


def test_a_dataset_lists_its_stages_with_their_options(make_shards: Callable[..., list[str]]) -> None:
    shards = make_shards(3)
    dataset = wds.WebDataset(shards, shardshuffle=False).shuffle(100, initial=10).map(double).batched(8, partial=False)
    told = lines(dataset)
    assert told[0] == "WebDataset"
    assert told[1].split(maxsplit=1) == ["SimpleShardList", f"3 shards, {shards[0]} ... shard-000002.tar"]
    assert [line.split() for line in told[-3:]] == [
        ["shuffle", "100,", "initial=10"],
        ["map", "double"],
        ["batched", "8,", "partial=False"],
    ]


def test_an_exact_dataset_knows_its_samples_and_its_length(make_shards: Callable[..., list[str]]) -> None:
    dataset = wds.WebDataset(make_shards(2, samples=10), exact=True, seed=7).batched(8)
    assert lines(dataset)[0] == "WebDataset: exact epochs, length 3"
    assert "20 samples" in lines(dataset)[1]
    assert "seed=7" in lines(dataset)[1]


def test_declared_lengths_are_told(make_shard: Callable[..., str]) -> None:
    dataset = wds.WebDataset(make_shard(), shardshuffle=False)
    assert lines(dataset.with_length(12, silent=True))[0] == "WebDataset: length 12"
    assert (
        lines(wds.WebDataset(make_shard(), shardshuffle=False).with_epoch(1000))[0]
        == "WebDataset: 1,000 items per epoch"
    )


def test_a_length_that_must_be_measured_first_is_not_told(make_shard: Callable[..., str]) -> None:
    dataset = (
        wds.WebDataset(make_shard(), exact=True).decode().bucketed(batchsize=2, key=len, boundaries=[3], lengths="n")
    )
    assert lines(dataset)[0] == "WebDataset: exact epochs"


def test_a_mixture_shows_its_datasets(make_shards: Callable[..., list[str]]) -> None:
    one, two = (wds.WebDataset(shard, shardshuffle=False) for shard in make_shards(2))
    told = lines(wds.RandomMix([one, two], [0.25, 0.75]))
    assert told[0] == "RandomMix: 2 datasets with weights 0.25, 0.75"
    assert told.count("  WebDataset") == 2
    assert lines(wds.RoundRobin([one, two]))[0] == "RoundRobin: 2 datasets in turn"


def test_a_loader_shows_its_workers_and_their_dataset(make_shard: Callable[..., str]) -> None:
    dataset = wds.WebDataset(make_shard(), shardshuffle=False).batched(4)
    told = lines(wds.WebLoader(dataset, batch_size=None, num_workers=2).unbatched())
    assert told[0] == "WebLoader"
    assert told[1].split() == ["DataLoader", "2", "workers"]
    assert told[2] == "    WebDataset"
    assert told[-1].split() == ["unbatched"]


def test_secrets_and_markup_are_not_shown() -> None:
    dataset = wds.WebDataset("http://me:password@host/<b>.tar?token=abc", shardshuffle=False)
    for told in (repr(dataset), dataset._repr_html_()):
        assert "password" not in told
        assert "abc" not in told
    assert "<b>.tar" not in dataset._repr_html_()
    assert "&lt;b&gt;.tar" in dataset._repr_html_()


def test_a_closed_pipeline_and_one_of_plain_things_can_be_shown() -> None:
    assert lines(wds.DataPipeline()) == ["DataPipeline: empty"]
    assert [line.split() for line in lines(wds.DataPipeline([[1, 2]], double))[1:]] == [
        ["list", "2", "items"],
        ["double"],
    ]
    dataset = wds.WebDataset("a.tar", shardshuffle=False)
    dataset.close()
    assert lines(dataset) == ["WebDataset: empty"]


def test_everything_has_a_table(make_shards: Callable[..., list[str]]) -> None:
    dataset = wds.WebDataset(make_shards(2), exact=True).batched(4)
    reader = wds.SampleReader(dataset.catalogue)
    for thing in (dataset, dataset.plan(ranks=2), reader, dataset.catalogue, wds.RoundRobin([dataset])):
        assert thing._repr_html_().count("<tr>") >= 2
        assert "<table" in thing._repr_html_()
    assert repr(reader) == "SampleReader(2 shards, 20 samples)"
    assert repr(dataset.plan(ranks=2)) == str(dataset.plan(ranks=2))
    reader.close()


def test_a_state_is_told_in_words(make_shards: Callable[..., list[str]]) -> None:
    exact = wds.WebDataset(make_shards(2), exact=True, rank=1, world_size=4).batched(2)
    items = iter(exact)
    next(items)
    assert repr(wds.StateSummary(exact.state_dict())) == "State of an exact dataset: epoch 0, step 1, rank 1 of 4"
    assert "<table" in wds.StateSummary(exact.state_dict())._repr_html_()
    streamed = wds.WebDataset(make_shards(2), shardshuffle=False)
    next(iter(streamed))
    assert repr(wds.StateSummary(streamed.state_dict())).startswith("State of a streamed dataset: epoch 0")
    with pytest.raises(ValueError, match="state"):
        wds.StateSummary({"model": 1})
