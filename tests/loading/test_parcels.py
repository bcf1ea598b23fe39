"""Batches of worker processes in shared memory: nothing that is held is overwritten, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import webdataset as wds
from waiting import soon
from webdataset.base.memory import Memory
from webdataset.errors import WorkerError
from webdataset.loading import parcels
from webdataset.loading.parcels import Packing, Parcel, SharedBlock, packed

pytestmark = pytest.mark.skipif(not parcels.can_share(), reason="this system cannot share memory without names")


def shared(item):
    """An item as it arrives, and the parcel in which it came."""
    memory = Memory(SharedBlock)
    parcel = packed(item, memory)
    function, args = parcel.__reduce__()
    return function(*args), memory


def numbers(count, workers):
    """A pipeline whose workers give arrays of their numbers."""

    def mine():
        info = torch.utils.data.get_worker_info()
        return iter(range(count) if info is None else range(info.id, count, info.num_workers))

    return wds.DataPipeline(mine, wds.map(lambda n: (np.full((256, 1024), n), n)), wds.batched(2))


def values(batch):
    return batch[0][:, 0, 0].tolist()


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_are_held_stay_as_they_are_also_after_the_workers_have_ended(persistent):
    loader = wds.WebLoader(numbers(40, 2), batch_size=None, num_workers=2, persistent_workers=persistent)
    held = [batch for _ in range(2) for batch in loader]
    assert sorted(n for batch in held for n in values(batch)) == sorted([*range(40)] * 2)
    assert all(batch[0].min(dim=2).values.tolist() == batch[0].max(dim=2).values.tolist() for batch in held)
    for batch in held:
        batch[0].zero_()  # they are the program's own
    assert all(not batch[0].any() for batch in held)


def test_memory_of_batches_that_are_dropped_is_used_again():
    loader = wds.WebLoader(numbers(400, 2), batch_size=None, num_workers=2)
    places = {batch[0].data_ptr() for batch in loader}
    assert len(places) <= 16


def test_the_last_batch_of_a_loop_outlives_those_after_it():
    kept = {}
    for n, batch in enumerate(wds.WebLoader(numbers(80, 2), batch_size=None, num_workers=2)):
        if n % 7 == 0:
            kept[tuple(values(batch))] = batch[0]
    assert all(tuple(tensor[:, 5, 5].tolist()) == expected for expected, tensor in kept.items())


def test_a_child_of_the_loaders_process_does_not_give_its_batches_back():
    item, memory = shared(np.arange(1 << 18))
    child = os.fork()
    if child == 0:
        del item
        os._exit(0)
    os.waitpid(child, 0)
    assert not memory.blocks[0].is_free
    del item
    assert memory.blocks[0].is_free


def test_a_block_is_free_only_when_the_worker_does_not_use_it_either():
    memory = Memory(SharedBlock)
    array = memory.array((1 << 20,), np.uint8)
    function, args = packed([array], memory).__reduce__()
    arrived = function(*args)
    assert np.shares_memory(array, memory.blocks[0].memory)
    assert len(memory.blocks) == 2  # the array was not copied; the other is for what is pickled
    del arrived
    assert not memory.blocks[0].is_free
    del array
    assert memory.blocks[0].is_free


ITEMS = {
    "nested": {"a": [np.arange(50_000), {"b": torch.arange(50_000.0)}], "c": "text", "d": None},
    "bytes": [b"x" * 100_000, "y" * 1000],
    "types": [torch.arange(20_000).to(kind) for kind in (torch.uint8, torch.int64, torch.float16, torch.bfloat16)],
    "complex": torch.arange(20_000) * 1j,
    "empty": [torch.ones(0, 3), np.ones((0,)), torch.tensor(3), np.array(4.0), torch.arange(20_000)],
    "strings": [np.array(["a", "bc"]), torch.arange(20_000)],
    "objects": [np.array([{}, 1], dtype=object), torch.arange(20_000)],
}


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_arrives_as_it_was(name):
    def same(one, other):
        assert type(one) is type(other)
        if isinstance(one, (list, tuple)):
            assert len(one) == len(other)
            [same(*pair) for pair in zip(one, other, strict=True)]
        elif isinstance(one, dict):
            assert list(one) == list(other)
            [same(one[key], other[key]) for key in one]
        elif isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
        elif isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        else:
            assert one == other

    same(shared(ITEMS[name])[0], ITEMS[name])


def test_the_layout_of_a_tensor_is_kept():
    image = torch.rand(4, 3, 64, 64).to(memory_format=torch.channels_last)
    arrived, _ = shared(image)
    assert arrived.stride() == image.stride()
    assert torch.equal(arrived, image)


def test_what_arrives_can_be_written_to():
    arrived, _ = shared([np.zeros(100_000), torch.zeros(100_000)])
    arrived[0][5] = arrived[1][5] = 1


def test_what_only_torch_can_send_is_left_to_it():
    memory = Memory(SharedBlock)
    for item in (
        torch.ones(100_000, requires_grad=True),
        torch.ones(300, 300).to_sparse(),
        torch.nn.Parameter(torch.ones(100_000)),
        [torch.ones(100_000), lambda: 0],
    ):
        assert packed(item, memory) is item
    assert memory.blocks == []


def test_without_files_for_further_blocks_torch_sends_the_items():
    def refused(size):
        raise OSError("too many open files")

    memory = Memory(refused)
    item = [memory.array((1 << 20,), np.uint8)]
    assert packed(item, memory) is item


def test_small_items_go_through_the_pipe():
    assert packed((torch.ones(10), "a"), Memory(SharedBlock)) == (pytest.approx(torch.ones(10)), "a")


def test_nothing_is_packed_outside_of_workers():
    assert isinstance(Packing(lambda samples: np.ones(100_000), None)([]), np.ndarray)
    assert isinstance(packed(np.ones(100_000), Memory(SharedBlock)), Parcel)


def test_a_loader_within_a_worker_of_another_gives_its_items_as_they_are():
    inner = wds.WebLoader(numbers(8, 1).compose(), batch_size=None, num_workers=0)
    outer = wds.WebLoader(wds.DataPipeline(lambda: iter(inner)), batch_size=None, num_workers=1)
    assert [values(batch) for batch in outer] == [[n, n + 1] for n in range(0, 8, 2)]


def test_spawned_workers_share_their_memory_too():
    loader = wds.WebLoader(Arrays(), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [int(array[0]) for array in loader] == [0, 1, 2]
    assert {place[0] for place in parcels._maps} <= {os.getpid()}  # those of a worker that has ended are forgotten


class Arrays(torch.utils.data.IterableDataset):
    def __iter__(self):
        return (np.full(1 << 20, n) for n in range(3))


@pytest.fixture
def no_news_of_children(monkeypatch):
    """torch raises an error for a worker that was killed wherever the main thread is, also in a test's own lines."""
    monkeypatch.setattr("torch.utils.data._utils.signal_handling._SIGCHLD_handler_set", True)
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("no_news_of_children")
def test_no_file_is_left_and_no_memory_kept_when_workers_are_killed():
    others = {place[0] for place in parcels._maps}  # of loaders that have not been collected
    loader = wds.WebLoader(numbers(4000, 2), batch_size=None, num_workers=2)
    before = set(os.listdir("/dev/shm"))
    batches = iter(loader)
    held = next(batches)
    (worker, *_) = {place[0] for place in parcels._maps} - others
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(WorkerError, match="SIGKILL"):
        for _ in batches:
            pass
    assert values(held) == [0, 2]
    parcels.forget_dead_workers()
    assert worker not in {place[0] for place in parcels._maps}
    assert not {name for name in set(os.listdir("/dev/shm")) - before if "webdataset" in name}


def open_blocks(process):
    """The files of a worker's blocks."""
    files = Path(f"/proc/{process}/fd").iterdir()
    return [int(file.name) for file in files if "memfd:webdataset" in str(file.resolve())]


def ends_slowly(pid_file):
    """Two items, of which one still waits for the loader when the files of this process are closed."""
    pid_file.write_text(str(os.getpid()))
    yield np.zeros(1 << 20)
    yield np.ones(1 << 20)
    for file in open_blocks("self"):
        os.close(file)
    time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("no_news_of_children")
def test_a_worker_whose_files_are_gone_before_it_has_ended_is_named(tmp_path):
    pid = tmp_path / "pid"
    loader = wds.WebLoader(wds.DataPipeline(lambda: ends_slowly(pid)), batch_size=None, num_workers=1)
    items = iter(loader)
    next(items)  # and the worker goes on after the second
    assert soon(lambda: not open_blocks(int(pid.read_text())), 20)
    with pytest.raises(WorkerError, match="SIGKILL"):
        next(items)
