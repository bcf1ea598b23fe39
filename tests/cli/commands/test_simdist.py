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
    *lines, advice = shown.splitlines()
    assert lines[0].startswith("20 samples in 3 shards")
    streamed, exact = (line for line in lines if "equal" in line)
    assert ("NOT" in streamed, "5 to 6 batches" in streamed) == (True, True)
    assert ("NOT" in exact, "5 batches" in exact) == (False, True)
    assert all(cure in advice for cure in ("exact=True", "resampled=True", "4 shards"))


def test_equal_ranks_need_no_advice(capsys: Any) -> None:
    assert main(["simdist", "--ranks", "2", "--workers", "2", "--samples", "10", "t-{0..3}.tar"]) == 0
    shown = capsys.readouterr().out
    assert sum("equal" in line and "20 batches" in line for line in shown.splitlines()) == 2
    assert "resampled=True" not in shown


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
    ("words", "named"),
    [
        ("--samples many a.tar", "'many'"),
        ("--samples 0 a.tar", "'0'"),
        ("--plot ranks.txt --samples 1 a.tar", ".svg"),
        ("--ranks 0 a.tar", "'0'"),
    ],
)
def test_mistakes_of_use_are_told_in_a_line(words: str, named: str, capsys: Any) -> None:
    assert main(["simdist", *words.split()]) == 2
    assert named in capsys.readouterr().err
