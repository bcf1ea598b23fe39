"""WebDataset: from a list of shards to samples."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import subprocess
import sys

import pytest

import webdataset as wds
from samples import keys, png
from tests_support import tar_bytes
from webdataset import compat
from webdataset.errors import EmptyDatasetError, MissingShardError, ShardError, ShardWarning


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
    with pytest.raises(ValueError, match="empty"):
        list(wds.WebDataset([]))


def test_an_empty_folder_is_an_error_that_says_what_a_shard_is(tmp_path):
    with pytest.raises(EmptyDatasetError, match=r"\.tar"):
        wds.WebDataset(f"{tmp_path}/")


def test_a_missing_shard_is_an_error_that_names_it(tmp_path):
    with pytest.raises(MissingShardError) as raised:
        list(wds.WebDataset(str(tmp_path / "gone.tar")))
    assert (raised.value.url, raised.value.shard) == (str(tmp_path / "gone.tar"), 0)


def test_a_folder_where_a_shard_should_be_is_an_error(tmp_path):
    with pytest.raises(OSError, match="directory"):
        list(wds.WebDataset([str(tmp_path)]))


@pytest.mark.parametrize("content", [b"", b"PK\3\4" + bytes(600), b"<html>not found</html>", b"x" * 2000])
def test_what_is_no_tar_archive_is_an_error(tmp_path, content):
    path = tmp_path / "bad.tar"
    path.write_bytes(content)
    with pytest.raises(ShardError) as raised:
        list(wds.WebDataset(str(path)))
    assert raised.value.url == str(path)


def test_a_json_file_is_no_list_of_shards():
    with pytest.raises(ValueError, match="urls"):
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
    with pytest.warns(UserWarning, match="resampled"):
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
    with pytest.raises(ValueError, match="worker 1 of 2"):
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
    assert [reason.split(":")[0] for reason in stats["reasons"]] == ["NotATarError"]


def test_strict_turns_a_skip_into_an_error(make_shard, tmp_path):
    with pytest.raises(MissingShardError):
        list(wds.WebDataset([make_shard(), str(tmp_path / "no.tar")], handler=wds.ignore_and_continue, strict=True))


def test_strict_turns_the_missing_end_marker_into_an_error(make_shard, monkeypatch):
    shard = make_shard(samples=1, end=False)
    with pytest.warns(ShardWarning, match="marker"):
        assert len(list(wds.WebDataset(shard))) == 1
    with pytest.raises(ShardError, match="marker") as raised:
        list(wds.WebDataset(shard, strict=True))
    assert "strict=" in raised.value.hint
    monkeypatch.setenv("WDS_STRICT", "1")
    with pytest.raises(ShardError, match="marker"):
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
