"""What a shuffle held is read again sample by sample, where that can be."""

from __future__ import annotations

import gzip
import json
import os
from itertools import islice
from typing import Any

import pytest

import webdataset as wds
from tests_support import tar_bytes
from webdataset import tariterators
from webdataset.resume import picking

SAMPLES, BYTES = 40, 50_000


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for number in range(6):
        files = [(f"{number}-{n:02d}.bin", bytes([n]) * BYTES) for n in range(SAMPLES)]
        (folder / f"{number}.tar").write_bytes(tar_bytes(files))
    return [str(folder / f"{number}.tar") for number in range(6)]


def named(sample: dict[str, Any]) -> tuple[str, int]:
    return sample["__key__"], len(sample["bin"])


def without_threes(sample: dict[str, Any]) -> bool:
    return bool(sample["__key__"][-1] != "3")


def streamed(urls: list[str], **options: Any) -> Any:
    return wds.WebDataset(urls, **options).shuffle(60, seed=1).map(named)


def resumed_after(count: int, make: Any) -> tuple[Any, list[Any], list[Any]]:
    """A dataset that was taken up after some items, what it gives, and what the other one gives."""
    dataset = make()
    items = iter(dataset)
    for _ in range(count):
        next(items)
    other = make()
    other.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
    return other, list(other), list(items)


@pytest.mark.parametrize("count", [1, 59, 100, 150, 200, 239])
def test_a_shuffled_stream_of_large_samples_goes_on(shards, count):
    _, found, expected = resumed_after(count, lambda: streamed(shards))
    assert found == expected
    assert len(found) == 6 * SAMPLES - count


@pytest.mark.parametrize("indexed", [False, True])
def test_whole_shards_are_not_read_again(shards, indexed, monkeypatch):
    opened = []
    if indexed:
        wds.index(shards, where="cache")
    read = picking._read

    def noted(url: str, index: Any, wanted: Any, *args: Any) -> Any:
        opened.append((url, len(wanted)))
        return read(url, index, wanted, *args)

    monkeypatch.setattr(picking, "_read", noted)
    _, found, expected = resumed_after(170, lambda: streamed(shards))
    assert found == expected
    assert len(opened) >= 2
    assert sum(count for _, count in opened) < 60


@pytest.mark.parametrize(
    "change",
    [
        lambda urls: streamed(urls, select_files=lambda name: True, rename_files=lambda name: name),
        lambda urls: (
            wds.WebDataset(urls).select(lambda sample: sample["__key__"][-1] != "3").shuffle(60, seed=1).map(named)
        ),
        lambda urls: wds.WebDataset(urls).rename(bin="bin").shuffle(60, seed=1).map(named),
        lambda urls: wds.WebDataset(urls, keys=lambda name: tuple(name.rsplit(".", 1))).shuffle(60, seed=1).map(named),
        lambda urls: wds.DataPipeline(
            wds.SimpleShardList(urls), wds.tarfile_to_samples(), wds.shuffle(60, seed=1), wds.map(named)
        ),
    ],
)
def test_all_ways_of_reading_go_on(shards, change):
    for count in (60, 170, 210):
        _, found, expected = resumed_after(count, lambda: change(shards))
        assert found == expected


def test_compressed_shards_are_read_as_a_whole(shards, tmp_path):
    urls = []
    for number, shard in enumerate(shards):
        with open(shard, "rb") as file:
            (tmp_path / f"{number}.tar.gz").write_bytes(gzip.compress(file.read(), 1))
        urls.append(str(tmp_path / f"{number}.tar.gz"))
    _, found, expected = resumed_after(170, lambda: streamed(urls))
    assert found == expected


def test_a_shard_that_a_program_opens_in_its_own_way_is_opened_so_again(shards, monkeypatch):
    opener, opened = tariterators.url_opener, []

    def noting(data: Any, handler: Any = None, **options: Any) -> Any:
        for sample in data:
            opened.append(sample["url"])
            yield from opener(iter([sample]), handler=handler, **options)

    monkeypatch.setattr(tariterators, "url_opener", noting)
    dataset = streamed(shards)
    list(islice(dataset, 170))
    state = dataset.state_dict()
    opened.clear()
    other = streamed(shards)
    other.load_state_dict(state)
    next(iter(other))
    assert len(opened) > 2


def test_samples_of_a_server_are_read_by_ranges(nginx, shards):
    urls = []
    for shard in shards:
        with open(shard, "rb") as file:
            urls.append(nginx.put(f"picking/{os.path.basename(shard)}", file.read()))
    wds.index(urls)
    _, found, expected = resumed_after(170, lambda: streamed(urls))
    assert found == expected
