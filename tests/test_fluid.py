"""The filters as methods."""

from __future__ import annotations

import json

import pytest

import webdataset as wds
from samples import keys, png
from tests_support import tar_bytes


@pytest.fixture
def pictures(tmp_path):
    """A shard of three pictures with class and metadata."""
    path = tmp_path / "pictures.tar"
    files = []
    for i in range(3):
        files += [(f"{i}.png", png(i)), (f"{i}.cls", b"%d" % i), (f"{i}.json", json.dumps({"n": i}).encode())]
    path.write_bytes(tar_bytes(files))
    return str(path)


def test_fluent_methods_return_new_datasets(pictures):
    dataset = wds.WebDataset(pictures)
    assert dataset.decode("rgb") is not dataset
    assert len(dataset.pipeline) + 1 == len(dataset.decode("rgb").pipeline)
    assert dataset.shuffle(0) is dataset


def test_every_fluent_method_works(pictures, tmp_path):
    dataset = wds.WebDataset(pictures).decode("rgb8")
    assert list(dataset.map(lambda s: s["cls"])) == [0, 1, 2]
    assert list(dataset.to_tuple("cls").map_tuple(lambda x: x + 1)) == [(1,), (2,), (3,)]
    assert [s["cls"] for s in dataset.map_dict(cls=str)] == ["0", "1", "2"]
    assert keys(dataset.select(lambda s: s["cls"] > 0)) == ["1", "2"]
    assert [s["label"] for s in dataset.rename(label="cls")] == [0, 1, 2]
    assert keys(dataset.slice(1, 3)) == ["1", "2"]
    assert [len(b) for b in dataset.listed(2)] == [2, 1]
    assert keys(dataset.listed(2).unlisted()) == ["0", "1", "2"]
    assert [len(b[0]) for b in dataset.to_tuple("cls").batched(2)] == [2, 1]
    assert list(dataset.to_tuple("cls").batched(2).unbatched()) == [(0,), (1,), (2,)]
    assert keys(dataset.pipe(lambda src: (s for s in src if s["cls"] == 1))) == ["1"]
    assert keys(dataset.then(lambda src, n: (s for s in src if s["cls"] == n), 2)) == ["2"]
    assert [s["extra"] for s in dataset.associate(lambda key: {"extra": key})] == ["0", "1", "2"]
    assert keys(dataset.rsample(1.0)) == ["0", "1", "2"]
    assert list(dataset.extract_keys("*.cls")) == [(0,), (1,), (2,)]
    assert [s["label"] for s in dataset.rename_keys(label="cls", keep_unselected=True)] == [0, 1, 2]
    assert keys(dataset.mcached()) == ["0", "1", "2"]
    assert keys(dataset.to_tuple("__key__", "cls").ddp_equalize(2).map(lambda t: {"__key__": t[0]})) == ["0", "1"]
    cached = dataset.to_tuple("cls").dbcache(str(tmp_path / "cache.db"), 3)
    assert sorted(cached) == sorted(cached) == [(0,), (1,), (2,)]


def test_a_dataset_can_be_tried_out_with_checks_and_made_up_samples(make_shard):
    seen = []
    dataset = wds.WebDataset(make_shard(samples=2)).test(length=5, checker=seen.append)
    assert (len(dataset), keys(dataset), len(seen)) == (5, ["000000", "000001"], 2)
    mocked = wds.WebDataset("nowhere.tar").test(mock_sample={"__key__": "x"}, mock_length=3, mock=True)
    assert keys(mocked) == ["x", "x", "x"]


def test_a_decoder_and_a_processor_take_a_dataset(pictures):
    def my_png_decoder(key, value):
        return "picture" if key.endswith(".png") else None

    dataset = wds.Decoder(my_png_decoder, wds.torch_video)(wds.WebDataset(pictures))
    assert [s["png"] for s in dataset] == ["picture"] * 3
    dataset = wds.Processor(wds.map, lambda s: s["cls"])(wds.WebDataset(pictures))
    assert list(dataset) == [b"0", b"1", b"2"]
