"""The Trainer of transformers takes a WebLoader, on two ranks, and its checkpoints hold the loader's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from frameworks.accounts import a_demo, check_accounts, make_shards, run_ranks, whole_and_resumed


@pytest.mark.slow
@pytest.mark.framework("transformers")
def test_the_trainer_sees_every_sample_once_and_resumes_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    make_shards(tmp_path)
    shown = run_ranks("trainer_resume.py", tmp_path, [*whole_and_resumed(), a_demo()])
    assert "26 steps of 26" in shown
    assert shown.count("14 steps of 14") == 8
    check_accounts(tmp_path)
