"""The examples run, and do what they promise."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests_support import python

DIGITS = Path(__file__).resolve().parent.parent / "examples/digits.py"


def digits(*options: str) -> subprocess.CompletedProcess[str]:
    return python("-W", "error", DIGITS, *options)


def accuracy(demo: subprocess.CompletedProcess[str]) -> float:
    assert demo.returncode == 0, demo.stdout + demo.stderr
    line = next(line for line in demo.stdout.splitlines() if line.startswith("accuracy"))
    return float(line.split()[1].rstrip("%"))


def test_the_demo_learns_to_read_digits() -> None:
    demo = digits("--epochs", "6", "--workers", "1")
    assert accuracy(demo) > 90  # the order of the samples is left to chance
    assert "PyTorch" in demo.stdout


def test_the_demo_learns_without_torch_and_writes_no_control_characters_into_a_log() -> None:
    demo = digits("--epochs", "4", "--numpy")
    assert accuracy(demo) > 90
    assert (demo.stdout + demo.stderr).replace("\n", "").isprintable()


def test_the_demo_refuses_to_train_for_no_epoch() -> None:
    demo = digits("--epochs", "0")
    assert demo.returncode == 2
    assert "--epochs" in demo.stderr
