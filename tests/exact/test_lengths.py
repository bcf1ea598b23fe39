"""Batches by lengths that a function gives: measured once, kept, the same on all ranks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from tests_support import tar_bytes

SIZES = (9, 14, 7)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


@pytest.fixture
def shards(tmp_path):
    first = 0
    for number, size in enumerate(SIZES):
        numbers = range(first, first + size)
        files = [(f"{n:02d}.json", json.dumps({"words": ["x"] * (n * 7 % 20)}).encode()) for n in numbers]
        (tmp_path / f"{number}.tar").write_bytes(tar_bytes(files))
        first += size
    return [str(tmp_path / f"{number}.tar") for number in range(len(SIZES))]


class Words:
    """Counts words, and its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, sample: dict[str, Any]) -> int:
        self.calls += 1
        return len(sample["json"]["words"])


def words(sample: dict[str, Any]) -> int:
    return len(sample["json"]["words"])


def dataset(shards: list[str], key: Any = words, **options: Any) -> Any:
    how = {"lengths": "words", "batchsize": 3, "collation_fn": None, "boundaries": [5, 10]}
    given = {name: options.pop(name) for name in [*options] if name in (*how, "max_tokens", "among", "scale")}
    return wds.WebDataset(shards, exact=True, seed=1, **options).decode().bucketed(key, **{**how, **given})


def bucket(sample: dict[str, Any]) -> int:
    return (words(sample) >= 5) + (words(sample) >= 10)


def test_batches_are_of_one_bucket_by_the_function(shards):
    batches = list(dataset(shards))
    mixed = [batch for batch in batches if len({bucket(sample) for sample in batch}) > 1]
    assert len(mixed) <= 2  # what is left over
    assert Counter(sample["__key__"] for batch in batches for sample in batch) == {f"{n:02d}": 1 for n in range(30)}


@pytest.mark.parametrize("world", [1, 2, 3])
def test_all_ranks_take_as_many_steps_which_are_known_before(shards, world):
    ranks = [dataset(shards, rank=rank, world_size=world) for rank in range(world)]
    batches = [list(rank) for rank in ranks]
    assert [len(rank) for rank in ranks] == [len(each) for each in batches]
    assert len({len(each) for each in batches}) == 1
    assert {sample["__key__"] for each in batches for batch in each for sample in batch} == {
        f"{n:02d}" for n in range(30)
    }


def test_samples_are_measured_once_and_for_all(shards):
    first, second, other = Words(), Words(), Words()
    assert len(dataset(shards, first)) == len(dataset(shards, second))
    assert (first.calls, second.calls) == (30, 0)
    len(dataset(shards, other, lengths="other"))
    assert other.calls == 30


def test_a_shard_that_has_changed_is_measured_again(shards):
    len(dataset(shards))
    Path(shards[2]).write_bytes(tar_bytes([("x.json", b'{"words": ["a"]}')]))
    again = Words()
    len(dataset(shards, again))
    assert again.calls == 1


def test_lengths_that_are_damaged_are_measured_again(shards, tmp_path):
    len(dataset(shards))
    for path in (tmp_path / "cache-home").rglob("*.wdl"):
        path.write_bytes(path.read_bytes()[:-3])
    again = Words()
    len(dataset(shards, again))
    assert again.calls == 30


def test_the_length_of_a_decoded_field_is_measured_too(tmp_path):
    lengths = [3, 90, 5, 80, 4, 70]
    files = [(f"{n}.json", json.dumps([0] * length).encode()) for n, length in enumerate(lengths)]
    (tmp_path / "a.tar").write_bytes(tar_bytes(files))
    batches = list(dataset([str(tmp_path / "a.tar")], "json", boundaries=[50], lengths="json"))
    assert sorted(sorted(len(sample["json"]) for sample in batch) for batch in batches) == [[3, 4, 5], [70, 80, 90]]


def test_batches_by_tokens_hold_no_more(shards):
    batches = list(dataset(shards, boundaries=None, max_tokens=40))
    assert all(max(map(words, batch)) * len(batch) <= 40 for batch in batches)
    assert sum(map(len, batches)) == 30


def test_what_a_selection_leaves_out_has_no_length(shards):
    chosen = wds.WebDataset(shards, exact=True, seed=1).decode().select(lambda sample: int(sample["__key__"]) % 3)
    batches = list(chosen.bucketed(words, [5, 10], batchsize=3, lengths="some", collation_fn=None))
    assert len({sample["__key__"] for batch in batches for sample in batch}) == 20


def test_a_run_goes_on_at_every_batch(shards):
    whole = [[sample["__key__"] for sample in batch] for batch in dataset(shards)]
    for count in range(len(whole) + 1):
        run = dataset(shards)
        batches = iter(run)
        for _ in range(count):
            next(batches)
        resumed = wds.WebLoader(dataset(shards), batch_size=None, num_workers=2, workers="thread")
        resumed.load_state_dict(json.loads(json.dumps(run.state_dict())))
        assert [[sample["__key__"] for sample in batch] for batch in resumed] == whole[count:]


def test_a_state_with_other_lengths_is_refused(shards):
    with pytest.raises(wds.StateError, match=r"'words' .* 'other'"):
        dataset(shards, lengths="other").load_state_dict(dataset(shards).state_dict())


def test_a_function_without_a_name_is_refused_with_the_cure(shards):
    with pytest.raises(ValueError, match="lengths='tokens'"):
        len(dataset(shards, lengths=None))


def test_an_error_in_the_function_arrives(shards):
    with pytest.raises(KeyError, match="missing"):
        len(dataset(shards, lambda sample: sample["missing"]))


def test_worker_processes_know_the_lengths(shards):
    loader = wds.WebLoader(dataset(shards), batch_size=None, num_workers=2, collate_fn=list)
    found = [[sample["__key__"] for sample in batch] for batch in loader]
    assert found == [[sample["__key__"] for sample in batch] for batch in dataset(shards)]
    assert len(loader) == len(found)
