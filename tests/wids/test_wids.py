"""wids: shards as a map-style dataset, its samplers, its command."""

from __future__ import annotations

import doctest
import importlib
import io
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import wids
from servers.faults import fault_proxy
from tests_support import numbered, tar_bytes
from webdataset import DecodingError, SecurityError, ShardError, TarWriter
from webdataset.errors import MissingShardError
from wids.commands import main


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WIDS_CACHE", raising=False)


@pytest.fixture
def shards(make_shards):
    return [{"url": shard, "nsamples": 5} for shard in make_shards(3, samples=5)]


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
            with pytest.raises(IndexError, match=f"sample {wrong} of a dataset with 15"):
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
    with pytest.raises(DecodingError, match=r"a\.tar.*key a.*field \.png"):
        wids.ShardListDataset([{"url": shard, "nsamples": 1}])[0]


def test_the_number_of_samples_must_be_right(shards):
    shards[1]["nsamples"] = 6
    with pytest.raises(ShardError, match="has 5 samples, the catalogue says 6"):
        wids.ShardListDataset(shards)[5]


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


# -- lists of shards ---------------------------------------------------------------------------------


def test_a_list_can_be_a_file(shards, tmp_path):
    listed = [{**shard, "url": os.path.basename(shard["url"])} for shard in shards]
    (tmp_path / "list.json").write_text(
        json.dumps({"__kind__": "wids-shard-index-v1", "name": "n", "shardlist": listed})
    )
    dataset = wids.ShardListDataset(str(tmp_path / "list.json"))
    assert (len(dataset), dataset[9][".cls"], dataset[9]["__dataset__"]) == (15, 9, "n")
    assert wids.ShardListDataset(listed, base=str(tmp_path))[9][".cls"] == 9


def test_a_list_can_be_made_of_lists(shards, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps({"shardlist": shards[:1]}))
    parts = [{"name": "a", "source_url": "one.json"}, {"name": "b", "shardlist": shards[1:]}]
    (tmp_path / "all.json").write_text(json.dumps({"datasets": parts}))
    assert len(wids.ShardListDataset(tmp_path / "all.json")) == 15
    part = wids.ShardListDataset(tmp_path / "all.json", dataset_name="b")
    assert (len(part), part[0]["__dataset__"]) == (10, "b")


@pytest.mark.parametrize(
    "text", ["x", "[]", "{}", '{"__kind__": "other", "shardlist": []}', '{"shardlist": [{"url": 1}]}']
)
def test_what_is_no_list_is_an_error(tmp_path, text):
    (tmp_path / "list.json").write_text(text)
    with pytest.raises(ShardError, match=r"no wids-shard-index-v1|names no shards|each shard needs"):
        wids.ShardListDataset(tmp_path / "list.json")


def test_a_list_that_names_itself_is_an_error(tmp_path):
    (tmp_path / "list.json").write_text(json.dumps({"datasets": [{"source_url": "list.json"}]}))
    with pytest.raises(ShardError, match="without end"):
        wids.ShardListDataset(tmp_path / "list.json")


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
    (kept,) = (path for path in (tmp_path / "kept").iterdir() if path.name.startswith("kept-"))
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
    with pytest.raises(MissingShardError):
        dataset[0]
    assert not cached or not list((tmp_path / "kept").glob("gone*"))


def test_a_list_from_a_server_may_not_name_files(nginx):
    url = nginx.put("wids/list.json", json.dumps({"shardlist": [{"url": "/etc/x.tar", "nsamples": 1}]}).encode())
    with pytest.raises(SecurityError, match="data from elsewhere may not"):
        wids.ShardListDataset(url)


# -- samplers ----------------------------------------------------------------------------------------


def test_shards_are_shuffled_one_after_the_other(shards):
    sampler = wids.ShardedSampler(wids.ShardListDataset(shards))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(15))
    assert [sorted(first[n : n + 5]) for n in (0, 5, 10)] == [list(range(n, n + 5)) for n in (0, 5, 10)]
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert wids.ShardListSampler is wids.ShardedSampler


@given(
    total=st.integers(1, 60),
    chunk=st.integers(1, 70),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
    first=st.booleans(),
)
def test_a_chunked_sampler_gives_each_number_once(total, chunk, seed, epoch, first):
    sampler = wids.ChunkedSampler(range(total), chunksize=chunk, seed=seed, shufflefirst=first)
    sampler.set_epoch(epoch)
    numbers = list(sampler)
    assert (sorted(numbers), len(sampler)) == (list(range(total)), total)
    if epoch == 0 and not first:
        assert [number // chunk for number in numbers] == [number // chunk for number in range(total)]


def test_a_range_and_a_length_can_be_chosen():
    assert sorted(wids.ChunkedSampler(range(20), num_samples=(5, 12), chunksize=3)) == list(range(5, 12))
    assert sorted(wids.ChunkedSampler(range(20), num_samples=7)) == list(range(7))
    longer = wids.ChunkedSampler(range(4), dslength_per_replica=10, shuffle=False)
    assert (list(longer), len(longer)) == ([0, 1, 2, 3, 0, 1, 2, 3, 0, 1], 10)
    with pytest.raises(ValueError, match="0 <= start <= stop"):
        wids.ChunkedSampler(range(4), num_samples=(3, 2))


@given(total=st.integers(1, 50), ranks=st.integers(1, 7), shuffle=st.booleans())
def test_ranks_have_equal_parts_that_cover_all(total, ranks, shuffle):
    parts = [
        list(wids.DistributedChunkedSampler(range(total), num_replicas=ranks, rank=rank, shuffle=shuffle, chunksize=3))
        for rank in range(ranks)
    ]
    counts = Counter(chain.from_iterable(parts))
    assert len({len(part) for part in parts}) == 1
    assert set(counts) == set(range(total))
    assert sum(counts.values()) - total < ranks


def test_the_rest_can_be_dropped(monkeypatch):
    parts = [
        list(wids.DistributedChunkedSampler(range(20), num_replicas=3, rank=rank, shuffle=False, drop_last=True))
        for rank in range(3)
    ]
    assert parts == [[*range(6)], [*range(6, 12)], [*range(12, 18)]]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert list(wids.DistributedChunkedSampler(range(20), shuffle=False)) == [*range(5, 10)]


# -- the command -------------------------------------------------------------------------------------


def test_a_list_is_created_shown_and_changed(shards, tmp_path, capsys):
    out = str(tmp_path / "list.json")
    files = [shard["url"] for shard in shards]
    assert main(["create", "-n", "mine", "-i", "about it", "-o", out, *files]) == 0
    assert capsys.readouterr().out.split() == files
    listed = json.loads(Path(out).read_text())
    assert (listed["__kind__"], listed["wids_version"], listed["name"]) == ("wids-shard-index-v1", 1, "mine")
    assert [shard["nsamples"] for shard in listed["shardlist"]] == [5, 5, 5]
    assert listed["shardlist"][0]["filesize"] == os.path.getsize(files[0])
    assert len(listed["shardlist"][0]["md5sum"]) == 32
    assert len(wids.ShardListDataset(out)) == 15

    assert main(["update", "-n", "other", "--nodir", out]) == 0
    assert json.loads(Path(out).read_text())["shardlist"][1]["url"] == "shard-000001.tar"
    assert main(["info", out]) == 0
    told = capsys.readouterr().out
    assert "name: other" in told
    assert "total samples: 15" in told
    assert main(["update", "-d", "http://host/data", out]) == 0
    assert json.loads(Path(out).read_text())["shardlist"][1]["url"] == "http://host/data/shard-000001.tar"
    assert main(["info", "-t", out]) == 0
    assert capsys.readouterr().out.split("\t")[1:4] == ["other", "3", "15"]


def test_a_base_is_taken_off_the_urls(shards, tmp_path):
    out = str(tmp_path / "list.json")
    assert main(["create", "-b", str(tmp_path), "-o", out, "shard-{000000..000002}.tar"]) == 0
    listed = json.loads(Path(out).read_text())
    assert (listed["base"], listed["shardlist"][2]["url"]) == (str(tmp_path), "shard-000002.tar")
    assert wids.ShardListDataset(out)[14][".cls"] == 14


def test_a_sample_is_shown(shards, tmp_path, capfdbinary):
    out = str(tmp_path / "list.json")
    main(["create", "-o", out, *(shard["url"] for shard in shards)])
    capfdbinary.readouterr()
    assert main(["sample", out, "7"]) == 0
    assert b".txt                 'txt7'" in capfdbinary.readouterr().out
    assert main(["sample", "-c", "txt", out, "7"]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"txt7"
    assert main(["sample", "-r", "-p", out, "7"]) == 0
    assert b"'.cls': b'7'" in capfdbinary.readouterr().out
    assert main(["sample", "-c", "jpg", out, "7"]) == 1
    assert b"has no .jpg" in capfdbinary.readouterr().err
    assert main(["sample", out, "99"]) == 1


def test_errors_are_one_line(tmp_path, capsys):
    assert main(["create", "-o", str(tmp_path / "l.json"), str(tmp_path / "gone.tar")]) == 1
    assert capsys.readouterr().err.startswith("widsindex: no such file")
    assert not (tmp_path / "l.json").exists()
