"""Catalogues: shards with their counts, saved, loaded, searched."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

import webdataset as wds
from webdataset import Catalogue
from webdataset.errors import ShardError
from webdataset.indices.catalogue import Shard
from webdataset.indices.files import StaleIndexError, index_place
from webdataset.indices.making import catalogue_of

pytestmark = pytest.mark.usefixtures("cache")


def test_names_in_the_cache_tell_no_secrets():
    url = "https://me:hush@host/a.tar?X-Amz-Signature=abc123&X-Amz-Expires=5"
    place = index_place(url, "cache")
    assert "-a.tar" in os.path.basename(place)
    assert not any(word in place for word in ("hush", "me:", "abc123"))
    assert index_place(url.replace("abc123", "def456"), "cache") == place
    assert index_place("https://host/b/a.tar", "cache") != place


def test_a_catalogue_finds_samples_by_number_and_key(make_shards):
    catalogue = wds.index(make_shards(3, samples=4))
    assert [catalogue.locate(i) for i in (0, 3, 4, 11)] == [(0, 0), (0, 3), (1, 0), (2, 3)]
    for wrong in (-1, 12):
        with pytest.raises(IndexError, match=f"{wrong} "):
            catalogue.locate(wrong)
    assert catalogue.find("000007") == 7
    with pytest.raises(KeyError, match="none"):
        catalogue.find("none")


def test_shards_without_samples_are_passed_over():
    catalogue = Catalogue([Shard("a", 0), Shard("b", 2), Shard("c", 0), Shard("d", 1)])
    assert [catalogue.locate(i) for i in range(3)] == [(1, 0), (1, 1), (3, 0)]
    assert Catalogue([]).total == 0


def test_a_catalogue_pickles_small(make_shards):
    catalogue = wds.index(make_shards(2, samples=1000))
    catalogue.find("001500")
    assert len(pickle.dumps(catalogue)) < 1000
    again = pickle.loads(pickle.dumps(catalogue))
    assert (again.total, again.index(1).key(0), again.fingerprint()) == (2000, "001000", catalogue.fingerprint())


def test_a_fingerprint_is_that_of_the_data_not_of_its_place(make_shards, tmp_path):
    shards = make_shards(2, samples=5)
    one = wds.index(shards)
    moved = []
    (tmp_path / "b").mkdir()
    for shard in shards:
        moved.append(str(tmp_path / "b" / os.path.basename(shard)))
        Path(moved[-1]).write_bytes(Path(shard).read_bytes())
    assert wds.index(moved).fingerprint() == one.fingerprint()
    assert wds.index(shards[::-1]).fingerprint() != one.fingerprint()
    assert wds.index(shards[:1]).fingerprint() != one.fingerprint()


def test_a_catalogue_is_saved_as_wids_json(make_shards, tmp_path):
    catalogue = wds.index(make_shards(2, samples=5))
    catalogue.save(tmp_path / "all.json")
    saved = json.loads((tmp_path / "all.json").read_text())
    assert saved["__kind__"] == "wids-shard-index-v1"
    assert (saved["wids_version"], saved["name"]) == (1, "all")
    assert saved["shardlist"][0]["url"] == "shard-000000.tar"
    assert (saved["shardlist"][0]["nsamples"], saved["shardlist"][0]["filesize"]) == (5, catalogue.sizes[0])
    again = Catalogue.load(tmp_path / "all.json")
    assert again.urls == catalogue.urls
    assert (again.fingerprint(), again.versions) == (catalogue.fingerprint(), catalogue.versions)
    assert wds.index(tmp_path / "all.json").total == catalogue_of(str(tmp_path / "all.json")).total == 10


def test_a_foreign_wids_file_is_read(make_shards, tmp_path):
    shards = make_shards(2, samples=5)
    listed = [{"url": os.path.basename(shard), "nsamples": 5, "md5sum": "x"} for shard in shards]
    (tmp_path / "w.json").write_text(json.dumps({"__kind__": "wids-shard-index-v1", "shardlist": listed}))
    catalogue = Catalogue.load(tmp_path / "w.json")
    assert (catalogue.total, catalogue.index(1).key(4)) == (10, "000009")
    (tmp_path / "w.json").write_text(json.dumps({"shardlist": listed, "base": str(tmp_path)}))
    assert Catalogue.load(tmp_path / "w.json").urls == shards


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"shardlist": 3}', '{"shardlist": [{"url": "a"}]}', '{"shardlist": ["a"]}']
)
def test_what_is_no_catalogue_is_an_error(tmp_path, text):
    (tmp_path / "w.json").write_text(text)
    with pytest.raises(ShardError, match="wids-shard-index-v1") as raised:
        Catalogue.load(tmp_path / "w.json")
    assert raised.value.url == str(tmp_path / "w.json")


def test_a_catalogue_that_promises_other_samples_is_an_error(make_shard, tmp_path):
    shard = make_shard(samples=5)
    (tmp_path / "w.json").write_text(json.dumps({"shardlist": [{"url": shard, "nsamples": 6}]}))
    with pytest.raises(StaleIndexError) as raised:
        Catalogue.load(tmp_path / "w.json").index(0)
    assert raised.value.url == shard


def test_a_list_from_a_server_may_not_name_files_or_commands(nginx):
    for url in ("/etc/passwd", "file:/etc/passwd", "pipe:ls"):
        listed = nginx.put("lists/w.json", json.dumps({"shardlist": [{"url": url, "nsamples": 1}]}).encode())
        with pytest.raises(wds.SecurityError):
            Catalogue.load(listed)
    listed = nginx.put("lists/w.json", json.dumps({"shardlist": [{"url": "b/a.tar", "nsamples": 1}]}).encode())
    assert Catalogue.load(listed).urls == [nginx.url("/lists/b/a.tar")]


def test_saved_catalogues_hold_no_secrets(tmp_path):
    signed = "https://me:hush@host/a.tar?X-Amz-Signature=abc123"
    Catalogue([Shard(signed, 1)]).save(tmp_path / "w.json")
    assert not any(word in (tmp_path / "w.json").read_text() for word in ("hush", "abc123"))


def test_only_some_indices_are_held_in_memory(make_shards, monkeypatch):
    monkeypatch.setattr("webdataset.indices.catalogue.SAMPLES_HELD", 10)
    catalogue = wds.index(make_shards(12, samples=2))
    for n in range(12):
        assert catalogue.index(n).key(0) == f"{2 * n:06d}"
    assert len(catalogue._held) == 8
