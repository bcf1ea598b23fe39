"""Collation as torch does it, in memory that is used again."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

import webdataset as wds
from webdataset.filters import BatchError

Pair = namedtuple("Pair", "a b")

SAMPLES = {
    "numbers": [1, 2, 3],
    "floats": [1.5, 2.5],
    "texts": ["a", "b"],
    "bytes": [b"a", b"b"],
    "arrays": [np.full((2, 3), n) for n in range(3)],
    "arrays of one value": [np.array(n) for n in range(3)],
    "tensors": [torch.full((2, 3), n) for n in range(3)],
    "bools": [torch.tensor([True, False])] * 2,
    "tuples": [(n, str(n), np.full(2, n)) for n in range(3)],
    "lists": [[n, torch.full((2,), n)] for n in range(3)],
    "dicts": [{"a": n, "b": {"c": np.full(2, n, np.float32)}} for n in range(3)],
    "named tuples": [Pair(n, torch.ones(2)) for n in range(3)],
    "numpy's numbers": [np.float32(n) for n in range(3)],
}


def in_one_batch(samples):
    return wds.WebLoader(wds.FluidWrapper(samples), batch_size=len(samples), num_workers=1, workers="thread")


@pytest.mark.parametrize("name", SAMPLES)
def test_the_result_is_that_of_torch(name):
    def same(one, other):
        assert type(one) is type(other)
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
        elif isinstance(one, dict):
            assert one.keys() == other.keys()
            [same(one[key], other[key]) for key in one]
        elif isinstance(one, (list, tuple)):
            assert len(one) == len(other)
            [same(*pair) for pair in zip(one, other, strict=True)]
        else:
            assert one == other

    [batch] = in_one_batch(SAMPLES[name])
    same(batch, default_collate(SAMPLES[name]))


def arrays(count):
    return wds.FluidWrapper(range(count)).map(lambda n: (np.full((256, 1024), n), n))


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("own", [True, False])
def test_batches_of_threads_stay_as_they_are_while_they_are_held(workers, own):
    dataset = arrays(40) if own else arrays(40).batched(2)
    size = 2 if own else None
    held = list(wds.WebLoader(dataset, batch_size=size, num_workers=workers, workers="thread"))
    assert [batch[0][:, 0, 0].tolist() for batch in held] == [[n, n + 1] for n in range(0, 40, 2)]


@pytest.mark.parametrize("own", [True, False])
def test_the_memory_of_batches_that_are_dropped_is_used_again(own):
    dataset = arrays(200) if own else arrays(200).batched(2)
    loader = wds.WebLoader(dataset, batch_size=2 if own else None, num_workers=2, workers="thread")
    places = {batch[0].data_ptr() for batch in loader}
    assert len(places) <= 10


def test_samples_of_different_lengths_are_an_error():
    with pytest.raises(BatchError, match="numbers"):
        list(in_one_batch([(1, 2), (1,)]))


# -- tensors or arrays -----------------------------------------------------------------------------

LOADERS = [
    {"workers": workers, "num_workers": count, "batch_size": size, "exact": exact}
    for workers in ("thread", "process")
    for count in (0, 1)
    for size in (None, 2)
    for exact in (False, True)
]


def loader_of(shards, *, exact, batch_size, **options):
    more = {"exact": True} if exact else {"shardshuffle": False}
    dataset = wds.WebDataset(shards, **more).decode().to_tuple("cls", "npy")
    dataset = dataset.batched(2) if batch_size is None else dataset
    return wds.WebLoader(dataset, batch_size=batch_size, **options)


@pytest.fixture
def shards(tmp_path, own_cache):
    with wds.ShardWriter(str(tmp_path / "%d.tar"), maxcount=2) as writer:
        for n in range(4):
            writer.write({"__key__": str(n), "cls": n, "npy": np.full(3, n, "float32")})
    return str(tmp_path / "{0..1}.tar")


@pytest.mark.parametrize("options", LOADERS)
def test_arrays_become_tensors_unless_they_are_to_stay(shards, options):
    for chosen, kind in [({}, torch.Tensor), ({"tensors": True}, torch.Tensor), ({"tensors": False}, np.ndarray)]:
        labels, values = next(iter(loader_of(shards, **options, **chosen)))
        assert (type(labels), type(values)) == (kind, kind)
        assert (labels.tolist(), tuple(values.shape)) == ([0, 1], (2, 3)) or options["exact"]


@pytest.mark.parametrize("options", LOADERS)
def test_what_a_collation_of_the_programs_makes_stays_as_it_is(shards, options):
    labels, _ = next(iter(loader_of(shards, **options, collate_fn=columns)))
    assert type(labels) is np.ndarray
    with pytest.raises(ValueError, match="collate_fn"):
        loader_of(shards, **options, collate_fn=columns, tensors=True)


def columns(samples):
    return tuple(np.array(column) for column in (zip(*samples, strict=True) if isinstance(samples, list) else samples))


@pytest.mark.parametrize("first", ["", "import torch"])
def test_what_a_loader_gives_does_not_depend_on_when_torch_is_imported(shards, first):
    program = f"""if True:
        {first}
        import webdataset as wds
        dataset = wds.WebDataset({shards!r}, shardshuffle=False).decode().to_tuple("npy").batched(2)
        loaders = [wds.WebLoader(dataset, batch_size=None, workers="thread", tensors=one) for one in (None, False)]
        before = [type(next(iter(loader))[0]).__name__ for loader in loaders]
        import torch
        print(before == [type(next(iter(loader))[0]).__name__ for loader in loaders], *before)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "True Tensor ndarray\n", done.stderr


def test_tensors_is_a_choice_of_two(shards):
    with pytest.raises(ValueError, match="tensors"):
        loader_of(shards, exact=False, batch_size=None, tensors="yes")
