"""States of loaders that read streamed datasets with threads."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from tests_support import tar_bytes

SIZES = (5, 9, 1, 7, 6, 8)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder, first = tmp_path_factory.mktemp("shards"), 0
    for number, size in enumerate(SIZES):
        files = [(f"{n:03d}.txt", b"%d" % n) for n in range(first, first + size)]
        (folder / f"{number:03d}.tar").write_bytes(tar_bytes(files))
        first += size
    return [str(folder / f"{number:03d}.tar") for number in range(len(SIZES))]


def key(sample: dict[str, Any]) -> int:
    return int(sample["__key__"])


def plain(value: Any) -> Any:
    return (
        value.tolist()
        if hasattr(value, "tolist")
        else list(map(plain, value))
        if isinstance(value, (list, tuple))
        else value
    )


@wds.pipelinefilter(per_sample=True)
def thrice(data: Iterator[int]) -> Iterator[int]:
    for number in data:
        yield from [number] * (number % 4)


def in_pairs(data: Iterator[int]) -> Iterator[tuple[int, int]]:
    for number in data:
        yield number, next(data, -1)


def is_odd(number: int) -> bool:
    return bool(number % 2)


def only_odd(number: int) -> int:
    if not number % 2:
        raise ValueError(number)
    return number


def streamed(urls: list[str]) -> Any:
    return wds.WebDataset(urls, shardshuffle=10).shuffle(6)


PIPELINES: dict[str, Callable[[list[str]], Any]] = {
    "samples": lambda urls: streamed(urls).map(key),
    "unshuffled": lambda urls: wds.WebDataset(urls).map(key),
    "batches": lambda urls: streamed(urls).map(key).map(lambda n: (n,)).batched(3),
    "selected": lambda urls: streamed(urls).map(key).select(is_odd).listed(2),
    "handled": lambda urls: streamed(urls).map(key).map(only_odd, handler=wds.ignore_and_continue).listed(2),
    "several for one": lambda urls: streamed(urls).map(key).compose(thrice()),
    "several in batches": lambda urls: streamed(urls).map(key).compose(thrice()).listed(4),
    "unlisted again": lambda urls: streamed(urls).map(key).listed(4).unlisted().map(str).listed(3),
    "a function of my own": lambda urls: streamed(urls).map(key).compose(in_pairs),
    "sliced": lambda urls: streamed(urls).map(key).slice(3, 30).rsample(0.8, seed=1).map(str),
    "epochs of 17": lambda urls: streamed(urls).map(key).with_epoch(17),
    "twice": lambda urls: streamed(urls).map(key).listed(5).repeat(2),
    "seeded": lambda urls: wds.WebDataset(urls, shardshuffle=10, seed=3).shuffle(6, seed=4).map(key),
    "detshuffle": lambda urls: wds.WebDataset(urls).compose(wds.detshuffle(7, seed=2)).map(key),
    "resampled": lambda urls: wds.WebDataset(urls, resampled=True).shuffle(5).map(key).with_epoch(20),
    "mixed": lambda urls: wds.DataPipeline(
        wds.RandomMix([streamed(urls[:3]), streamed(urls[3:])]), wds.map(key), wds.listed(2)
    ),
}


def check_resumes(make: Callable[[], Any], every: int = 1) -> None:
    run = make()
    epochs: list[list[Any]] = []
    states = [(0, 0, run.state_dict())]
    for number in range(2):
        epochs.append([])
        for item in run:
            epochs[-1].append(plain(item))
            states.append((number, len(epochs[-1]), run.state_dict()))
        states.append((number + 1, 0, run.state_dict()))
    epochs += [[plain(item) for item in run]]
    for number, count, state in [*states[::every], states[-1]]:
        resumed = make()
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert json.loads(json.dumps(resumed.state_dict())) == json.loads(json.dumps(state))
        assert [plain(item) for item in resumed] == epochs[number][count:], (number, count)
        if number < 2:
            assert [plain(item) for item in resumed] == epochs[number + 1], (number, count)


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_loader_goes_on_at_every_item(urls: list[str], name: str, threads: int) -> None:
    def make() -> Any:
        return wds.WebLoader(PIPELINES[name](urls), batch_size=None, num_workers=threads, workers="thread")

    check_resumes(make, every=5 if threads == 3 else 13)


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"batch_size": 4, "drop_last": True, "collate_fn": list}])
@pytest.mark.parametrize("threads", [0, 2])
def test_batches_of_the_loader_go_on(urls: list[str], options: dict[str, Any], threads: int) -> None:
    def make() -> Any:
        return wds.WebLoader(streamed(urls).map(key), num_workers=threads, workers="thread", **options)

    check_resumes(make, every=3)


ROUNDS = {
    "cut": lambda loader: loader.with_epoch(7),
    "longer than a pass": lambda loader: loader.with_epoch(sum(SIZES) + 4),
    "exactly a pass": lambda loader: loader.with_epoch(sum(SIZES)),
    "two passes": lambda loader: loader.repeat(2),
    "two passes at most": lambda loader: loader.repeat(2, nbatches=sum(SIZES) + 2),
}


@pytest.mark.parametrize("name", ROUNDS)
@pytest.mark.parametrize("options", [{"workers": "thread"}, {"workers": "thread", "num_workers": 2}, {}])
def test_a_loader_that_cuts_and_repeats_goes_on(urls: list[str], name: str, options: dict[str, Any]) -> None:
    def make() -> Any:
        return ROUNDS[name](wds.WebLoader(streamed(urls).map(key), batch_size=None, **options))

    check_resumes(make, every=7)


@pytest.mark.parametrize("name", ["cut", "longer than a pass", "two passes"])
def test_a_loader_with_processes_that_cuts_and_repeats_goes_on(urls: list[str], name: str) -> None:
    def make() -> Any:
        return ROUNDS[name](wds.WebLoader(streamed(urls).map(key), batch_size=None, num_workers=2))

    check_resumes(make, every=41)


def test_a_state_of_other_rounds_is_refused(urls: list[str]) -> None:
    def loader() -> Any:
        return wds.WebLoader(streamed(urls).map(key), batch_size=None, workers="thread")

    state = loader().with_epoch(7).state_dict()
    with pytest.raises(wds.StateError, match=r"with_epoch\(7\)"):
        loader().load_state_dict(state)
    with pytest.raises(wds.StateError, match=r"repeat\(2\)"):
        loader().repeat(2).load_state_dict(loader().state_dict())
    with pytest.raises(wds.StateError, match="damaged"):
        loader().with_epoch(7).load_state_dict({**state, "round": {"passes": None, "items": 7}})


def test_a_round_that_was_left_is_begun_anew(urls: list[str]) -> None:
    loader = wds.WebLoader(streamed(urls).map(key), batch_size=None, workers="thread").with_epoch(9)
    next(iter(loader))
    assert len(list(loader)) == 9


def test_a_collation_of_the_users_own_goes_on(urls: list[str]) -> None:
    def make() -> Any:
        dataset = streamed(urls).map(key).listed(3)
        return wds.WebLoader(dataset, batch_size=None, collate_fn=sum, num_workers=2, workers="thread")

    check_resumes(make, every=3)


def test_stages_after_the_loader_that_treat_single_items_go_on(urls: list[str]) -> None:
    def make() -> Any:
        return wds.WebLoader(streamed(urls).map(key), batch_size=None, num_workers=2, workers="thread").map(str)

    check_resumes(make, every=5)


def test_the_number_of_threads_may_change(urls: list[str]) -> None:
    def make(threads: int) -> Any:
        return wds.WebLoader(streamed(urls).map(key), batch_size=None, num_workers=threads, workers="thread")

    loader = make(1)
    items = iter(loader)
    for _ in range(11):
        next(items)
    state = loader.state_dict()
    resumed = make(4)
    resumed.load_state_dict(state)
    assert list(resumed) == list(items)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(PIPELINES)), counts=st.lists(st.integers(1, 15), min_size=1, max_size=20))
def test_any_chain_of_saves_gives_the_uninterrupted_run(urls: list[str], name: str, counts: list[int]) -> None:
    def make() -> Any:
        return wds.WebLoader(PIPELINES[name](urls), batch_size=None, num_workers=2, workers="thread")

    first = make()
    state = json.loads(json.dumps(first.state_dict()))
    whole = [plain(item) for item in first]
    found: list[Any] = []
    for count in cycle(counts):
        if len(found) >= len(whole):
            break
        loader = make()
        loader.load_state_dict(state)
        items = iter(loader)
        found += [plain(item) for _, item in zip(range(count), items, strict=False)]
        state = json.loads(json.dumps(loader.state_dict()))
        items.close()
    assert found == whole


def test_a_state_of_a_large_buffer_is_small(tmp_path: Any) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes((f"{n:04d}.txt", b"") for n in range(1000)))
    dataset = wds.WebDataset([str(path)] * 40, shardshuffle=100).shuffle(10_000).map(key).listed(64)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=8, workers="thread")
    for _, _ in zip(range(300), loader, strict=False):
        pass
    assert len(json.dumps(loader.state_dict())) < 10_000


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda urls: wds.WebDataset(urls).map(key).shuffle(10, rng=random.Random(1)), "rng"),
        (lambda urls: wds.WebDataset(urls).map(key).shuffle(10).map(str), "shuffle"),
    ],
)
def test_what_cannot_be_saved_says_why_and_is_read_as_ever(urls: list[str], make: Any, reason: str) -> None:
    loader = wds.WebLoader(make(urls), batch_size=None, num_workers=2, workers="thread")
    items = iter(loader)
    next(items)
    with pytest.raises(wds.StateError, match=reason):
        loader.state_dict()
    assert len(list(items)) == sum(SIZES) - 1


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"num_workers": 0}, "threads"),
        ({"num_workers": 2, "batch_size": 5}, "batch_size"),
    ],
)
def test_a_state_of_another_loader_is_refused(urls: list[str], other: dict[str, Any], difference: str) -> None:
    loader = wds.WebLoader(streamed(urls), batch_size=None, num_workers=2, workers="thread")
    options = {"batch_size": None, "workers": "thread", **other}
    with pytest.raises(wds.StateError, match=difference):
        wds.WebLoader(streamed(urls), **options).load_state_dict(loader.state_dict())
    with pytest.raises(wds.StateError, match="threads"):
        wds.WebLoader(streamed(urls), batch_size=None, num_workers=2).load_state_dict(loader.state_dict())
