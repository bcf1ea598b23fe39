"""Worker processes whose errors say which worker failed, where, and of what it died."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

import webdataset as wds
from garbage import left_to_this_process
from waiting import soon
from webdataset.storage.shell.guards import process_exists

STARTS_LATE = """
import os, sys, time
import webdataset as wds
from webdataset.loading import processes
processes.GRACE_SECONDS = 0.1

def starts_late(worker):
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(3)  # torch looks for the parent afterwards

if __name__ == "__main__":
    dataset = wds.WebDataset(sys.argv[1])
    options = {"multiprocessing_context": sys.argv[2], "worker_init_fn": starts_late}
    list(wds.WebLoader(dataset, batch_size=None, num_workers=2, **options))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_whose_loader_is_killed_before_they_have_started(make_shards, tmp_path, method):
    program = tmp_path / "program.py"
    program.write_text(STARTS_LATE)
    words = [sys.executable, program, make_shards(1)[0], method]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as loader:
        workers = [int(loader.stdout.readline()) for _ in range(2)]
        loader.kill()
    assert soon(lambda: not any(map(process_exists, workers)))


def collected(sample):
    gc.collect()
    return sample


def test_workers_do_not_collect_the_garbage_of_the_program(make_shards, tmp_path):
    # it may belong to threads that a forked process does not have, and wait for them forever
    with left_to_this_process(tmp_path):
        dataset = wds.WebDataset(make_shards(2), shardshuffle=False).map(collected)
        loader = wds.WebLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="fork")
        assert sum(1 for _ in loader) == 20
