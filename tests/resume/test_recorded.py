"""States that version 2.0.0.dev0 saved, and what it gave after them: they load from then on.

`python tests/resume/test_recorded.py` records pipelines that were added here; what is recorded already stays as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from tests_support import numbered_shards

RECORDED = Path(__file__).parent / "recorded" / "states.json"
SIZES = (7, 11, 2, 0, 5, 6)
URLS = [f"{number}.tar" for number in range(len(SIZES))]
"""Relative paths: a state knows its shards by their urls."""
AFTER = (0, 1, 5, 9)
"""Items after which states are saved, if there are as many."""

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than processors
    pytest.mark.usefixtures("own_cache"),
]


def key(sample: dict[str, Any]) -> int:
    return int(sample["__key__"])


def is_even(number: int) -> bool:
    return number % 2 == 0


def pair_of(number: int) -> tuple[int, int]:
    return number, -number


def thrice(source: Iterator[int]) -> Iterator[int]:
    for number in source:
        yield from (number, number + 1000, number + 2000)


def in_pairs(source: Iterator[int]) -> Iterator[tuple[int, ...]]:
    while pair := tuple(islice(source, 2)):
        yield pair


@wds.pipelinefilter(per_sample=True)
def doubled(data: Iterator[int]) -> Iterator[int]:
    for number in data:
        yield from [number] * (1 + number % 2)


def streamed(**options: Any) -> Any:
    return wds.WebDataset(URLS, **{"shardshuffle": 3, **options})


def shuffled() -> Any:
    return streamed().shuffle(6, initial=3).map(key)


def evens() -> Any:
    return wds.WebDataset(URLS[:3]).map(key).select(is_even)


def exact(**options: Any) -> Any:
    return wds.WebDataset(URLS, exact=True, seed=1, lanes=4, **options).map(key)


def threaded(dataset: Any, threads: int = 2, **options: Any) -> Any:
    return wds.WebLoader(dataset, **{"batch_size": None, "num_workers": threads, "workers": "thread", **options})


def processed(dataset: Any, workers: int = 2, **options: Any) -> Any:
    return wds.WebLoader(dataset, **{"batch_size": None, "num_workers": workers, **options})


STREAMED: dict[str, Callable[[], Any]] = {
    "samples": lambda: streamed().map(key),
    "shuffled": shuffled,
    "shuffled with a seed": lambda: streamed(seed=3).shuffle(100, seed=4).map(key).listed(4),
    "detshuffle": lambda: streamed().compose(wds.detshuffle(6, 3, seed=1)).map(key),
    "selected": lambda: streamed().map(key).select(is_even).shuffle(5).listed(3),
    "batched": lambda: shuffled().map(pair_of).batched(4, partial=False),
    "unbatched": lambda: shuffled().map(pair_of).batched(4).unbatched().listed(3),
    "listed again": lambda: shuffled().listed(4).unlisted().listed(3),
    "own stages": lambda: streamed().map(key).compose(thrice, in_pairs).listed(2),
    "own stage before the shuffle": lambda: streamed().map(key).compose(thrice).shuffle(7),
    "own filter": lambda: streamed().map(key).compose(doubled()).listed(3),
    "sampled": lambda: shuffled().rsample(0.6).listed(3),
    "sliced": lambda: shuffled().slice(3, 25, 2).listed(2),
    "epochs of 10": lambda: shuffled().with_epoch(10),
    "epochs of 40": lambda: shuffled().with_epoch(40),
    "twice": lambda: shuffled().listed(4).repeat(2),
    "twice, cut": lambda: shuffled().listed(4).repeat(2, nbatches=9),
    "resampled": lambda: wds.WebDataset(URLS[:3], resampled=True).shuffle(5).map(key).with_epoch(30),
    "explicit stages": lambda: wds.DataPipeline(
        wds.SimpleShardList(URLS), wds.split_by_worker, wds.tarfile_to_samples(), wds.shuffle(6), wds.map(key)
    ),
    "a list": lambda: wds.DataPipeline([list(range(20))], wds.shuffle(6), wds.listed(2)),
    "nested": lambda: wds.FluidWrapper(shuffled()).compose(thrice).listed(4),
    "mixed": lambda: wds.DataPipeline(wds.RandomMix([evens(), shuffled()]), wds.listed(2)),
    "mixed to the end": lambda: wds.DataPipeline(wds.RandomMix([evens(), shuffled(), [1, 2, 3]], longest=True, seed=2)),
    "mixed of epochs": lambda: wds.DataPipeline(
        wds.RandomMix([evens().repeat(), shuffled().with_epoch(9)], longest=True), thrice
    ).with_epoch(50),
    "in turn": lambda: wds.DataPipeline(wds.RoundRobin([evens(), shuffled(), "abc"], longest=True)),
    "mixtures of mixtures": lambda: wds.DataPipeline(
        wds.RandomMix([wds.RandomMix([evens(), shuffled()]), shuffled()], longest=True), wds.listed(3)
    ),
}
EXACT: dict[str, Callable[[], Any]] = {
    "exact": exact,
    "exact, batched": lambda: exact().map(pair_of).batched(3),
    "exact, batched again": lambda: exact().listed(4).unlisted().listed(6),
    "exact, rank 1 of 2": lambda: exact(rank=1, world_size=2).listed(2),
    "exact, uneven": lambda: exact(rank=0, world_size=2, remainder="uneven").listed(2),
    "exact, sampled": lambda: wds.WebDataset(URLS, exact=True, seed=1).rsample(0.6).map(key).listed(2),
    "exact, epochs of 7": lambda: exact().listed(2).with_epoch(7),
    "exact, twice": lambda: exact().listed(4).repeat(2),
    "exact, mixed": lambda: wds.DataPipeline(
        wds.RandomMix([exact(), exact()], probs=[2, 1], seed=3, longest=True), wds.listed(4)
    ),
    "exact, bucketed": lambda: (
        wds.WebDataset(URLS, exact=True, seed=1)
        .bucketed("txt", [5], batchsize=2, among=8, collation_fn=None)
        .map(list_of_keys)
    ),
}
LOADERS: dict[str, Callable[[], Any]] = {
    "threads": lambda: threaded(shuffled().listed(2)),
    "threads, batches": lambda: threaded(shuffled(), batch_size=3, collate_fn=list),
    "threads, own filter": lambda: threaded(shuffled().compose(doubled()).listed(2)),
    "threads, none": lambda: threaded(shuffled().listed(2), threads=0),
    "threads, mixed": lambda: threaded(wds.FluidWrapper(wds.RandomMix([evens(), shuffled()])).listed(2)),
    "threads, epochs of 5": lambda: threaded(shuffled().listed(2)).with_epoch(5),
    "processes": lambda: processed(shuffled().listed(2)),
    "processes, none": lambda: processed(shuffled().listed(2), workers=0),
    "processes, persistent": lambda: processed(shuffled().listed(2), persistent_workers=True),
    "processes, mixed": lambda: processed(wds.FluidWrapper(wds.RandomMix([evens(), shuffled()])).listed(2)),
    "processes, epochs of 5": lambda: processed(shuffled().listed(2)).with_epoch(5),
    "exact, threads": lambda: threaded(exact().listed(2)),
    "exact, processes": lambda: processed(exact().listed(2)),
    "exact, batches of the loader": lambda: processed(exact(), batch_size=3, collate_fn=list),
    "exact, rank 1 of 2, processes": lambda: processed(exact(rank=1, world_size=2).listed(2)),
    "exact, processes, epochs of 7": lambda: processed(exact().listed(2)).with_epoch(7),
}
WORKERS: dict[str, Callable[[], Any]] = {
    f"{name}, worker 1 of 2": make for name, make in [*STREAMED.items(), *EXACT.items()][::4]
}
"""Datasets as a worker of torch's own loader reads them."""
PIPELINES = {**STREAMED, **EXACT, **LOADERS, **WORKERS}


def list_of_keys(samples: list[dict[str, Any]]) -> list[int]:
    return [key(sample) for sample in samples]


def plain(value: Any) -> Any:
    """Items as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def rest_of(pipeline: Any) -> list[Any]:
    """The rest of a pass, and the next one."""
    return [[plain(item) for item in pipeline], [plain(item) for item in pipeline]]


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbered_shards(tmp_path, SIZES)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return found


@pytest.mark.usefixtures("shards")
@pytest.mark.parametrize("name", PIPELINES)
def test_a_recorded_state_goes_on_as_it_did(
    name: str, recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in WORKERS:
        monkeypatch.setenv("WORKER", "1")
        monkeypatch.setenv("NUM_WORKERS", "2")
    for state, rest in recorded[name]:
        pipeline = PIPELINES[name]()
        pipeline.load_state_dict(state)
        assert rest_of(pipeline) == rest, state
        pipeline.load_state_dict(state)
        saved = json.loads(json.dumps(pipeline.state_dict()))
        again = PIPELINES[name]()
        again.load_state_dict(saved)
        assert rest_of(again) == rest, saved


def test_every_pipeline_is_recorded(recorded: dict[str, Any]) -> None:
    assert recorded.keys() == PIPELINES.keys()


def record(make: Callable[[], Any]) -> list[Any]:
    """States, and what an uninterrupted run gives after each."""
    run, states, passes = make(), [], []
    states.append((0, json.loads(json.dumps(run.state_dict()))))
    passes.append([])
    for item in run:
        passes[0].append(plain(item))
        if len(passes[0]) in AFTER:
            states.append((len(passes[0]), json.loads(json.dumps(run.state_dict()))))
    passes.append([plain(item) for item in run])
    return [(state, [passes[0][count:], passes[1]]) for count, state in states]


if __name__ == "__main__":
    import tempfile

    found = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        numbered_shards(Path(folder), SIZES)
        os.chdir(folder)
        os.environ["XDG_CACHE_HOME"] = folder
        for name, make in PIPELINES.items():
            if name in WORKERS:
                os.environ.update(WORKER="1", NUM_WORKERS="2")
            if name not in found:
                found[name] = record(make)
    RECORDED.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
