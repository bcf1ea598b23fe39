"""The examples run, and do what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def digits(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", ROOT / "examples/digits.py", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [["--epochs", "8", "--workers", "1"], ["--epochs", "10", "--numpy"]])
def test_the_demo_learns_to_read_digits(options: list[str]) -> None:
    demo = digits(*options)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    accuracy = next(line.split()[1] for line in demo.stdout.splitlines() if line.startswith("accuracy"))
    assert float(accuracy.rstrip("%")) > 90  # the order of the samples is left to chance


def test_the_demo_writes_no_control_characters_into_a_log() -> None:
    demo = digits("--epochs", "1", "--numpy")
    assert (demo.stdout + demo.stderr).replace("\n", "").isprintable()


def test_the_demo_refuses_to_train_for_no_epoch() -> None:
    demo = digits("--epochs", "0")
    assert demo.returncode == 2
    assert "--epochs must be at least 1" in demo.stderr
