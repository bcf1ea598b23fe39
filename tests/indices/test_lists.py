"""What is known of many shards at once."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import webdataset as wds
from tests_support import tar_bytes
from webdataset.indices import files as indexfiles
from webdataset.indices import lists as indexlists


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    monkeypatch.setattr(indexlists, "MANY", 3)
    return tmp_path / "cache-home"


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(5):
        files = [(f"{number}-{n}.cls", b"7") for n in range(number + 1)]
        (folder / f"{number}.tar").write_bytes(tar_bytes(files))
    return [str(folder / f"{number}.tar") for number in range(5)]


def listed(shards: list[str]) -> Path:
    return Path(os.path.dirname(shards[0])) / "shards.wdx-list"


def test_folders_with_many_indexed_shards_get_a_list(shards, cache):
    wds.index(shards[:2])
    assert not listed(shards).exists()
    wds.index(shards)
    assert sorted(json.loads(listed(shards).read_text())["names"]) == [f"{number}.tar" for number in range(5)]


def test_no_index_is_opened_where_the_folder_knows_its_shards(shards, cache, monkeypatch):
    wds.index(shards)
    shutil.rmtree(cache)
    with monkeypatch.context() as patched:
        patched.setattr(indexfiles, "load_index", lambda place: pytest.fail(f"{place} was opened"))
        dataset = wds.WebDataset(shards, exact=True)
        assert len(dataset) == 15
    assert sorted(sample["__key__"] for sample in dataset) == sorted(f"{n}-{i}" for n in range(5) for i in range(n + 1))


def test_a_shard_that_has_changed_is_looked_up_by_itself(shards, cache):
    wds.index(shards)
    shutil.rmtree(cache)
    Path(shards[4]).write_bytes(tar_bytes([("new.cls", b"8")]))
    assert len(wds.WebDataset(shards, exact=True)) == 11


def test_a_list_knows_shards_that_were_indexed_at_other_times(shards, cache):
    wds.index(shards[:3])
    wds.index(shards[2:])
    assert len(json.loads(listed(shards).read_text())["names"]) == 5


def test_paths_may_be_relative(shards, cache, monkeypatch):
    monkeypatch.chdir(os.path.dirname(shards[0]))
    wds.index([os.path.basename(shard) for shard in shards])
    shutil.rmtree(cache)
    monkeypatch.setattr(indexfiles, "load_index", lambda place: pytest.fail(f"{place} was opened"))
    assert len(wds.WebDataset("{0..4}.tar", exact=True)) == 15
    assert len(wds.WebDataset(shards, exact=True)) == 15


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"names": ["0.tar"], "samples": ["x"], "sizes": [1], "versions": [null]}',
        '{"names": ["0.tar"], "samples": [-1], "sizes": [1], "versions": [null]}',
        '{"names": ["0.tar"], "samples": [1], "sizes": [1], "versions": [7]}',
        '{"names": ["0.tar"], "samples": [], "sizes": [1], "versions": [null]}',
        '{"names": [0], "samples": [1], "sizes": [1], "versions": [null]}',
    ],
)
def test_a_damaged_list_is_as_good_as_none(shards, text):
    listed(shards).write_text(text)
    assert len(wds.WebDataset(shards, exact=True)) == 15


def test_a_list_that_lies_is_noticed_when_the_shard_is_read(shards, cache):
    wds.index(shards)
    shutil.rmtree(cache)
    told = json.loads(listed(shards).read_text())
    told["samples"][0] += 1
    listed(shards).write_text(json.dumps(told))
    with pytest.raises(wds.ShardError) as raised:
        list(wds.WebDataset(shards, exact=True))
    assert raised.value.url == shards[0]


def test_a_folder_that_may_only_be_read_is_no_error(shards, cache, monkeypatch):
    def refused(path: str, data: bytes) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(indexlists, "write_whole", refused)
    assert wds.index(shards).total == 15
