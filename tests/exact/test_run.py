"""Exact epochs over the network: every byte once, one process reads for all workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import webdataset as wds
from exact_support import batched, exact, keys, urls

pytestmark = pytest.mark.usefixtures("own_cache")


def test_an_exact_epoch_over_http_reads_every_byte_once(nginx, folder):
    remote = [nginx.put(f"exact/{os.path.basename(path)}", Path(path).read_bytes()) for path in urls(folder, "equal")]
    dataset = wds.WebDataset(remote, exact=True, seed=1, lanes=8)
    local = exact(folder, "equal")
    assert [sample["__key__"] for sample in dataset] == [sample["__key__"] for sample in local]
    assert dataset.stats()["bytes_read"] <= sum(map(os.path.getsize, urls(folder, "equal")))


def test_one_process_reads_from_a_server_for_all_workers(nginx, folder):
    paths = urls(folder, "equal")
    remote = [nginx.put(f"exact/{os.path.basename(path)}", Path(path).read_bytes()) for path in paths]
    local = keys(batched(exact(folder, "equal"), 4))

    def make(workers, **options):
        dataset = batched(wds.WebDataset(remote, exact=True, seed=1, lanes=8), 4)
        return wds.WebLoader(dataset, batch_size=None, num_workers=workers, **options)

    loader = make(2)
    assert keys(loader) == local
    stats = loader.stats()
    assert stats["bytes_read"] <= sum(map(os.path.getsize, paths))
    assert stats["samples_read"] == 18
    run = iter(loader)
    before = [list(next(run)[0]) for _ in range(2)]
    state = loader.state_dict()
    run.close()
    other = make(1, multiprocessing_context="spawn")  # any number goes on from the state of two
    other.load_state_dict(state)
    assert before + keys(other) == keys(batched(exact(folder, "equal"), 4).set_epoch(1))


def fails(sample):
    raise ValueError(f"no good: {sample['__key__']}")


def test_an_error_in_a_worker_of_a_remote_dataset_has_its_place(nginx, folder):
    path = urls(folder, "one")[0]
    dataset = wds.WebDataset(nginx.put("exact/one.tar", Path(path).read_bytes()), exact=True).map(fails)
    with pytest.raises(ValueError, match="one0-") as caught:
        list(wds.WebLoader(dataset, batch_size=None, num_workers=1))
    assert any("worker 0" in note for note in caught.value.__notes__)
