"""A thousand shards later: no thread, no descriptor, no child process and no temporary file is left."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
from pathlib import Path

import pytest

import webdataset as wds
from leftovers import open_descriptors
from tests_support import numbered, tar_bytes
from waiting import soon

SHARDS = 1000
SHARD = tar_bytes(numbered(1))


@pytest.fixture
def left(request, tmp_path, monkeypatch):
    """`left()` is what there is more of than at the beginning of the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with wds.gopen("pipe:true") as stream:  # the guard of commands, once started, stays with the process
        stream.read()
    gc.collect()  # what other tests have left to it may keep connections open
    port = request.getfixturevalue("nginx").port if "nginx" in request.fixturenames else None
    before = _there(folder, port)

    def difference():
        gc.collect()
        # a server closes its ends of our connections, and a thread that has done its work ends, a moment later
        soon(lambda: all(_there(folder, port)[kind] <= before[kind] for kind in before))
        now = _there(folder, port)
        return {kind: now[kind] - before[kind] for kind in before if now[kind] > before[kind]}

    return difference


def _there(folder, port):
    children = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended meanwhile
            children += Path(task, "children").read_text().split()
    return {
        "threads": threading.active_count(),
        "descriptors": open_descriptors(port),
        "children": len(children),
        "temporary files": len(os.listdir(folder)),
    }


def count(urls, **options):
    return sum(1 for _ in wds.WebDataset(urls, shardshuffle=False, **options))


def test_after_a_thousand_files(tmp_path, left):
    (tmp_path / "a.tar").write_bytes(SHARD)
    assert count([str(tmp_path / "a.tar")] * SHARDS) == SHARDS
    assert left() == {}


def test_after_a_thousand_files_of_a_web_server(nginx, left):
    url = nginx.put("tiny.tar", SHARD)
    most = threading.active_count()
    found = 0
    for _ in wds.WebDataset([f"{url}?{number}" for number in range(SHARDS)], shardshuffle=False):
        found += 1
        most = max(most, threading.active_count())
    assert found == SHARDS
    # a thread that has done its work ends a moment later
    assert most <= threading.active_count() + 12
    assert left() == {}


def test_after_many_early_exits(nginx, left):
    url = nginx.put("small.tar", tar_bytes(numbered(2000)))
    for _ in range(100):
        samples = iter(wds.WebDataset(url, shardshuffle=False))
        next(samples)
        samples.close()
    assert left() == {}


def test_after_many_shards_through_a_cache(nginx, tmp_path, left):
    url = nginx.put("tiny.tar", SHARD)
    urls = [f"{url}?{number}" for number in range(100)]
    assert count(urls, cache_dir=str(tmp_path / "cache"), cache_size=40 * len(SHARD)) == 100
    assert left() == {}
    names = os.listdir(tmp_path / "cache")
    assert [name for name in names if name.endswith((".temp", ".lock"))] == []


def test_after_many_commands(tmp_path, left):
    (tmp_path / "a.tar").write_bytes(SHARD)
    assert count([f"pipe:cat {tmp_path / 'a.tar'}"] * 100) == 100
    assert left() == {}


def test_after_many_shards_that_fail(nginx, left):
    url = nginx.url("/none.tar")
    assert count([url] * 100 + [nginx.put("tiny.tar", SHARD)], handler=wds.ignore_and_continue) == 1
    assert left() == {}
