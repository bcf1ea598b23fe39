"""The command widsindex."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import wids
from wids.commands import main


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
    assert [b".txt", b"'txt7'"] in [line.split() for line in capfdbinary.readouterr().out.splitlines()]
    assert main(["sample", "-c", "txt", out, "7"]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"txt7"
    assert main(["sample", "-r", "-p", out, "7"]) == 0
    assert b"'.cls': b'7'" in capfdbinary.readouterr().out
    assert main(["sample", "-c", "jpg", out, "7"]) == 1
    assert b".jpg" in capfdbinary.readouterr().err
    assert main(["sample", out, "99"]) == 1


def test_errors_are_one_line(tmp_path, capsys):
    assert main(["create", "-o", str(tmp_path / "l.json"), str(tmp_path / "gone.tar")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "gone.tar" in line
    assert not (tmp_path / "l.json").exists()
