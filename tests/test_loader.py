"""Worker processes: torch's DataLoader, WebLoader and MultiLoader."""

from __future__ import annotations

import operator
import os
import pickle
import signal

import pytest
import torch
from torch.utils.data import DataLoader

import webdataset as wds
from webdataset.multi import MultiLoader

METHODS = {"fork": 2, "spawn": 1, "forkserver": 2}
"""Workers by how they are started; one that is spawned takes two seconds of CPU time to import torch."""


def key_of(sample):
    return sample["__key__"]


def keys(loader):
    return sorted(loader)


@pytest.mark.parametrize(("method", "workers"), METHODS.items())
def test_workers_read_every_sample_once(make_shards, method, workers):
    dataset = wds.WebDataset(make_shards(4, samples=3)).shuffle(5).map(key_of)
    loader = DataLoader(dataset, num_workers=workers, batch_size=None, multiprocessing_context=method)
    assert keys(loader) == [f"{i:06d}" for i in range(12)]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_dataset_with_a_length_goes_to_workers(make_shards, method):
    dataset = wds.WebDataset(make_shards(2, samples=2)).map(key_of).with_length(4, silent=True)
    loader = DataLoader(dataset, num_workers=2, batch_size=None, multiprocessing_context=method)
    assert len(loader) == 4
    assert len(keys(loader)) == 4


@pytest.mark.parametrize(
    ("method", "persistent"),
    [("fork", False), ("fork", True), ("forkserver", False), ("forkserver", True)],
)
def test_the_shard_order_changes_every_epoch_in_workers_too(make_shards, method, persistent):
    dataset = wds.WebDataset(make_shards(12, samples=1), shardshuffle=100, seed=7).map(key_of)
    loader = DataLoader(
        dataset, num_workers=2, batch_size=None, multiprocessing_context=method, persistent_workers=persistent
    )
    orders = [list(loader) for _ in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_the_order_in_workers_is_the_same_with_persistent_and_new_workers(make_shards):
    def orders(persistent):
        dataset = wds.WebDataset(make_shards(12, samples=1), shardshuffle=100, seed=7).map(key_of)
        loader = DataLoader(dataset, num_workers=2, batch_size=None, persistent_workers=persistent)
        return [list(loader) for _ in range(3)]

    assert orders(False) == orders(True)


def test_the_loader_batches_again_after_mixing_the_workers_batches(make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=6)).decode().to_tuple("cls", "txt").batched(4)
    loader = wds.WebLoader(dataset, num_workers=2, batch_size=None).unbatched().shuffle(100).batched(5)
    batches = list(loader)
    assert [len(labels) for labels, _ in batches] == [5, 5, 2]
    assert sorted(int(x) for labels, _ in batches for x in labels) == list(range(12))


def test_the_loader_has_epochs_and_a_length(make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=2)).map(key_of)
    loader = wds.WebLoader(dataset, num_workers=0, batch_size=None).with_epoch(7)
    assert len(list(loader)) == 7
    with pytest.raises(TypeError):
        len(loader)
    assert len(loader.with_length(7, silent=True)) == 7


def test_attributes_can_be_set_on_loaders(make_shards):
    loader = wds.WebLoader(wds.WebDataset(make_shards(1)), batch_size=None)
    loader.num_batches, loader.num_samples = 3, 30
    assert (loader.num_batches, loader.num_samples) == (3, 30)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_loader_knows_what_its_workers_read_and_dropped(make_shards, tmp_path, workers):
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"x" * 1024)
    urls = [*make_shards(3, samples=4), str(bad)]
    dataset = wds.WebDataset(urls, handler=wds.ignore_and_continue).map(key_of)
    loader = wds.WebLoader(dataset, num_workers=workers, batch_size=None)
    for _ in range(2):
        assert len(list(loader)) == 12
        stats = loader.stats()
        assert (stats["samples_read"], stats["shards_read"], stats["shards_skipped"]) == (12, 3, 1)


def test_the_folder_for_reports_goes_with_the_loader(make_shards, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    loader = wds.WebLoader(wds.WebDataset(make_shards(2)).map(key_of), num_workers=2, batch_size=None)
    list(loader)
    assert [name for name in os.listdir(tmp_path / "temporary") if name.startswith("webdataset-")] != []
    del loader
    assert os.listdir(tmp_path / "temporary") == []


def test_an_error_in_a_worker_arrives_with_its_place(make_shards):
    urls = make_shards(2)
    with open(urls[1], "r+b") as file:
        file.truncate(5000)
    loader = DataLoader(wds.WebDataset(urls).map(key_of), num_workers=2, batch_size=None)
    with pytest.raises(Exception, match=r"shard-000001\.tar"):
        list(loader)


def fail_at_three(sample):
    return 1 // (int(sample["__key__"]) - 3)


class Unpicklable(Exception):
    def __init__(self, sample):
        super().__init__("no way")
        self.itself = lambda: sample


def fail_unpicklably(sample):
    raise Unpicklable(sample)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_an_error_in_a_worker_process_is_the_same_error(make_shards, method):
    urls = make_shards(2)
    with open(urls[1], "r+b") as file:
        file.truncate(5000)
    loader = wds.WebLoader(
        wds.WebDataset(urls).map(key_of), num_workers=2, batch_size=None, multiprocessing_context=method
    )
    with pytest.raises(wds.ShardError) as caught:
        list(loader)
    assert (caught.value.url, caught.value.offset) == (urls[1], 5000)
    (note,) = caught.value.__notes__
    assert "worker 1" in note.partition("\n")[0]
    assert "Traceback" in note


def test_an_error_in_a_users_function_tells_sample_worker_and_traceback(make_shards):
    urls = make_shards(1)
    loader = wds.WebLoader(wds.WebDataset(urls).map(fail_at_three), num_workers=1, batch_size=None)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError) as caught:
            list(loader)
        (note,) = caught.value.__notes__
        for word in ("fail_at_three", "000003", urls[0]):
            assert word in note


def test_an_error_that_cannot_be_pickled_arrives_as_torch_tells_it(make_shards):
    loader = wds.WebLoader(wds.WebDataset(make_shards(1)).map(fail_unpicklably), num_workers=1, batch_size=None)
    with pytest.raises(Exception, match="no way"):
        list(loader)


def kill_yourself(sample):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_killed_worker_is_named(make_shards, method):
    dataset = wds.WebDataset(make_shards(2)).map(kill_yourself)
    loader = wds.WebLoader(dataset, num_workers=1, batch_size=None, multiprocessing_context=method)
    with pytest.raises(wds.WorkerError, match=r"worker 0 .*SIGKILL") as caught:
        list(loader)
    assert isinstance(caught.value, RuntimeError)


def test_a_killed_worker_is_an_error(make_shards):
    loader = DataLoader(wds.WebDataset(make_shards(2)).map(kill_yourself), num_workers=1, batch_size=None)
    with pytest.raises(RuntimeError, match="worker"):
        list(loader)
    with pytest.raises(wds.WebDatasetError, match="-9"):
        list(MultiLoader(wds.WebDataset(make_shards(2)).map(kill_yourself), workers=1))


def test_a_consumer_may_stop_after_one_sample(make_shards):
    loader = wds.WebLoader(wds.WebDataset(make_shards(2, samples=100)).map(key_of), num_workers=2, batch_size=None)
    for _ in range(2):
        items = iter(loader)
        assert next(items) == "000000"
        items.close()


@pytest.mark.parametrize(("method", "workers"), METHODS.items())
def test_the_loader_without_torch_reads_every_sample_once(make_shards, method, workers):
    dataset = wds.WebDataset(make_shards(4, samples=3)).map(key_of)
    assert keys(MultiLoader(dataset, workers=workers, start_method=method)) == [f"{i:06d}" for i in range(12)]


def test_the_loader_without_torch_passes_errors_on(make_shards):
    dataset = wds.WebDataset(make_shards(2)).map(lambda sample: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        list(MultiLoader(dataset, workers=2))


def test_tensors_are_batched_by_torchs_own_collation(make_shards):
    dataset = wds.WebDataset(make_shards(1, samples=4)).decode().to_tuple("cls")
    (batch,) = next(iter(DataLoader(dataset, batch_size=4)))
    assert torch.equal(batch, torch.tensor([0, 1, 2, 3]))


def test_a_pickled_copy_of_a_dataset_that_was_read_goes_its_own_way(make_shards):
    def dataset():
        return wds.WebDataset(make_shards(12, samples=1), shardshuffle=100, seed=7).map(key_of)

    first, second, third = (list(read) for one in [dataset()] for read in (one, one, one))
    original = dataset()
    assert list(original) == first
    copy = pickle.loads(pickle.dumps(original))
    assert [list(copy), list(copy), list(original)] == [second, third, second]


@wds.pipelinefilter(per_sample=True)
def each_twice(data):
    for item in data:
        yield from (item, item)


@wds.pipelinefilter(per_sample=True)
def each_once(data):
    yield from data


def test_a_stage_after_the_loader_that_makes_several_items_of_one_has_no_state(make_shards):
    dataset = wds.WebDataset(make_shards(1, samples=4)).map(operator.itemgetter("__key__"))
    loader = wds.WebLoader(dataset, batch_size=None, workers="thread")
    once, twice = loader.compose(each_once()), loader.compose(each_twice())
    assert list(once) == ["000000", "000001", "000002", "000003"]
    assert once.state_dict()["kind"] == "threads"
    assert list(twice)[:3] == ["000000", "000000", "000001"]
    with pytest.raises(wds.StateError, match="each_twice"):
        twice.state_dict()


def test_a_loader_of_batches_that_batches_them_again_warns(make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=3)).decode().to_tuple("__key__").batched(3)
    with pytest.warns(UserWarning, match="batch_size=None") as caught:
        wds.WebLoader(dataset)
    assert caught[0].filename == __file__
    wds.WebLoader(dataset, batch_size=None)
    wds.WebLoader(dataset.unbatched(), batch_size=4)
    wds.WebLoader(dataset, collate_fn=list)


@pytest.mark.parametrize("workers", ["thread", "process"])
@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("exact", [False, True])
def test_batches_of_batches_are_warned_of_wherever_they_are_made(make_shards, own_cache, workers, batch_size, exact):
    more = {"exact": True} if exact else {"shardshuffle": False}
    dataset = wds.WebDataset(make_shards(2, samples=3), **more).decode().to_tuple("__key__")
    made = [dataset.batched(3), dataset.listed(2), wds.FluidWrapper(dataset.batched(3)), dataset.batched(3).map(len)]
    if not exact:  # where such a mixture is an error
        made += [wds.RandomMix([dataset.batched(3), dataset]), wds.DataPipeline(wds.RoundRobin([dataset.batched(3)]))]
    for one in made:
        with pytest.warns(UserWarning, match="batch_size=None"):
            wds.WebLoader(one, batch_size=batch_size, workers=workers)


def test_paths_may_begin_at_home(make_shard, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "data"
    folder.mkdir()
    os.rename(make_shard(samples=2), folder / "a.tar")
    for urls in ("~/data/a.tar", "~/data/*.tar", "~/data/", ["~/data/{a,a}.tar"]):
        assert sum(1 for _ in wds.WebDataset(urls)) in (2, 4)
    assert len(wds.WebDataset("~/data/", exact=True)) == len(wds.WebDataset("~/data/a.tar", exact=True)) == 2
    with wds.TarWriter("~/data/b.tar") as sink:
        sink.write({"__key__": "k", "txt": "hello"})
    assert (folder / "b.tar").exists()
