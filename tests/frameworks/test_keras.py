"""Keras takes a WebLoader, shows the right totals, and a callback keeps its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from frameworks.accounts import a_demo, check_accounts, make_shards, run_ranks, whole_and_resumed


@pytest.mark.slow
@pytest.mark.framework("keras")
def test_keras_sees_every_sample_once_and_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    make_shards(tmp_path)
    shown = run_ranks("keras_resume.py", tmp_path, [*whole_and_resumed(world=1), a_demo()])
    assert shown.count("26 steps, 13 in an epoch") == 5
    check_accounts(tmp_path, world=1)
