"""States of streamed datasets: what came before the save and after the load is the uninterrupted run."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from tests_support import numbered, tar_bytes

SIZES = (7, 11, 2, 0, 5)
"""Samples in the shards of the small dataset."""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder, start, urls = tmp_path_factory.mktemp("small"), 0, []
    for n, size in enumerate(SIZES):
        path = folder / f"{n}.tar"
        path.write_bytes(tar_bytes(numbered(size, start)))
        urls.append(str(path))
        start += size
    return urls


def key(sample: dict[str, Any]) -> int:
    return int(sample["__key__"])


def is_even(number: int) -> bool:
    return number % 2 == 0


def to_columns(batch: list[int]) -> tuple[list[int]]:
    return (batch,)


def first_of(values: tuple[int]) -> int:
    return values[0]


def thrice(source: Iterator[int]) -> Iterator[int]:
    for number in source:
        yield from (number, number + 1000, number + 2000)


def in_pairs(source: Iterator[int]) -> Iterator[tuple[int, ...]]:
    while pair := tuple(islice(source, 2)):
        yield pair


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def runs(make: Callable[[], Any], epochs: int = 2) -> tuple[list[list[Any]], list[tuple[int, int, Any]]]:
    """What epochs give, and the states before, within and after them: (epoch, items given in it, state)."""
    dataset, given, states = make(), [], []
    states.append((0, 0, plain(dataset.state_dict())))
    for epoch in range(epochs):
        items: list[Any] = []
        for item in dataset:
            items.append(item)
            states.append((epoch, len(items), plain(dataset.state_dict())))
            assert dataset.state_dict() == states[-1][2] or plain(dataset.state_dict()) == states[-1][2]
        given.append(items)
        states.append((epoch + 1, 0, plain(dataset.state_dict())))
    return given, states


def check_resumes(make: Callable[[], Any], epochs: int = 2) -> None:
    """A new dataset goes on from every state with just what is left, in that epoch and the next."""
    given, states = runs(make, epochs + 1)
    for epoch, count, state in states:
        resumed = make()
        resumed.load_state_dict(state)
        assert plain(resumed.state_dict()) == state
        rest = [list(resumed) for _ in range(epoch, epochs + 1)]
        expected = [given[epoch][count:], *given[epoch + 1 :]] if epoch <= epochs else []
        assert rest == expected, (epoch, count, state)


STAGES: dict[str, Callable[[Any], Any]] = {
    "samples": lambda data: data.map(key),
    "shuffled": lambda data: data.shuffle(6, initial=3).map(key),
    "seeded": lambda data: data.shuffle(100, seed=4).map(key).batched(4, collation_fn=None),
    "selected": lambda data: data.map(key).select(is_even).batched(3, collation_fn=None),
    "selected, then shuffled": lambda data: data.map(key).select(is_even).shuffle(5).batched(3, collation_fn=None),
    "whole batches": lambda data: data.shuffle(5).map(key).batched(4, collation_fn=None, partial=False),
    "unlisted": lambda data: data.map(key).listed(4).unlisted(),
    "listed anew": lambda data: data.shuffle(8).map(key).listed(4).unlisted().listed(3),
    "unbatched": lambda data: data.map(key).listed(4).map(to_columns).unbatched().map(first_of).listed(3),
    "multiplied": lambda data: data.map(key).compose(thrice).shuffle(7),
    "multiplied later": lambda data: data.shuffle(7).map(key).compose(thrice).listed(4),
    "own stages": lambda data: data.map(key).compose(thrice, in_pairs, thrice_pairs).listed(5),
    "all at once": lambda data: data.map(key).pipe(sorted, reverse=True).listed(4),
    "sampled": lambda data: data.map(key).rsample(0.6).listed(3),
    "sampled with a seed": lambda data: data.shuffle(4).map(key).rsample(0.6, seed=1).listed(3),
    "sliced": lambda data: data.shuffle(4).map(key).slice(3, 20, 2).listed(2),
    "sliced groups": lambda data: data.map(key).compose(thrice).slice(2, 40).compose(in_pairs),
    "detshuffle": lambda data: data.compose(wds.detshuffle(6, 3, seed=1)).map(key),
    "epochs of 10": lambda data: data.shuffle(6).map(key).with_epoch(10),
    "epochs of 40": lambda data: data.shuffle(6).map(key).with_epoch(40),
    "twice": lambda data: data.shuffle(6).map(key).listed(4).repeat(2),
    "twice, cut": lambda data: data.map(key).listed(4).repeat(2, nbatches=9),
}


def thrice_pairs(source: Iterator[tuple[int, ...]]) -> Iterator[int]:
    for pair in source:
        yield from (*pair, sum(pair))


def plus_hundred(number: int) -> int:
    return number + 100


def evens(small: list[str]) -> Any:
    return wds.WebDataset(small[:3]).map(key).select(is_even)


def hundreds(small: list[str]) -> Any:
    return wds.WebDataset(small, shardshuffle=3).shuffle(5).map(key).map(plus_hundred)


SOURCES: dict[str, Callable[[list[str]], Any]] = {
    "explicit stages": lambda urls: wds.DataPipeline(
        wds.SimpleShardList(urls),
        wds.shardlists.shard_shuffle(3),
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.shuffle(6),
        wds.map(key),
        wds.listed(3),
    ),
    "resampled": lambda urls: wds.WebDataset(urls[:3], resampled=True).shuffle(5).map(key).with_epoch(30),
    "resampled with a seed": lambda urls: wds.WebDataset(urls[:3], resampled=True, seed=3).map(key).with_epoch(30),
    "shards drawn by a stage": lambda urls: wds.DataPipeline(
        wds.SimpleShardList(urls[:3]), wds.resampled(7), wds.tarfile_to_samples(), wds.shuffle(6), wds.map(key)
    ),
    "a list": lambda urls: wds.DataPipeline([list(range(20))], wds.shuffle(6), wds.listed(3)),
    "a function": lambda urls: wds.DataPipeline(partial(iter, range(20)), wds.listed(3)),
    "a mock": lambda urls: wds.FluidWrapper(wds.MockDataset(7, 20)).listed(3),
    "a dataset within another": lambda urls: wds.FluidWrapper(hundreds(urls)).compose(thrice).listed(4),
    "mixed": lambda urls: wds.DataPipeline(wds.RandomMix([evens(urls), hundreds(urls)]), wds.listed(3)),
    "mixed to the end": lambda urls: wds.DataPipeline(
        wds.RandomMix([evens(urls), hundreds(urls), [1, 2, 3]], [1, 3, 1], longest=True, seed=2)
    ),
    "mixed of epochs": lambda urls: wds.DataPipeline(
        wds.RandomMix([evens(urls).repeat(), hundreds(urls).with_epoch(9)], longest=True), thrice
    ).with_epoch(50),
    "in turn": lambda urls: wds.DataPipeline(wds.RoundRobin([evens(urls), hundreds(urls)]), thrice, wds.listed(4)),
    "in turn to the end": lambda urls: wds.DataPipeline(
        wds.RoundRobin([evens(urls), hundreds(urls), "abc"], longest=True)
    ),
    "mixtures of mixtures": lambda urls: wds.DataPipeline(
        wds.RandomMix([wds.RandomMix([evens(urls), hundreds(urls)]), hundreds(urls)], longest=True), wds.listed(3)
    ),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_source_goes_on(small: list[str], source: Callable[[list[str]], Any]) -> None:
    check_resumes(partial(source, small))


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
def test_a_run_goes_on_at_every_item(small: list[str], stages: Callable[[Any], Any]) -> None:
    check_resumes(lambda: stages(wds.WebDataset(small, shardshuffle=3)))
