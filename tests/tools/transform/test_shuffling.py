"""A shuffle keeps everything and depends on the seed alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archives import archive

RELAXED = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


SAMPLES = st.lists(
    st.tuples(st.sampled_from(["a", "b/c", "d-é", "x y"]), st.integers(-5, 5), st.binary(max_size=1500)), max_size=30
)


@RELAXED
@given(samples=SAMPLES, memory=st.sampled_from(["1", "5k", "100M"]), seed=st.integers(0, 3))
def test_shuffling_keeps_everything_and_depends_on_the_seed_alone(
    wl: Any, tmp_path: Path, members: Any, *, samples: list[tuple[str, int, bytes]], memory: str, seed: int
) -> None:
    source = archive(tmp_path / "in.tar", samples)
    ended = wl("shuffle", "--seed", seed, "--memory", memory, source)
    assert ended.code == 0
    assert members(ended.out) == members(source)
    assert ended.out == wl("shuffle", "--seed", seed, source).out


def test_shuffling_in_parallel_is_shuffling(wl: Any, make_shards: Any, members: Any, names: Any) -> None:
    shards = make_shards(4, samples=50)
    serial = wl("shuffle", "--seed", 1, *shards)
    assert wl("shuffle", "--seed", 1, "-P", 3, "--memory", "2k", *shards).out == serial.out
    assert members(serial.out) == sum((members(shard) for shard in shards), Counter())
    assert serial.out != wl("shuffle", "--seed", 2, *shards).out


@settings(RELAXED, max_examples=15)
@given(
    parts=st.lists(SAMPLES, min_size=2, max_size=3),
    memory=st.sampled_from(["1", "5k", "100M"]),
    words=st.sampled_from([[], ["--maxcount", 3], ["--maxsize", 2000], ["--rekey", "{index:03d}"], ["-f", "cls"]]),
)
def test_shuffled_shards_are_the_same_for_any_number_of_processes(
    wl: Any, tmp_path: Path, *, parts: list[list[tuple[str, int, bytes]]], memory: str, words: list[Any]
) -> None:
    shards = [archive(tmp_path / f"in-{n}.tar", samples) for n, samples in enumerate(parts)]
    ways = []
    for processes in (1, 2, 3):
        folder = tmp_path / str(processes)
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        output = ["--memory", memory, *words, "-o", folder / "o-%d.tar"]
        ended = wl("shuffle", "--seed", 1, "-P", processes, *shards, *output)
        told = ended.told.replace(str(folder), "")
        ways.append((ended.code, told, {path.name: path.read_bytes() for path in folder.iterdir()}))
    assert ways[0] == ways[1] == ways[2]


def test_every_place_is_as_likely(wl: Any) -> None:
    from webdataset.tools.transform.shuffling import shuffle_samples

    places: Counter[int] = Counter()
    samples = [{"__key__": str(n)} for n in range(5)]
    for seed in range(1000):
        order = [sample["__key__"] for sample in shuffle_samples(seed=seed)(samples)]
        places[order.index("0")] += 1
    assert all(150 < places[n] < 250 for n in range(5))
