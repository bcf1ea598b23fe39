"""The constructor arguments of the first versions."""

from __future__ import annotations

import io
import json
import pathlib

import numpy as np
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


def test_version_1_reads_tuples_and_decodes_to_float_rgb(pictures):
    items = list(wds.WebDataset(pictures, extensions="jpg;png cls"))
    assert [(image.dtype, image.shape, label) for image, label in items] == [
        (np.float32, (3, 4, 3), i) for i in range(3)
    ]


def test_version_1_transforms_one_function_per_field_used_again_from_the_start(pictures):
    def plus(n):
        return lambda x: x + n

    assert list(wds.WebDataset(pictures, extensions="cls cls cls", transforms=[plus(10), plus(20)], decoder=True))[
        1
    ] == (
        11,
        21,
        11,
    )


def test_version_1_without_extensions_gives_dicts(pictures):
    samples = list(wds.WebDataset(pictures, decoder="pil"))
    assert samples[0]["png"].size == (4, 3)
    assert samples[0]["__key__"] == "0"
    assert next(iter(wds.WebDataset(pictures, decoder=None)))["cls"] == b"0"


def test_version_1_gives_none_for_a_missing_field(pictures):
    assert next(iter(wds.WebDataset(pictures, extensions="cls txt"))) == (0, None)


def test_version_1_shuffles_samples_and_shards(make_shards):
    urls = make_shards(4, samples=5)
    read = [key for (key,) in wds.WebDataset(urls, extensions="__key__", shuffle=100)]
    assert sorted(read) == [f"{i:06d}" for i in range(20)]
    assert read != sorted(read)


def test_version_1_skips_errors_on_request(make_shard, tmp_path):
    urls = [str(tmp_path / "no.tar"), make_shard(samples=2)]
    assert keys(wds.WebDataset(urls, errors=False)) == ["000000", "000001"]
    with pytest.warns(UserWarning, match=r"no\.tar"):
        assert keys(wds.WebDataset(urls, errors="warn")) == ["000000", "000001"]


def test_version_1_has_a_length_an_associate_table_a_pipeline_and_an_opener(make_shard):
    shard = make_shard(samples=2)
    table = {"000000": {"x": 1}, "000001": {"x": 2}}
    dataset = wds.WebDataset(
        "anything",
        associate=table,
        pipeline=lambda src: (s for s in src if s["x"] == 2),
        length=2,
        opener=lambda url: io.BytesIO(pathlib.Path(shard).read_bytes()),
    )
    assert len(dataset) == 2
    assert keys(dataset) == ["000001"]
    assert keys(wds.WebDataset(shard, opener="cat {}")) == ["000000", "000001"]


def test_version_1_reads_records_from_container_files(make_shard):
    shard = make_shard(files=[("a.json", b'{"cls": 3}'), ("b.json", b'{"cls": 4}')])
    assert [s["cls"] for s in wds.WebDataset(shard, container="json", decoder=None)] == [3, 4]


def test_the_first_fluid_version_is_called_dataset(pictures):
    dataset = wds.Dataset(pictures, length=100, shard_selection=wds.worker_urls)
    dataset = dataset.shuffle(10).decode("pil").to_tuple("jpg;png;jpeg cls").map_tuple(lambda x: x, None)
    assert len(dataset) == 100
    assert sorted(label for _, label in dataset) == [0, 1, 2]
