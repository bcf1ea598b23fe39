"""States of streamed datasets: what came before the save and after the load is the uninterrupted run."""

from __future__ import annotations

import gzip
import json
import pickle
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

import webdataset as wds
from tests_support import numbered, numbered_shards, tar_bytes
from webdataset.base.behaviour import behaves

SIZES = (7, 11, 2, 0, 5)
"""Samples in the shards of the small dataset."""


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return numbered_shards(tmp_path_factory.mktemp("small"), SIZES)


def key(sample: dict[str, Any]) -> int:
    return int(sample["__key__"])


def length_of(item: Any) -> int:
    return len(str(item))


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
            assert plain(dataset.state_dict()) == states[-1][2]
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
        expected = [given[epoch][count:], *given[epoch + 1 : epoch + 2]] if epoch <= epochs else []
        assert [list(resumed) for _ in expected] == expected, (epoch, count, state)


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


class Seekable:
    """A source that has attributes which mean something else to a pipeline."""

    runner = behaviour = "its own"

    def __init__(self, items: Any) -> None:
        self.items = items

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def seek(self, place: int) -> None:
        raise AssertionError(place)


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
    "a source with names of ours": lambda urls: wds.DataPipeline(Seekable(range(20)), wds.listed(3)),
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


def test_compressed_shards_and_copies_on_this_machine_go_on(small: list[str], tmp_path: Path) -> None:
    urls = []
    for n, url in enumerate(small):
        path = tmp_path / f"{n}.tar.gz"
        path.write_bytes(gzip.compress(Path(url).read_bytes()))
        urls.append(f"pipe:cat {path}")
    cache = tmp_path / "cache"
    cache.mkdir()
    check_resumes(lambda: wds.WebDataset(urls, shardshuffle=3, cache_dir=str(cache)).shuffle(6).map(key), epochs=1)


def test_shards_that_fail_go_on_as_they_failed(small: list[str], tmp_path: Path) -> None:
    cut = tmp_path / "cut.tar"
    cut.write_bytes(tar_bytes(numbered(9, 500))[:5000])
    urls = [small[0], "missing.tar", small[1], str(cut), small[2]]
    handler = wds.ignore_and_continue
    check_resumes(lambda: wds.WebDataset(urls, shardshuffle=5, handler=handler).shuffle(6).map(key))
    check_resumes(lambda: wds.WebDataset(urls, handler=handler).map(key).listed(3))


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.data())
def test_any_pipeline_goes_on_through_any_chain_of_saves(small: list[str], data: st.DataObject) -> None:
    make, counts = data.draw(pipelines(small)), data.draw(st.lists(st.integers(0, 15), max_size=6))
    dataset = make()
    begin = plain(dataset.state_dict())
    uninterrupted = taken(dataset, sum(counts))
    parts = []
    state = begin
    for count in counts:
        dataset = make()
        dataset.load_state_dict(state)
        parts += taken(dataset, count)
        state = plain(dataset.state_dict())
    assert parts == uninterrupted


def taken(dataset: Any, count: int) -> list[Any]:
    """The next items of a dataset, epoch after epoch, with an "end" where one ends."""
    items: list[Any] = []
    while len(items) < count:
        items += [*islice(dataset, count - len(items)), "end"]
    return items[:count]


def pipelines(urls: list[str]) -> st.SearchStrategy[Callable[[], Any]]:
    """Pipelines of numbers: some stages, at most one shuffle, with or without lists at the end."""
    each = st.sampled_from([lambda d: d.map(plus_hundred), lambda d: d.select(is_even), lambda d: d.compose(thrice)])
    later = st.sampled_from(
        [
            lambda d: d.compose(thrice),
            lambda d: d.rsample(0.7),
            lambda d: d.listed(3).unlisted(),
            lambda d: d.listed(2).unlisted().select(is_even),
            lambda d: d.slice(1, 30),
        ]
    )
    shuffles = st.builds(
        lambda size, initial, seed: lambda d: d.shuffle(size, initial=initial, seed=seed),
        st.integers(0, 30),
        st.integers(1, 10),
        st.sampled_from([None, 5]),
    )
    ends = st.sampled_from([lambda d: d, lambda d: d.listed(4), lambda d: d.listed(3, partial=False)])
    epochs = st.sampled_from([lambda d: d, lambda d: d.with_epoch(11), lambda d: d.repeat(2)])
    return st.builds(
        lambda buffer, *stages: partial(_built, urls, buffer, stages),
        st.sampled_from([0, 3]),
        st.lists(each, max_size=2),
        shuffles,
        st.lists(later, max_size=3),
        ends,
        epochs,
    )


def _built(urls: list[str], buffer: int, stages: Any) -> Any:
    dataset: Any = wds.WebDataset(urls, shardshuffle=buffer).map(key)
    for stage in stages:
        for one in stage if isinstance(stage, list) else [stage]:
            dataset = one(dataset)
    return dataset


# -- what does not fit -----------------------------------------------------------------------------


def saved_state(dataset: Any, items: int = 5) -> Any:
    iterator = iter(dataset)
    for _ in range(items):
        next(iterator)
    return plain(dataset.state_dict())


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (
            lambda urls: wds.WebDataset(urls[:-1], seed=1, shardshuffle=3).shuffle(5),
            "4: {last} is missing here",
        ),
        (
            lambda urls: wds.WebDataset(urls[::-1], seed=1, shardshuffle=3).shuffle(5),
            "5 shards come in another order",
        ),
        (lambda urls: wds.WebDataset(urls, seed=2, shardshuffle=3).shuffle(5), "ShardShuffle(seed=2"),
        (lambda urls: wds.WebDataset(urls, seed=1, shardshuffle=3).shuffle(6), "shuffle(6)"),
        (lambda urls: wds.WebDataset(urls, seed=1, shardshuffle=3), "the stage shuffle(5) is missing here"),
        (lambda urls: wds.WebDataset(urls, seed=1, shardshuffle=3).shuffle(5).with_epoch(9), "items was 0 and is 9"),
    ],
)
def test_a_state_of_something_else_is_refused(
    small: list[str], other: Callable[[list[str]], Any], difference: str
) -> None:
    state = saved_state(wds.WebDataset(small, seed=1, shardshuffle=3).shuffle(5))
    with pytest.raises(wds.StateError) as refused:
        other(small).load_state_dict(state)
    assert difference.replace("{last}", Path(small[-1]).name) in str(refused.value)


def test_a_state_of_another_worker_is_refused(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = wds.WebDataset(small)
    state = saved_state(dataset)
    monkeypatch.setenv("WORKER", "1")
    monkeypatch.setenv("NUM_WORKERS", "2")
    with pytest.raises(wds.StateError, match=r"worker 0 of 1 .*worker 1 of 2"):
        dataset.load_state_dict(state)


def test_shards_in_another_order_are_noticed_before_anything_is_given(small: list[str]) -> None:
    def split(source: Iterator[Any]) -> Iterator[Any]:
        return iter(sorted(source, key=lambda shard: shard["url"], reverse=turned))

    turned = False
    stages = [wds.SimpleShardList(small), split, wds.tarfile_to_samples(), wds.shuffle(5)]
    state = saved_state(wds.DataPipeline(*stages))
    turned = True
    dataset = wds.DataPipeline(*stages)
    dataset.load_state_dict(state)
    with pytest.raises(wds.StateError, match="shards"):
        next(iter(dataset))


def test_a_shard_that_has_lost_samples_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(numbered(9)))
    urls = [str(path), str(path)]
    state = saved_state(wds.WebDataset(urls), 6)
    path.write_bytes(tar_bytes(numbered(4)))
    dataset = wds.WebDataset(urls)
    dataset.load_state_dict(state)
    with pytest.raises(wds.StateError, match="changed"):
        next(iter(dataset))


class OwnCache(wds.Cached):
    """A stage that is told by what it is, not by its name."""


@behaves("holds", "it looks ahead")
def looks_ahead(source: Iterator[Any]) -> Iterator[Any]:
    return iter(list(source))


def test_a_class_that_is_only_named_like_a_cache_is_none(small: list[str]) -> None:
    class Cached(wds.PipelineStage):
        def run(self, src: Iterator[Any]) -> Iterator[Any]:
            return src

    check_resumes(lambda: wds.WebDataset(small).map(key).compose(Cached()), epochs=1)
    assert len(list(wds.WebDataset(small, exact=True).compose(Cached()))) == sum(SIZES)


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        (lambda data: data.mcached(), "mcached"),
        (lambda data: data.compose(OwnCache()), "mcached"),
        (lambda data: data.bucketed(length_of, max_tokens=9, collation_fn=None, batchsize=2), r"bucketed\(\) holds"),
        (lambda data: data.compose(looks_ahead), "it looks ahead"),
        (lambda data: data.shuffle(5).shuffle(5), "shuffles twice"),
        (lambda data: data.listed(2).shuffle(5), r"listed\(\) stands before shuffle"),
        (lambda data: data.shuffle(5, max_bytes=1000), "max_bytes"),
        (lambda data: wds.FluidWrapper(data).shuffle(5), "shuffle each dataset itself"),
        (lambda data: wds.DataPipeline(iter([1, 2, 3])), "only once"),
        (lambda data: wds.DataPipeline(wds.tariterators.group_by_keys), "looks ahead"),
    ],
)
def test_what_cannot_be_saved_says_why_and_is_read_as_ever(
    small: list[str], stages: Callable[[Any], Any], reason: str
) -> None:
    with pytest.raises(wds.StateError, match=reason):
        stages(wds.WebDataset(small)).state_dict()
    dataset = stages(wds.WebDataset(small).map(key))
    if "group" not in reason and "ahead" not in reason:
        iterator = iter(dataset)
        next(iterator)
        with pytest.raises(wds.StateError, match=reason):
            dataset.state_dict()
        assert list(iterator)


def test_a_dataset_under_way_can_be_pickled_and_composed(small: list[str]) -> None:
    dataset = wds.WebDataset(small).shuffle(5).map(key)
    saved_state(dataset)
    assert sorted(pickle.loads(pickle.dumps(dataset))) == sorted(dataset.compose()) == list(range(25))


# -- size, time and bytes ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """70 shards of 1000 samples of one byte."""
    folder = tmp_path_factory.mktemp("large")
    samples = [(f"{n:04d}.x", b"x") for n in range(1000)]
    shard = tar_bytes(samples)
    for n in range(70):
        (folder / f"{n:03d}.tar").write_bytes(shard)
    return [str(folder / f"{n:03d}.tar") for n in range(70)]


def test_a_state_with_a_large_buffer_is_small_and_restored_by_reading_the_window(large: list[str]) -> None:
    make = partial(_large, large)
    dataset = make()
    given = list(islice(dataset.placed(), 50_000))
    state = dataset.state_dict()
    assert len(json.dumps(state)) < 64_000 / 8
    assert state == dataset.state_from_mark(pickle.loads(pickle.dumps(given[-1][0])))
    expected = [(sample["__url__"], sample["__key__"]) for sample in dataset_rest(dataset, given)]
    resumed = make()
    begun = time.process_time()
    resumed.load_state_dict(plain(state))
    iterator = iter(resumed)
    first = next(iterator)
    seconds = time.process_time() - begun
    assert seconds < 1
    assert [(sample["__url__"], sample["__key__"]) for sample in (first, *islice(iterator, 2000))] == expected


def _large(urls: list[str]) -> Any:
    return wds.WebDataset(urls, shardshuffle=100, seed=1).shuffle(10_000, seed=2)


def dataset_rest(dataset: Any, given: list[Any]) -> list[Any]:
    again = _large(dataset.pipeline[0].urls)
    return list(islice(again, len(given), len(given) + 2001))


def test_shards_without_samples_in_the_buffer_are_not_opened_again(large: list[str], tmp_path: Path) -> None:
    log = tmp_path / "opened"
    urls = [f"pipe:echo {n} >> {log}; cat {url}" for n, url in enumerate(large[:40])]
    dataset = wds.WebDataset(urls).shuffle(500, seed=1)
    state = saved_state(dataset, 35_000)
    log.unlink()
    resumed = wds.WebDataset(urls).shuffle(500, seed=1)
    resumed.load_state_dict(state)
    next(iter(resumed))
    opened = [int(line) for line in log.read_text().split()]
    assert opened[-1] == 35
    assert min(opened) >= 30
    assert len(opened) == len(set(opened))


def test_the_state_of_a_long_pass_does_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes(numbered(3)))
    dataset = wds.WebDataset([str(path)] * 9000).shuffle(50, seed=1).map(key)
    lengths = []
    for n, _ in enumerate(dataset):
        if n % 3000 == 2999:
            lengths.append(len(json.dumps(dataset.state_dict())))
            state = plain(dataset.state_dict())
    assert max(lengths) < 5000
    resumed = wds.WebDataset([str(path)] * 9000).shuffle(50, seed=1).map(key)
    resumed.load_state_dict(state)
    assert len(list(resumed)) == 0
