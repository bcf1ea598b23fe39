"""wl simdist."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webdataset.cli import main


def test_it_tells_that_ranks_are_not_equal_and_what_to_do(make_shard: Callable[..., str], capsys: Any) -> None:
    shards = [make_shard(f"{n}.tar", samples=n) for n in (7, 11, 2)]
    assert main(["simdist", "--ranks", "2", "--batch", "2", *shards]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("20 samples in 3 shards; 2 ranks x 1 workers, batches of 2\n")
    assert "NOT equal: ranks get 5 to 6 batches" in shown
    assert "equal: every rank gets 5 batches" in shown
    assert shown.endswith(
        "To make ranks equal: exact=True; or resampled=True with .with_epoch(N); or 4 shards of one size\n"
    )


def test_equal_ranks_need_no_advice(capsys: Any) -> None:
    assert main(["simdist", "--ranks", "2", "--workers", "2", "--samples", "10", "t-{0..3}.tar"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("equal: every rank gets 20 batches") == 2
    assert "To make ranks equal" not in shown


def test_imagined_shards_need_not_exist(capsys: Any) -> None:
    line = "simdist --ranks 8 --workers 4 --batch 256 --samples 1000 --json imagenet-{0000..1281}.tar"
    assert main(line.split()) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["shards"], told["samples"]) == (1282, 1_282_000)
    assert told["exact"]["equal"] is True
    assert told["streamed"]["equal"] is False
    assert len(told["streamed"]["ranks"]) == 8
    assert len(told["streamed"]["workers"]) == 32


def test_it_plots(tmp_path: Path, capsys: Any) -> None:
    assert main(["simdist", "--samples", "10", "--plot", str(tmp_path / "ranks.svg"), "t-{0..3}.tar"]) == 0
    assert b"<svg" in (tmp_path / "ranks.svg").read_bytes()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("--samples many a.tar", 2, "--samples 'many' is no list of numbers such as 1000 or 1000,990"),
        ("--samples 0 a.tar", 2, "--samples '0' is no list of numbers"),
        ("--plot ranks.txt --samples 1 a.tar", 2, "its name must end in .png, .pdf or .svg"),
        ("--ranks 0 a.tar", 2, "expected a number of at least 1, got '0'"),
        ("nowhere.tar", 1, "nowhere.tar"),
    ],
)
def test_mistakes_are_told_in_a_line(words: str, status: int, message: str, capsys: Any) -> None:
    assert main(["simdist", *words.split()]) == status
    assert message in capsys.readouterr().err
