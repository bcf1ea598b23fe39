"""DistributedDataParallel with gloo: exact epochs on several ranks, resumed, and uneven ones that end together."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from frameworks.accounts import a_run, accounts, check_accounts, make_shards, run_ranks, seen_in, whole_and_resumed


@pytest.mark.slow
def test_ddp_sees_every_sample_once_and_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    make_shards(tmp_path)
    threads = [
        a_run("threads", "--workers", "2", "--threads", "--steps", "6"),
        a_run("threads", "--workers", "2", "--threads", "--resume"),
    ]
    shown = run_ranks("ddp.py", tmp_path, [*whole_and_resumed(), *threads])
    assert shown.count("epoch 1: 14 steps of 14") == 5
    check_accounts(tmp_path)
    assert accounts(tmp_path, "threads") == accounts(tmp_path, "whole")


def test_ddp_gives_all_ranks_whole_batches_if_asked_to_drop_the_rest(tmp_path: Path) -> None:
    make_shards(tmp_path)
    run_ranks("ddp.py", tmp_path, [a_run("dropped", "--remainder", "drop", "--epochs", "1", "--batch", "5")])
    seen = seen_in(0, accounts(tmp_path, "dropped"))
    assert [len(step) - 1 for step in accounts(tmp_path, "dropped")[0]] == [5, 5, 5, 4]
    assert seen == Counter(sorted(seen))  # none twice
    assert seen.total() == 38


def test_ddp_trains_through_an_uneven_dataset_without_hanging(tmp_path: Path) -> None:
    """39 samples on two ranks, and the 20 samples of shards with 7, 11 and 2 on two and on three."""
    make_shards(tmp_path)
    few = ("--shards", "tiny-{0..2}.tar")
    shown = run_ranks(
        "uneven.py", tmp_path, [a_run("all"), a_run("few", *few), a_run("three", *few, "--workers", "0", world=3)]
    )
    assert sorted(re.findall(r"rank \d: \d batches, \d+ samples", shown)) == [
        "rank 0: 3 batches, 20 samples",
        "rank 0: 4 batches, 20 samples",
        "rank 0: 7 batches, 39 samples",
        "rank 1: 3 batches, 20 samples",
        "rank 1: 4 batches, 20 samples",
        "rank 1: 7 batches, 39 samples",
        "rank 2: 3 batches, 20 samples",
    ]
    assert seen_in(0, accounts(tmp_path, "all")) == Counter(range(39))
    assert seen_in(0, accounts(tmp_path, "few")) == Counter(range(20))
    assert seen_in(0, accounts(tmp_path, "three", world=3)) == Counter(range(20))
