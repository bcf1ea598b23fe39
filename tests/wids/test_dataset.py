"""wids: shards as a map-style dataset, its samplers, its command."""

from __future__ import annotations

import doctest
import importlib
import io
import pickle
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
import torch
from PIL import Image

import wids
from servers.faults import fault_proxy
from tests_support import numbered, tar_bytes
from webdataset import DecodingError, ShardError, TarWriter
from webdataset.errors import MissingShardError


@pytest.mark.parametrize("name", ["wids", "wids.dataset", "wids.samplers", "wids.specs", "wids.commands", "wids.wids"])
def test_the_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


# -- the dataset -------------------------------------------------------------------------------------


def test_samples_have_numbers_and_know_where_they_are_from(shards):
    with wids.ShardListDataset(shards, dataset_name="mine") as dataset:
        assert len(dataset) == dataset.total_length == 15
        assert dataset[7] == {
            "__key__": "000007",
            ".cls": 7,
            ".txt": "txt7",
            "__dataset__": "mine",
            "__index__": 7,
            "__shard__": shards[1]["url"],
            "__shardindex__": 2,
        }
        assert [sample[".cls"] for sample in dataset] == list(range(15))
        assert (dataset[-1][".cls"], dataset[np.int64(3)][".cls"]) == (14, 3)
        assert (dataset.lengths, dataset.cum_lengths.tolist()) == ([5, 5, 5], [5, 10, 15])
        for wrong in (15, -16):
            with pytest.raises(IndexError, match=str(wrong)):
                dataset[wrong]


def test_fields_are_decoded_by_their_extension(tmp_path):
    fields = {"png": np.full((3, 4, 3), 255, np.uint8), "json": {"a": 1}, "npy": np.arange(3), "bin": b"\0\1"}
    with TarWriter(tmp_path / "a.tar") as sink:
        sink.write({"__key__": "x", **fields, "seg.png": fields["png"]})
    shards = [{"url": str(tmp_path / "a.tar"), "nsamples": 1}]
    sample = wids.ShardListDataset(shards)[0]
    assert isinstance(sample[".png"], Image.Image)
    assert (sample[".png"].size, sample[".seg.png"].size) == ((4, 3), (4, 3))
    assert (sample[".json"], sample[".npy"].tolist()) == ({"a": 1}, [0, 1, 2])
    assert isinstance(sample[".bin"], io.BytesIO)
    assert sample[".bin"].read() == b"\0\1"
    assert wids.ShardListDataset(shards, transformations="rgb8")[0][".png"].shape == (3, 4, 3)


def test_transformations_of_ones_own(shards):
    raw = wids.ShardListDataset(shards, transformations=None)
    assert raw[3][".cls"].read() == b"3"
    assert wids.ShardListDataset(shards, transformations=[])[3][".cls"].read() == b"3"
    twice = wids.ShardListDataset(shards).add_transform(lambda sample: {**sample, "twice": 2 * sample[".cls"]})
    assert twice[3]["twice"] == 6
    only = wids.ShardListDataset(shards, transformations=lambda sample: sample["__key__"])
    assert only[3] == "000003"


def test_a_bad_image_is_an_error_with_its_place(make_shard):
    shard = make_shard(files=[("a.png", b"no image")])
    with pytest.raises(DecodingError) as raised:
        wids.ShardListDataset([{"url": shard, "nsamples": 1}])[0]
    assert (raised.value.url, raised.value.key, raised.value.field) == (shard, "a", ".png")


def test_the_number_of_samples_must_be_right(shards):
    shards[1]["nsamples"] = 6
    with pytest.raises(ShardError, match="5 samples") as raised:
        wids.ShardListDataset(shards)[5]
    assert raised.value.url == shards[1]["url"]


def test_statistics_count_reads_and_shards(shards):
    dataset = wids.ShardListDataset(shards)
    for number in (0, 1, 7):
        dataset[number]
    assert dataset.get_stats() == (3, 2)
    dataset.close()


def test_a_dataset_goes_to_other_processes_and_into_a_loader(shards):
    dataset = wids.ShardListDataset(shards)
    assert pickle.loads(pickle.dumps(dataset))[7][".cls"] == 7
    loader = torch.utils.data.DataLoader(
        dataset,
        sampler=wids.ChunkedSampler(dataset, chunksize=4),
        num_workers=2,
        batch_size=3,
        collate_fn=lambda batch: [sample[".cls"] for sample in batch],
    )
    batches = list(loader)
    assert (len(loader), sorted(chain.from_iterable(batches))) == (5, list(range(15)))


def test_it_works_without_torch(shards):
    code = (
        f"import sys, wids; assert wids.ShardListDataset({shards!r})[3]['.cls'] == 3; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- over HTTP ---------------------------------------------------------------------------------------


def test_remote_shards_are_read_by_ranges(nginx):
    rows = [(f"{i:03d}.bin", bytes([i]) * 200_000) for i in range(20)]
    nginx.put("wids/a.tar", tar_bytes(rows))
    with fault_proxy(nginx.port) as proxy:
        shards = [{"url": proxy.url("/wids/a.tar"), "nsamples": 20}]
        wids.ShardListDataset(shards)[0]
        before = proxy.passed
        assert wids.ShardListDataset(shards)[7][".bin"].read(3) == bytes([7]) * 3
        assert proxy.passed - before < 203_000


def test_remote_shards_can_be_kept_whole(nginx, tmp_path, monkeypatch):
    nginx.put("wids/kept.tar", tar_bytes(numbered(50)))
    shards = [{"url": nginx.url("/wids/kept.tar"), "nsamples": 50}]
    assert wids.ShardListDataset(shards, cache_dir=str(tmp_path / "kept"))[7][".cls"] == 7
    (kept,) = (path for path in (tmp_path / "kept").iterdir() if path.name.endswith("-kept.tar"))
    assert kept.stat().st_size == (nginx.files / "wids/kept.tar").stat().st_size
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "other"))
    named = wids.ShardListDataset(shards, localname=lambda url: "mine.tar")
    assert named[7][".cls"] == 7
    assert (tmp_path / "other" / "mine.tar").exists()
    (nginx.files / "wids/kept.tar").unlink()
    assert named[8][".cls"] == 8


@pytest.mark.parametrize("cached", [True, False])
def test_an_error_page_is_no_shard(nginx, tmp_path, cached):
    shards = [{"url": nginx.url("/wids/gone.tar"), "nsamples": 5}]
    dataset = wids.ShardListDataset(shards, cache_dir=str(tmp_path / "kept") if cached else None)
    with pytest.raises(MissingShardError) as raised:
        dataset[0]
    assert (raised.value.url, raised.value.status) == (shards[0]["url"], 404)
    assert not cached or not list((tmp_path / "kept").glob("gone*"))
