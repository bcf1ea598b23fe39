"""Lists of shards, given or in files."""

from __future__ import annotations

import json
import os

import pytest

import wids
from webdataset import SecurityError, ShardError


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
    with pytest.raises(ShardError) as raised:
        wids.ShardListDataset(tmp_path / "list.json")
    assert raised.value.url == str(tmp_path / "list.json")


def test_a_list_that_names_itself_is_an_error(tmp_path):
    (tmp_path / "list.json").write_text(json.dumps({"datasets": [{"source_url": "list.json"}]}))
    with pytest.raises(ShardError, match="end") as raised:
        wids.ShardListDataset(tmp_path / "list.json")
    assert raised.value.url == str(tmp_path / "list.json")


def test_a_list_from_a_server_may_not_name_files(nginx):
    url = nginx.put("wids/list.json", json.dumps({"shardlist": [{"url": "/etc/x.tar", "nsamples": 1}]}).encode())
    with pytest.raises(SecurityError):
        wids.ShardListDataset(url)
