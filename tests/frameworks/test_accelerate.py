"""Accelerate takes a WebLoader, on two ranks, does not split its batches again, and save_state() holds its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from frameworks.accounts import a_demo, check_accounts, make_shards, run_ranks, whole_and_resumed


@pytest.mark.slow
@pytest.mark.framework("accelerate")
def test_accelerate_sees_every_sample_once_and_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    make_shards(tmp_path)
    shown = run_ranks("accelerate_resume.py", tmp_path, [*whole_and_resumed(), a_demo()])
    assert "26 steps, 13 in an epoch" in shown
    assert shown.count("14 steps, 7 in an epoch") == 4
    check_accounts(tmp_path)
