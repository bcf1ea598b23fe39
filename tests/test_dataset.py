"""WebDataset: from a list of shards to samples."""

from __future__ import annotations

import io
import json
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import webdataset as wds
from tests_support import tar_bytes
from webdataset import compat
from webdataset.errors import EmptyDatasetError, MissingShardError, ShardError, ShardWarning


def keys(dataset):
    return [sample["__key__"] for sample in dataset]


def png(value: int, size: tuple[int, int] = (4, 3)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def pictures(tmp_path):
    """A shard of three pictures with class and metadata."""
    path = tmp_path / "pictures.tar"
    files = []
    for i in range(3):
        files += [(f"{i}.png", png(i)), (f"{i}.cls", b"%d" % i), (f"{i}.json", json.dumps({"n": i}).encode())]
    path.write_bytes(tar_bytes(files))
    return str(path)


# -- lists of shards -------------------------------------------------------------------------------


def test_braces_lists_paths_and_folders_name_the_same_shards(make_shards, tmp_path):
    urls = make_shards(3, samples=2)
    expected = [f"{i:06d}" for i in range(6)]
    braces = str(tmp_path / "shard-{000000..000002}.tar")
    for given in (braces, urls, tuple(urls), [pathlib.Path(url) for url in urls], iter(urls), f"{tmp_path}/", tmp_path):
        assert keys(wds.WebDataset(given)) == expected


def test_two_lists_are_joined_by_colons(make_shards):
    urls = make_shards(2, samples=1)
    assert keys(wds.WebDataset("::".join(urls))) == ["000000", "000001"]


def test_a_dataset_of_urls_can_be_the_source(make_shards):
    urls = make_shards(2, samples=1)
    assert keys(wds.WebDataset(wds.SimpleShardList(urls))) == ["000000", "000001"]


def test_an_empty_list_is_an_error():
    with pytest.raises((ValueError, IndexError), match=r"empty|no "):
        list(wds.WebDataset([]))


def test_an_empty_folder_is_an_error_that_says_what_a_shard_is(tmp_path):
    with pytest.raises(EmptyDatasetError, match=r"no shards.*\.tar"):
        wds.WebDataset(f"{tmp_path}/")


def test_a_missing_shard_is_an_error_that_names_it(tmp_path):
    with pytest.raises(MissingShardError, match=r"gone\.tar"):
        list(wds.WebDataset(str(tmp_path / "gone.tar")))
    with pytest.raises(FileNotFoundError):
        list(wds.WebDataset(str(tmp_path / "gone.tar")))


def test_a_folder_where_a_shard_should_be_is_an_error(tmp_path):
    with pytest.raises(OSError, match="directory"):
        list(wds.WebDataset([str(tmp_path)]))


@pytest.mark.parametrize("content", [b"", b"PK\3\4" + bytes(600), b"<html>not found</html>", b"x" * 2000])
def test_what_is_no_tar_archive_is_an_error(tmp_path, content):
    path = tmp_path / "bad.tar"
    path.write_bytes(content)
    with pytest.raises(ShardError, match=r"bad\.tar"):
        list(wds.WebDataset(str(path)))


def test_a_json_file_is_no_list_of_shards():
    with pytest.raises(ValueError, match="give the shards' urls"):
        wds.WebDataset("index.json")


def test_an_unknown_argument_is_refused(make_shard):
    with pytest.raises(TypeError, match="shardshufle"):
        wds.WebDataset(make_shard(), shardshufle=1)


# -- order -----------------------------------------------------------------------------------------


def shard_orders(urls, epochs=3, **kw):
    dataset = wds.WebDataset(urls, shardshuffle=100, **kw)
    return [[sample["__url__"] for sample in dataset] for _ in range(epochs)]


def test_the_shard_order_changes_every_epoch_and_is_given_by_the_seed(make_shards):
    urls = make_shards(6, samples=1)
    orders = shard_orders(urls, seed=1)
    assert orders == shard_orders(urls, seed=1)
    assert len({tuple(order) for order in orders}) == 3
    assert orders != shard_orders(urls, seed=2)
    assert all(sorted(order) == urls for order in orders)


def test_the_shard_order_is_the_same_in_every_process(make_shards):
    urls = make_shards(6, samples=1)
    program = (
        "import sys, webdataset as wds\nd = wds.WebDataset(sys.argv[1:], shardshuffle=100, seed=1)\n"
        "print([[s['__url__'] for s in d] for _ in range(3)])"
    )
    for hash_seed in ("0", "1", "random"):
        out = subprocess.run(
            [sys.executable, "-c", program, *urls],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert out.stdout.strip() == str(shard_orders(urls, seed=1))


def test_set_epoch_chooses_the_order(make_shards):
    urls = make_shards(6, samples=1)
    orders = shard_orders(urls, seed=1)
    dataset = wds.WebDataset(urls, shardshuffle=100, seed=1).set_epoch(2)
    assert [sample["__url__"] for sample in dataset] == orders[2]


def test_the_seed_may_come_from_the_environment(make_shards, monkeypatch):
    urls = make_shards(6, samples=1)
    expected = shard_orders(urls, seed=5)
    monkeypatch.setenv("WDS_SEED", "5")
    assert shard_orders(urls) == expected
    assert shard_orders(urls, detshuffle=True) == expected


def test_shardshuffle_true_and_shardshuffle_with_resampling_give_a_warning(make_shards):
    urls = make_shards(2, samples=1)
    with pytest.warns(UserWarning, match="100"):
        wds.WebDataset(urls, shardshuffle=True)
    with pytest.warns(UserWarning, match="no effect"):
        wds.WebDataset(urls, resampled=True, shardshuffle=10)


def test_resampling_is_endless_and_works_on_many_nodes(make_shards, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    dataset = wds.WebDataset(make_shards(2, samples=1), resampled=True).slice(50)
    assert set(keys(dataset)) == {"000000", "000001"}


def test_repeat_reads_the_shards_again(make_shard):
    dataset = wds.WebDataset(make_shard(samples=2), repeat=True)
    items = iter(dataset)
    assert [next(items)["__key__"] for _ in range(5)] == ["000000", "000001", "000000", "000001", "000000"]


# -- nodes and workers -----------------------------------------------------------------------------


def test_several_nodes_need_a_splitter(make_shards, monkeypatch):
    urls = make_shards(4, samples=1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="nodesplitter"):
        list(wds.WebDataset(urls))
    assert keys(wds.WebDataset(urls, nodesplitter=wds.split_by_node)) == ["000001", "000003"]


def test_workers_share_the_shards(make_shards, monkeypatch):
    urls = make_shards(3, samples=1)
    monkeypatch.setenv("NUM_WORKERS", "2")
    monkeypatch.setenv("WORKER", "0")
    assert keys(wds.WebDataset(urls)) == ["000000", "000002"]


def test_a_worker_without_a_shard_is_an_error_that_says_why(make_shards, monkeypatch):
    urls = make_shards(1, samples=1)
    monkeypatch.setenv("NUM_WORKERS", "2")
    monkeypatch.setenv("WORKER", "1")
    with pytest.raises(ValueError, match=r"worker 1 of 2.*no more workers than shards"):
        list(wds.WebDataset(urls))
    assert list(wds.WebDataset(urls, empty_check=False)) == []


def test_programs_may_replace_the_empty_check(make_shard, monkeypatch):
    dataset = wds.WebDataset(make_shard(samples=1))
    monkeypatch.setattr(compat, "check_empty", lambda source: ["replaced"])
    assert list(dataset) == ["replaced"]


# -- errors and strictness -------------------------------------------------------------------------


def test_stats_tell_what_was_read_and_skipped_and_why(make_shards, tmp_path):
    good = make_shards(2, samples=3)
    bad = tmp_path / "bad.tar"
    bad.write_bytes(b"x" * 1024)
    dataset = wds.WebDataset([*good, str(bad)], handler=wds.ignore_and_continue)
    assert len(list(dataset)) == 6
    stats = dataset.stats()
    assert (stats["shards_read"], stats["shards_skipped"], stats["samples_read"]) == (2, 1, 6)
    assert [reason.split(":")[0] for reason in stats["reasons"]] == ["ShardError"]


def test_strict_turns_a_skip_into_an_error(make_shard, tmp_path):
    with pytest.raises(MissingShardError):
        list(wds.WebDataset([make_shard(), str(tmp_path / "no.tar")], handler=wds.ignore_and_continue, strict=True))


def test_strict_turns_the_missing_end_marker_into_an_error(make_shard, monkeypatch):
    shard = make_shard(samples=1, end=False)
    with pytest.warns(ShardWarning, match="end marker"):
        assert len(list(wds.WebDataset(shard))) == 1
    with pytest.raises(ShardError, match="end marker"):
        list(wds.WebDataset(shard, strict=True))
    monkeypatch.setenv("WDS_STRICT", "1")
    with pytest.raises(ShardError, match="end marker"):
        list(wds.WebDataset(shard))


def test_a_handler_that_raises_is_heard(make_shard, tmp_path):
    def handler(exn):
        raise RuntimeError("told you") from exn

    with pytest.raises(RuntimeError, match="told you"):
        list(wds.WebDataset([str(tmp_path / "no.tar")], handler=handler))


def test_every_shard_failing_is_an_error_even_when_errors_are_skipped(tmp_path):
    with pytest.raises(ValueError, match="empty"):
        list(wds.WebDataset([str(tmp_path / "no.tar")], handler=wds.ignore_and_continue))


# -- the fluent interface --------------------------------------------------------------------------


def test_the_first_example_of_the_readme(pictures):
    dataset = wds.WebDataset(pictures).shuffle(1000).decode("rgb8").to_tuple("jpg;png", "json").batched(2)
    images, infos = next(iter(dataset))
    assert images.shape == (2, 3, 4, 3)
    assert {info["n"] for info in infos} <= {0, 1, 2}


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


def test_a_dataset_pickles_and_reads_the_same(make_shards):
    dataset = wds.WebDataset(make_shards(2, samples=2)).shuffle(10, seed=3).decode().to_tuple("cls", "txt").batched(2)
    copy = pickle.loads(pickle.dumps(dataset))
    first, second = list(dataset), list(copy)
    assert [b[0].tolist() for b in first] == [b[0].tolist() for b in second]


def test_a_dataset_is_a_context_manager(make_shard):
    with wds.WebDataset(make_shard(samples=1)) as dataset:
        assert keys(dataset) == ["000000"]


def test_attributes_can_be_set_on_datasets(make_shard):
    dataset = wds.WebDataset(make_shard())
    dataset.num_batches = 7
    assert dataset.compose().num_batches == 7


# -- older constructors ----------------------------------------------------------------------------


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


def test_a_decoder_and_a_processor_take_a_dataset(pictures):
    def my_png_decoder(key, value):
        return "picture" if key.endswith(".png") else None

    dataset = wds.Decoder(my_png_decoder, wds.torch_video)(wds.WebDataset(pictures))
    assert [s["png"] for s in dataset] == ["picture"] * 3
    dataset = wds.Processor(wds.map, lambda s: s["cls"])(wds.WebDataset(pictures))
    assert list(dataset) == [b"0", b"1", b"2"]
