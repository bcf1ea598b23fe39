"""Loaders that are watched: what they publish, and that it is gone when they are."""

from __future__ import annotations

import gc
import json
import os
import pickle
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import webdataset as wds
from waiting import soon
from webdataset.display.monitors import LoaderMonitor, monitored


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where loaders of the test publish; no loader is watched without being asked."""
    place = tmp_path / "monitors"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    monkeypatch.delenv("WDS_MONITOR", raising=False)
    return str(place / "webdataset")


def test_a_loader_that_nobody_watches_publishes_nothing(make_shard: Callable[..., str], folder: str) -> None:
    loader = wds.WebLoader(wds.WebDataset(make_shard(), shardshuffle=False), batch_size=None, num_workers=0)
    assert len(list(loader)) == 10
    assert not os.path.exists(folder)
    assert monitored() == []


def test_a_watched_loader_counts_batches_and_samples(make_shard: Callable[..., str], folder: str) -> None:
    dataset = wds.WebDataset(make_shard(samples=10), shardshuffle=False).decode().to_tuple("cls", "txt").batched(4)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=0)
    monitor = loader.monitor()
    assert loader.monitor() is monitor
    assert len(list(loader)) == 3
    [seen] = monitored()
    assert (seen["items"], seen["samples"], seen["passes"], seen["state"]) == (3, 10, 1, "idle")
    assert seen["stats"]["samples_read"] == 10
    assert (seen["pid"], seen["rank"], seen["world"]) == (os.getpid(), 0, 1)
    assert "3 items, 10 samples" in repr(monitor)
    assert "<table" in monitor._repr_html_()
    monitor.stop()
    assert monitored() == []


def test_the_environment_asks_for_it(
    make_shard: Callable[..., str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = str(tmp_path / "shared") + "/"
    monkeypatch.setenv("WDS_MONITOR", shared)
    loader = wds.WebLoader(wds.WebDataset(make_shard(), shardshuffle=False), batch_size=None, num_workers=0)
    next(iter(loader))
    assert [seen["items"] for seen in monitored(shared)] == [0] or monitored(shared)[0]["items"] == 1
    assert len(os.listdir(shared)) == 1
    loader.monitor().stop()


def test_counts_of_worker_processes_are_seen_while_they_work(make_shard: Callable[..., str], folder: str) -> None:
    dataset = wds.WebDataset(make_shard(samples=40), shardshuffle=False).repeat()  # never ends by itself
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=1, prefetch_factor=2)
    monitor = loader.monitor()
    items = iter(loader)

    def counted() -> bool:
        next(items)
        return monitor.snapshot()["stats"].get("samples_read", 0) >= 40

    assert soon(counted)
    items.close()
    monitor.stop()


def test_the_file_goes_with_the_loader(folder: str) -> None:
    monitor = LoaderMonitor(dict)
    path = monitor.path
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    del monitor
    gc.collect()
    assert soon(lambda: not os.path.exists(path))


def test_the_file_goes_with_the_program(folder: str) -> None:
    program = "from webdataset.display.monitors import LoaderMonitor; m = LoaderMonitor(dict); print(m.path)"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip().startswith(folder)
    assert not os.path.exists(told.stdout.strip())


def test_what_a_killed_program_left_is_forgotten(folder: str) -> None:
    os.makedirs(folder)
    for name, text in (
        ("old", json.dumps({"time": 0, "items": 1})),
        ("cut", '{"time": 1'),
        ("odd", "[]"),
        ("none", '{"time": "x"}'),
    ):
        Path(folder, f"{name}.json").write_text(text)
    assert monitored() == []


def test_a_folder_in_which_others_may_write_is_not_used(folder: str) -> None:
    os.makedirs(folder)
    os.chmod(folder, 0o777)
    with pytest.raises(wds.SecurityError):
        LoaderMonitor(dict)
    Path(folder, "a.json").write_text(json.dumps({"time": time.time()}))
    assert monitored() == []


def test_a_link_or_a_pipe_of_somebody_else_in_a_shared_folder_does_no_harm(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (tmp_path / "mine").write_text("precious")
    os.mkfifo(shared / "a.json")
    (shared / "b.json").symlink_to(tmp_path / "mine")
    with LoaderMonitor(dict, folder=str(shared)) as monitor:
        os.unlink(monitor.path)
        for name in (monitor.path, f"{monitor.path}.tmp"):
            os.symlink(tmp_path / "mine", name)
        list(monitor.watched(iter([1])))
        assert (tmp_path / "mine").read_text() == "precious"
        assert [seen["items"] for seen in monitored(str(shared))] == [1]


def test_a_disk_that_is_full_does_not_stop_training(folder: str) -> None:
    with LoaderMonitor(dict) as monitor:
        monitor.path = "/nowhere/at/all.json"
        assert list(monitor.watched(iter([1, 2]))) == [1, 2]


def test_an_early_end_closes_the_loader(folder: str) -> None:
    closed = []

    def items() -> Any:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    with LoaderMonitor(dict) as monitor:
        watched = monitor.watched(items())
        next(watched)
        watched.close()
        assert (closed, monitor.snapshot()["state"]) == ([True], "idle")


def test_a_copy_in_another_process_is_not_watched(folder: str) -> None:
    with LoaderMonitor(dict) as monitor:
        assert pickle.loads(pickle.dumps(monitor)) is None


@pytest.mark.parametrize(("item", "samples"), [
    ({"__key__": "a", "jpg": b""}, 1), ({"__key__": ["a", "b"]}, 2), ((np.zeros((8, 3)), np.zeros(8)), 8),
    ((np.zeros((8, 8, 3)), 5), 1), ([("a", 1), ("b", 2), ("c", 3)], 3), ([[1, 2], [3, 4]], 2), ("text", 1), ((), 1),
    (np.zeros((4, 2)), 4), (np.float32(3), 1),
])  # fmt: skip
def test_samples_of_an_item(item: Any, samples: int, folder: str) -> None:
    with LoaderMonitor(dict) as monitor:
        list(monitor.watched(iter([item])))
        assert monitor.snapshot()["samples"] == samples
