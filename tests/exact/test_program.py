"""Exact epochs on real shards: every sample once, on any number of ranks and workers."""

from __future__ import annotations

import json
import os
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

import webdataset as wds
from exact_support import SIZES, batched, exact, flat, keys, total, urls
from tests_support import tar_bytes

pytestmark = pytest.mark.usefixtures("own_cache")


# -- every sample once -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
def test_every_rank_gives_as_many_batches_and_every_sample_comes_once(folder, monkeypatch, name, world):
    for workers, size, remainder in product((0, 2, 3), (1, 2, 4, 7), ("pad", "drop", "uneven")):
        seen, counts, repeated, dropped = Counter(), set(), 0, 0
        for rank in range(world):
            dataset = batched(exact(folder, name, rank=rank, world_size=world, remainder=remainder), size)
            plan = dataset.plan()
            repeated, dropped = plan.repeated, plan.dropped
            batches = 0
            for worker in range(max(1, workers)):
                if workers:
                    monkeypatch.setenv("WORKER", str(worker))
                    monkeypatch.setenv("NUM_WORKERS", str(workers))
                for batch in keys(dataset.set_epoch(0)):
                    seen.update(batch)
                    batches += 1
            monkeypatch.delenv("WORKER", raising=False)
            monkeypatch.delenv("NUM_WORKERS", raising=False)
            counts.add(batches)
            assert batches == len(dataset)
        assert len(counts) == 1
        assert sum(seen.values()) == total(name) + repeated - dropped
        assert len(seen) == total(name) - dropped
        if remainder == "pad":
            assert repeated <= world - 1


@pytest.mark.parametrize(
    ("workers", "kind"), [(0, "process"), (2, "process"), (0, "thread"), (1, "thread"), (4, "thread")]
)
def test_loaders_give_the_order_of_one_process(folder, workers, kind):
    dataset = batched(exact(folder), 3)
    serial = [keys(dataset) for _ in range(2)]
    loader = wds.WebLoader(batched(exact(folder), 3), batch_size=None, num_workers=workers, workers=kind)
    assert len(loader) == 7
    assert [keys(loader) for _ in range(2)] == serial
    assert serial[0] != serial[1]
    assert sorted(flat(serial[0])) == sorted(flat(serial[1]))


def test_persistent_workers_go_on_to_the_next_epoch(folder):
    dataset = batched(exact(folder), 3)
    serial = [keys(dataset) for _ in range(3)]
    options = {"batch_size": None, "num_workers": 2, "persistent_workers": True}
    loader = wds.WebLoader(batched(exact(folder), 3), **options)
    assert [keys(loader) for _ in range(3)] == serial


def test_spawned_workers_give_the_same(folder):
    dataset = batched(exact(folder), 3)
    options = {"batch_size": None, "num_workers": 1, "multiprocessing_context": "spawn"}
    assert keys(wds.WebLoader(batched(exact(folder), 3), **options)) == keys(dataset)


def test_the_loaders_own_batches_are_the_plans(folder):
    loader = wds.WebLoader(exact(folder).to_tuple("__key__"), batch_size=3, num_workers=2)
    assert keys(loader) == keys(batched(exact(folder), 3))
    whole = wds.WebLoader(exact(folder, remainder="drop").to_tuple("__key__"), batch_size=3, drop_last=True)
    assert [len(batch) for batch in keys(whole)] == [3] * 6 == [3] * len(whole)


def test_a_plain_dataloader_gives_every_sample_once(folder):
    from torch.utils.data import DataLoader

    for workers, size in product((0, 1, 2), (None, 4)):
        loader = DataLoader(exact(folder).to_tuple("__key__"), batch_size=size, num_workers=workers)
        found = [key for (item,) in loader for key in ([item] if size is None else item)]
        assert Counter(Counter(found).values()) == {1: 20}


def test_one_shard_keeps_all_workers_busy_and_is_read_once(folder, monkeypatch):
    read, shares = 0, []
    for rank, worker in product(range(8), range(2)):
        monkeypatch.setenv("WORKER", str(worker))
        monkeypatch.setenv("NUM_WORKERS", "2")
        dataset = exact(folder, "one", rank=rank, world_size=8, lanes=64)
        shares.append(len(list(dataset)))
        read += dataset.stats()["bytes_read"]
    assert min(shares) >= 1
    assert sum(shares) == 24
    # every sample is less than the gap that is read over, in a shard as small as this
    assert read <= 1.1 * 16 * os.path.getsize(urls(folder, "one")[0])


def test_many_ranks_read_no_more_than_the_shard(tmp_path, monkeypatch):
    path = tmp_path / "big.tar"
    path.write_bytes(tar_bytes([(f"{i:04d}.bin", bytes(60_000)) for i in range(256)]))
    read = 0
    for rank, worker in product(range(8), range(4)):
        monkeypatch.setenv("WORKER", str(worker))
        monkeypatch.setenv("NUM_WORKERS", "4")
        dataset = wds.WebDataset(str(path), exact=True, rank=rank, world_size=8)
        assert len(list(dataset)) == 8
        read += dataset.stats()["bytes_read"]
    assert read <= 1.1 * path.stat().st_size


def test_the_global_batches_are_the_same_on_1_2_3_and_4_ranks(folder):
    def batches(world):
        ranks = [keys(batched(exact(folder, rank=rank, world_size=world), 12 // world)) for rank in range(world)]
        return [sorted(flat(step)) for step in zip(*ranks, strict=True)]

    assert batches(1)[0] == batches(2)[0] == batches(3)[0] == batches(4)[0]
    assert len(batches(1)) == len(batches(4)) == 2


def test_rank_and_world_size_come_from_the_environment(folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    found = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        found += [sample["__key__"] for sample in exact(folder)]
    assert Counter(Counter(found).values()) == {1: 20}


def test_an_unshuffled_epoch_has_the_order_of_the_shards(folder):
    plain = [sample["__key__"] for sample in wds.WebDataset(urls(folder))]
    assert [sample["__key__"] for sample in exact(folder, shuffle_bytes=0)] == plain


def test_samples_are_those_of_streaming(folder):
    def comparable(sample):
        return sorted((name, value) for name, value in sample.items())

    streamed = sorted(map(comparable, wds.WebDataset(urls(folder))))
    assert sorted(map(comparable, exact(folder))) == streamed


def test_uneven_epochs_mark_what_is_real(folder):
    found = [
        (sample["__key__"], sample["__real__"])
        for rank in range(3)
        for sample in exact(folder, rank=rank, world_size=3, remainder="uneven")
    ]
    assert len(found) == 21
    assert Counter(Counter(key for key, real in found if real).values()) == {1: 20}


def test_repeats_are_counted(folder):
    dataset = batched(exact(folder, rank=2, world_size=3), 4)
    list(dataset)
    plan = dataset.plan()
    assert plan.repeated == 1
    counted = 0
    for rank in range(3):
        one = batched(exact(folder, rank=rank, world_size=3), 4)
        list(one)
        counted += one.stats().get("samples_repeated", 0)
    assert counted == 1


# -- faults ----------------------------------------------------------------------------------------


def test_a_shard_that_changed_since_it_was_indexed_is_an_error(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([(f"{i}.cls", b"1") for i in range(10)]))
    dataset = wds.WebDataset(str(path), exact=True)
    assert len(list(dataset)) == 10
    path.write_bytes(tar_bytes([(f"{i}.cls", b"2") for i in range(9)]))
    with pytest.raises(wds.ShardError, match="changed") as raised:
        list(dataset)
    assert raised.value.url == str(path)


def test_a_handler_may_leave_out_what_cannot_be_read(tmp_path):
    paths = []
    for name in "ab":
        paths.append(tmp_path / f"{name}.tar")
        paths[-1].write_bytes(tar_bytes([(f"{name}{i}.cls", b"1") for i in range(10)]))
    dataset = wds.WebDataset([str(path) for path in paths], exact=True, handler=wds.ignore_and_continue)
    os.truncate(paths[1], 2048)
    assert sorted(sample["__key__"][0] for sample in dataset) == ["a"] * 10
    assert dataset.stats()["samples_dropped"] == 10


def test_compressed_shards_and_commands_are_refused_with_the_cure(tmp_path):
    import gzip

    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(tar_bytes([("a.cls", b"1")])))
    with pytest.raises(wds.ShardError, match="compressed"):
        wds.WebDataset(str(path), exact=True)
    with pytest.raises(wds.ShardError) as raised:
        wds.WebDataset(f"pipe:cat {path}", exact=True)
    assert "cache_dir" in raised.value.hint


def test_the_output_of_a_command_is_read_from_its_copy(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_bytes([(f"{i}.cls", b"1") for i in range(10)]))
    dataset = wds.WebDataset(f"pipe:cat {path}", exact=True, cache_dir=str(tmp_path / "cache"))
    assert len(list(dataset)) == 10
    assert dataset[3]["__key__"] == "3"


def test_options_that_do_not_go_together(folder):
    with pytest.raises(ValueError, match="resampled"):
        wds.WebDataset(urls(folder), exact=True, resampled=True)
    for wrong in ("yes", 1, None):
        with pytest.raises(ValueError, match="exact"):
            wds.WebDataset(urls(folder), exact=wrong)
    with pytest.raises(ValueError, match="wrap"):
        exact(folder, remainder="wrap")
    with pytest.raises(ValueError, match="world_size="):
        exact(folder, rank=1)
    with pytest.raises(ValueError, match="partial=False"):
        list(batched(exact(folder, remainder="uneven"), 3, partial=False))
    with pytest.raises(ValueError, match="lots"):
        exact(folder, shuffle_bytes="lots")


def test_shards_are_named_in_all_the_usual_ways(folder, tmp_path):
    for path in urls(folder):
        (tmp_path / os.path.basename(path)).symlink_to(path)
    ways = [str(tmp_path) + "/", tmp_path, f"{folder}/uneven-{{000000..000002}}.tar", f"{folder}/uneven-*.tar"]
    ways += [Path(urls(folder)[0]), wds.SimpleShardList(urls(folder)), wds.index(urls(folder))]
    assert [len(wds.WebDataset(way, exact=True)) for way in ways] == [20, 20, 20, 20, 7, 20, 20]
    with pytest.raises(TypeError, match="list"):
        wds.WebDataset(wds.ResampledShards(urls(folder)), exact=True)
    with pytest.raises(wds.MissingShardError):
        wds.WebDataset(str(tmp_path / "nowhere.tar"), exact=True)


def test_too_few_samples_for_all_ranks_is_said(folder):
    dataset = exact(folder, rank=0, world_size=21, remainder="drop")
    with pytest.raises(wds.EmptyDatasetError, match=r"20 samples .* 21 ranks"):
        list(dataset)
    with pytest.raises(wds.EmptyDatasetError, match="shards"):
        wds.WebDataset([], exact=True)


def test_too_few_samples_for_whole_batches_is_said(folder):
    with pytest.raises(wds.EmptyDatasetError, match="30"):
        list(batched(exact(folder, remainder="drop"), 30, partial=False))


def test_a_stage_that_is_replaced_takes_effect(folder):
    dataset = exact(folder).to_tuple("__key__")
    for size in range(1, 8):  # the stage before is gone, and a new one may stand at its place in memory
        dataset.pipeline[2:] = [wds.batched(size)]
        assert len(dataset) == -(-total("uneven") // size)


@pytest.mark.parametrize("known", [(), (1,), (0, 2)])
def test_a_list_need_not_tell_the_sizes_of_its_shards(folder, tmp_path, known):
    shards = [
        {"url": url, "nsamples": count} | ({"filesize": os.path.getsize(url)} if number in known else {})
        for number, (url, count) in enumerate(zip(urls(folder), SIZES["uneven"], strict=True))
    ]
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}))
    ranks = [wds.WebDataset(str(listed), exact=True, rank=rank, world_size=2, remainder="uneven") for rank in range(2)]
    given = [sample["__key__"] for data in ranks for sample in data]
    assert sorted(given) == sorted(sample["__key__"] for sample in exact(folder))
