"""What frameworks see of a loader."""

from __future__ import annotations

import pickle
import sys
import weakref
from types import ModuleType

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import webdataset as wds
from webdataset.loading import frameworks


def key_of(sample):
    return sample["__key__"]


@pytest.fixture(params=["process", "thread"])
def loader(request, make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=5), shardshuffle=10, seed=1).map(key_of)
    return wds.WebLoader(dataset, batch_size=4, num_workers=1, workers=request.param, collate_fn=list)


def test_a_loader_is_taken_for_a_dataloader(loader):
    assert isinstance(loader, DataLoader)
    assert isinstance(loader, IterableDataset)
    assert isinstance(loader, wds.WebLoader)
    assert DataLoader in loader.__class__.__mro__
    assert isinstance(loader.dataset, IterableDataset)
    assert not hasattr(loader.dataset, "dataset")
    assert isinstance(loader.unbatched(), DataLoader)


def test_it_has_the_attributes_of_a_dataloader(loader):
    for name in vars(DataLoader([1])):
        if not name.startswith("_") and name != "dataset_kind":
            assert hasattr(loader, name), name


def test_a_dataloader_made_from_its_attributes_gives_the_same_batches(loader):
    composed = loader.unlisted().listed(3)
    expected = list(composed)
    composed.set_epoch(0)
    names = ["dataset", "batch_size", "num_workers", "collate_fn", "drop_last", "pin_memory", "timeout", "generator"]
    rebuilt = DataLoader(**{name: getattr(composed, name) for name in names})
    assert list(rebuilt) == expected


def test_a_loader_made_again_from_its_variables_gives_the_same_batches(loader):
    expected = list(loader.set_epoch(0))
    told = {name: vars(loader)[name] for name in ("dataset", "batch_size")}
    assert list(type(loader)(**told, sampler=None, batch_sampler=None).set_epoch(0)) == expected
    sized = loader.with_length(3, silent=True)
    assert len(type(sized)(vars(sized)["dataset"], batch_size=None)) == 3
    assert len(sized.dataset) == 3


def test_what_was_said_to_the_loader_later_counts_too(loader):
    loader.set_epoch(0).with_epoch(2)
    assert len(list(loader.dataset)) == 2
    assert len(list(vars(loader)["dataset"])) == 2


def test_a_length_is_there_only_where_it_is_known(loader):
    assert not hasattr(loader, "__len__")
    assert not hasattr(loader.dataset, "__len__")
    assert len(loader.with_length(7, silent=True).dataset) == 7


def test_the_epoch_may_be_told_to_the_sampler_and_to_the_dataset(loader):
    orders = [list(loader.set_epoch(epoch)) for epoch in range(4)]
    assert len({str(order) for order in orders}) > 1
    for tell in (loader.sampler.set_epoch, loader.dataset.set_epoch):
        for epoch in (2, 0, 3):
            tell(epoch)
            assert list(loader) == orders[epoch]


def test_a_loader_goes_when_the_last_one_lets_it_go(loader, make_shards):
    one = wds.WebLoader(wds.WebDataset(make_shards(1)), batch_size=None, workers="thread")
    gone = weakref.ref(one)
    assert one.dataset is not None
    del one
    assert gone() is None


def test_a_loader_can_be_pickled(make_shards):
    dataset = wds.WebDataset(make_shards(1, samples=3)).map(key_of)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=2, workers="thread")
    assert list(pickle.loads(pickle.dumps(loader))) == ["000000", "000001", "000002"]


def test_default_collation_gives_tensors(make_shards):
    dataset = wds.WebDataset(make_shards(1, samples=4)).decode().to_tuple("cls")
    (batch,) = next(iter(wds.WebLoader(dataset, batch_size=4, num_workers=1, workers="thread").dataset))
    assert torch.equal(batch, torch.tensor([0, 1, 2, 3]))


def test_batches_of_rounds_come_on_the_device_too(make_shards, monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", ModuleType("accelerate"))
    monkeypatch.setattr(frameworks, "_on_the_device", lambda batches: (f"{key} on the device" for key in batches))
    dataset = wds.WebDataset(make_shards(1, samples=2)).map(key_of)
    loader = wds.WebLoader(dataset, batch_size=None, workers="thread").with_epoch(3)
    assert loader._is_accelerate_prepared
    assert list(loader) == [f"{key} on the device" for key in ("000000", "000001", "000000")]
