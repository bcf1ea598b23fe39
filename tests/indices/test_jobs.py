"""Indices made by other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import webdataset as wds
from webdataset.errors import ShardWarning
from webdataset.indices import making

pytestmark = pytest.mark.usefixtures("cache")


def kept(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.glob("*.wdx"))


def test_other_processes_help_where_it_is_worth_it(make_shard, make_shards, monkeypatch):
    monkeypatch.setattr(making, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(making, "WORTH_SECONDS", 0.0)
    shards = make_shards(12, samples=3)
    make_shard(os.path.basename(shards[6]), samples=3, end=False)
    Path(shards[5]).write_bytes(b"\x1f\x8b" + b"x" * 2048)
    seen, told = [], []
    with pytest.warns(ShardWarning, match="end marker"):
        catalogue = wds.index(
            shards, jobs=2, handler=lambda exn: seen.append(exn) or True, progress=lambda *args: told.append(args[0])
        )
    assert catalogue.urls == [shard for number, shard in enumerate(shards) if number != 5]
    assert catalogue.total == 33
    assert told == list(range(1, 13))
    assert [(type(exn), exn.url) for exn in seen] == [(wds.ShardError, shards[5])]
    assert all(os.path.exists(f"{shard}.wdx") for shard in catalogue.urls)


def test_a_killed_helper_is_an_error_that_names_the_shard(make_shards, monkeypatch):
    monkeypatch.setattr("webdataset.indices.jobs.CODE", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(making, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(making, "WORTH_SECONDS", 0.0)
    shards = make_shards(6, samples=2)
    with pytest.raises(wds.StorageError, match="killed") as raised:
        wds.index(shards, jobs=2)
    assert raised.value.url in shards


def test_eight_processes_make_each_index_once(make_shards, tmp_path, cache):
    shards = make_shards(5, samples=200)
    log = tmp_path / "log"
    code = f"""
import webdataset as wds
from webdataset.indices import files
make = files.make_index
def counted(url, rules, **options):
    with open({str(log)!r}, "a") as file:
        file.write(url + "\\n")
    return make(url, rules, **options)
files.make_index = counted
catalogue = wds.index({shards!r}, where="cache", jobs=1)  # no helpers, however slow the machine is: they do not count
assert catalogue.total == 1000, catalogue
assert [catalogue.index(n).samples for n in range(5)] == [200] * 5
"""
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
    assert sorted(log.read_text().split()) == shards
    assert len(kept(cache)) == 5
