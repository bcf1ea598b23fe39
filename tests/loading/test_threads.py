"""Loaders with thread workers: WebLoader(..., workers="thread")."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

import webdataset as wds

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def key_of(sample):
    return sample["__key__"]


def keys(count, start=0):
    return [f"{i:06d}" for i in range(start, start + count)]


def loader(dataset, num_workers=2, **kw):
    return wds.WebLoader(dataset, num_workers=num_workers, workers="thread", **kw)


# -- what comes, and in which order --------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_the_order_does_not_depend_on_the_number_of_threads(make_shards, workers):
    dataset = wds.WebDataset(make_shards(4, samples=25), shardshuffle=10, seed=3).shuffle(30, seed=1).decode()
    expected = [sample["__key__"] for sample in dataset]
    dataset.set_epoch(0)
    assert list(loader(dataset.map(key_of).set_epoch(0), workers, batch_size=None)) == expected


@given(st.integers(0, 30), st.integers(0, 4), st.none() | st.integers(1, 7), st.booleans(), st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_items_and_batches_are_those_of_torchs_own_loader(count, workers, batch_size, drop_last, prefetch):
    if batch_size is None:
        drop_last = False
    options = {"batch_size": batch_size, "drop_last": drop_last, "collate_fn": list if batch_size else None}
    dataset = wds.FluidWrapper(range(count)).map(lambda n: 2 * n)
    expected = list(DataLoader(dataset, **options))
    assert list(loader(dataset, workers, prefetch_factor=prefetch, **options)) == expected
    indexed = [2 * n for n in range(count)]
    if count:
        expected = list(DataLoader(indexed, **options))
        assert list(loader(indexed, workers, **options)) == expected
        assert len(loader(indexed, workers, **options).pipeline[0]) == len(expected)


def test_arrays_become_tensors_as_in_torchs_loader(make_shards):
    dataset = wds.WebDataset(make_shards(1, samples=4)).map(lambda sample: (np.zeros(3), int(sample["cls"]), "text"))
    for options in ({"batch_size": 2}, {"batch_size": None}):
        ours, theirs = list(loader(dataset, **options)), list(DataLoader(dataset, **options))
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert [type(value) for value in one] == [type(value) for value in other]
            assert torch.equal(one[0], other[0])
    batches = list(loader(dataset.batched(3), batch_size=None))
    assert [type(value) for value in batches[0]] == [torch.Tensor, torch.Tensor, list]
    assert [len(batch[1]) for batch in batches] == [3, 1]


def test_samplers_are_for_datasets_with_indices():
    data = [10, 11, 12, 13, 14]
    assert list(loader(data, batch_size=None, sampler=[3, 1])) == [13, 11]
    assert [batch.tolist() for batch in loader(data, batch_sampler=[[0, 1], [4]])] == [[10, 11], [14]]
    assert sorted(loader(data, batch_size=None, shuffle=True)) == data
    torch.manual_seed(1)
    first = list(loader(data, batch_size=None, shuffle=True))
    torch.manual_seed(1)
    assert list(loader(data, batch_size=None, shuffle=True)) == first
    for options in ({"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}):
        with pytest.raises(ValueError, match="indices"):
            loader(wds.FluidWrapper(data), **options)


def test_torchs_own_iterable_datasets_are_read_ahead():
    class Numbers(IterableDataset):
        def __iter__(self):
            return iter(range(5))

    assert [batch.tolist() for batch in loader(Numbers(), batch_size=2)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_workers": -1}, "num_workers"),
        ({"batch_size": 0}, "batch_size"),
        ({"prefetch_factor": 0}, "prefetch_factor"),
        ({"timeout": 3}, "timeout=3"),
        ({"worker_init_fn": print}, "worker_init_fn"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        loader([1, 2], **options)


# -- as a pipeline -------------------------------------------------------------------------------


def test_batches_are_taken_apart_shuffled_and_made_again(make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=6)).decode().to_tuple("cls", "txt").batched(4)
    batches = list(loader(dataset, batch_size=None).unbatched().shuffle(100).batched(5))
    assert [len(labels) for labels, _ in batches] == [5, 5, 2]
    assert sorted(int(x) for labels, _ in batches for x in labels) == list(range(12))


def test_epochs_may_be_shorter_or_longer_than_the_data(make_shards):
    urls = make_shards(2, samples=2)
    assert list(loader(wds.WebDataset(urls).map(key_of), batch_size=None).with_epoch(7)) == (keys(4) * 2)[:7]
    assert list(loader(wds.WebDataset(urls).map(key_of).with_epoch(6), batch_size=None)) == (keys(4) * 2)[:6]
    assert list(loader(wds.WebDataset(urls).map(key_of).repeat(2), batch_size=None)) == keys(4) * 2
    batches = list(loader(wds.WebDataset(urls).map(key_of).with_epoch(6), batch_size=4, collate_fn=list))
    assert batches == [keys(4), keys(2)]


def test_every_epoch_has_its_shard_order_and_set_epoch_chooses_it(make_shards):
    dataset = wds.WebDataset(make_shards(12, samples=1), shardshuffle=100, seed=7).map(key_of)
    orders = [list(dataset) for _ in range(3)]
    threads = loader(dataset, batch_size=None).set_epoch(0)
    assert [list(threads) for _ in range(3)] == orders
    assert list(threads.set_epoch(1)) == orders[1]
    assert list(threads) == orders[2]


def test_a_loader_may_be_abandoned_and_read_again(make_shards):
    threads = loader(wds.WebDataset(make_shards(2, samples=100)).map(key_of), batch_size=None)
    for _ in range(3):
        items = iter(threads)
        assert next(items) == "000000"
        del items
    first, second = iter(threads), iter(threads)
    assert [next(first), next(second), next(first)] == ["000000", "000000", "000001"]
    first.close()
    assert len(list(second)) == 199


def test_loaders_may_be_nested(make_shards):
    inner = loader(wds.WebDataset(make_shards(2, samples=10)).map(key_of), batch_size=None)
    assert list(loader(inner.map(str.upper), batch_size=None)) == keys(20)
    assert list(DataLoader(inner, batch_size=None)) == keys(20)


def test_the_counts_are_those_of_the_latest_pass(make_shards, tmp_path):
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"x" * 1024)
    dataset = wds.WebDataset([*make_shards(3, samples=4), str(bad)], handler=wds.ignore_and_continue).map(key_of)
    for options in ({"batch_size": None}, {"batch_size": 4}, {"batch_size": None, "collate_fn": str}):
        threads = loader(dataset, **options)
        for _ in range(2):
            list(threads)
            stats = threads.stats()
            assert (stats["samples_read"], stats["shards_read"], stats["shards_skipped"]) == (12, 3, 1)


def test_an_error_arrives_with_its_place_and_its_traceback(make_shards):
    urls = make_shards(2)
    with open(urls[1], "r+b") as file:
        file.truncate(5000)
    got = []
    with pytest.raises(wds.ShardError) as caught:
        got.extend(loader(wds.WebDataset(urls).map(key_of), batch_size=None))
    assert got == keys(len(got))
    assert len(got) >= 10
    assert caught.value.url == urls[1]


def test_shards_are_split_by_rank_and_not_by_thread(make_shards, monkeypatch):
    urls = make_shards(4, samples=2)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = wds.WebDataset(urls, nodesplitter=wds.split_by_node).map(key_of)
    assert list(loader(dataset, 3, batch_size=None)) == keys(2, 2) + keys(2, 6)


def test_memory_is_bounded_by_what_may_be_on_its_way(make_shard):
    made, taken, most = [], 0, 0
    files = [(f"{i:04d}.bin", bytes(200_000)) for i in range(300)]

    def load(sample):
        made.append(sample["__key__"])
        return sample["bin"]

    for _ in loader(wds.WebDataset(make_shard("big.tar", files=files)).map(load), 4, batch_size=10, collate_fn=len):
        taken += 10
        most = max(most, len(made) - taken)
    assert most <= 2 * 10 + 10 + (2 * 4 + 2) * 6  # batches that wait, one that is being made, groups of at most 1 MiB


# -- without torch -------------------------------------------------------------------------------


def run(program, **kw):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, **kw
    )


def test_threads_work_without_torch(make_shards):
    program = f"""
import sys
sys.modules["torch"] = None
import webdataset as wds
dataset = wds.WebDataset({make_shards(2, samples=5)!r}).decode().to_tuple("__key__", "cls")
for batch_size in (4, None):
    batches = dataset if batch_size else dataset.batched(4)
    for texts, labels in wds.WebLoader(batches, batch_size=batch_size, num_workers=2, workers="thread"):
        print(len(texts), labels.tolist())
print([int(x) for x in wds.WebLoader([1, 2, 3], batch_size=None, num_workers=2, workers="thread")])
try:
    wds.WebLoader(dataset)
except wds.MissingPackageError as exn:
    print("torch" in str(exn))
"""
    done = run(program)
    batches = "4 [0, 1, 2, 3]\n4 [4, 5, 6, 7]\n2 [8, 9]\n"
    assert done.stderr == ""
    assert done.stdout == batches + batches + "[1, 2, 3]\nTrue\n"


def test_a_program_that_wants_no_tensors_does_not_import_torch(make_shards):
    program = f"""
import sys, webdataset as wds
dataset = wds.WebDataset({make_shards(1)!r}).decode()
list(wds.WebLoader(dataset, batch_size=3, num_workers=2, workers="thread", tensors=False))
print("torch" in sys.modules)
"""
    assert run(program).stdout == "False\n"


@pytest.mark.parametrize("collation", ["wds.filters.default_collation_fn", "wds.pad()"])
def test_torch_may_be_imported_while_threads_make_arrays(make_shards, collation):
    program = f"""
import importlib, threading, numpy, webdataset as wds
dataset = wds.WebDataset({make_shards(1)!r}, shardshuffle=False).repeat().map(lambda sample: (numpy.zeros(3), 1))
dataset = dataset.batched(4, collation_fn={collation})
loader = iter(wds.WebLoader(dataset, batch_size=None, num_workers=2, workers="thread", tensors=False))
kinds = {{type(next(loader)[0])}}
importing = threading.Thread(target=importlib.import_module, args=["torch"])
importing.start()
while importing.is_alive():
    kinds.add(type(next(loader)[0]))
print(*(kind.__name__ for kind in kinds))
"""
    done = run(program)
    assert (done.stdout, done.stderr) == ("ndarray\n", "")


# -- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["thread", "process"])
def test_ctrl_c_stops_at_once(make_shards, workers):
    program = f"""
import sys, time, webdataset as wds
def slow(sample):
    if sample["__key__"] != "000000":
        time.sleep(1000)
    return sample["__key__"]
dataset = wds.WebDataset({make_shards(2)!r}).map(slow)
loader = wds.WebLoader(dataset, batch_size=None, num_workers=2, workers={workers!r})
try:
    for key in loader:
        print(key, flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdout.readline() == "000000\n"
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "stopped\n"
    assert process.returncode == 0
