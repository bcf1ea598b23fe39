"""Worker processes whose errors say which worker failed, where, and of what it died."""

from __future__ import annotations

import os
import signal

import pytest

import webdataset as wds


def fails(sample):
    raise ValueError(f"bad {sample['__key__']}")


def dies(sample):
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_error_is_the_one_that_the_worker_raised(make_shards):
    loader = wds.WebLoader(wds.WebDataset(make_shards(1)).map(fails), batch_size=None, num_workers=1)
    with pytest.raises(ValueError, match="bad 000000") as raised:
        list(loader)
    assert any("in worker 0 of 1" in note for note in raised.value.__notes__)


def test_a_worker_that_is_killed_is_named_with_the_signal(make_shards):
    loader = wds.WebLoader(wds.WebDataset(make_shards(1)).map(dies), batch_size=None, num_workers=1)
    with pytest.raises(wds.WorkerError, match=r"worker 0 of 1 \(pid \d+\) was killed by SIGKILL"):
        list(loader)
