"""Runs of the examples, and the accounts that they write of the samples they trained on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests_support import python

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples"
SAMPLES = 39
"""In the four shards of examples/tinydata.py."""

Account = list[tuple[int, ...]]
"""For each step: the epoch, and the numbers of the samples."""


def make_shards(folder: Path) -> str:
    """The examples' shards: their url with braces."""
    subprocess.run([sys.executable, EXAMPLES / "tinydata.py"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return str(folder / "tiny-{0..3}.tar")


def run_ranks(example: str, folder: Path, runs: list[dict[str, Any]], timeout: float = 280) -> str:
    """Run an example several times, one after the other, each on so many ranks; what it printed."""
    words = [ROOT / "tests/frameworks/run_ranks.py", EXAMPLES / example, json.dumps(runs)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # else every rank has as many threads as there are cores
    done = python(*words, cwd=folder, env=env, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def a_run(name: str, *arguments: str, world: int = 2, folder: str | None = None) -> dict[str, Any]:
    """A run whose rank n writes its account into `name-n`."""
    words = ["--seen", f"{name}-{{rank}}", "--folder", folder or f"{name}-checkpoints", *arguments]
    return {"world": world, "arguments": words}


def a_demo() -> dict[str, Any]:
    """A run of an example by itself, on shards that it makes."""
    return {"world": 1, "arguments": ["--demo", "--workers", "0"]}


def accounts(folder: Path, name: str, world: int = 2) -> list[Account]:
    """What the ranks wrote, rank by rank."""
    return [read_account(folder / f"{name}-{rank}") for rank in range(world)]


def read_account(path: Path) -> Account:
    return [tuple(map(int, line.split())) for line in path.read_text().splitlines()]


def seen_in(epoch: int, ranks: list[Account]) -> Counter[int]:
    """How often each sample came in an epoch, over all ranks."""
    return Counter(number for account in ranks for step in account if step[0] == epoch for number in step[1:])


def whole_and_resumed(*, world: int = 2) -> list[dict[str, Any]]:
    """Two epochs at once; and in two parts, stopped in the first epoch, in the second, and between them.

    The parts have other workers than the whole: that makes no difference to the order.
    """
    ranks = {"world": world}
    stop, later, end = ("4", "10", "7") if world > 1 else ("6", "18", "13")
    return [
        a_run("whole", "--workers", "0", **ranks),
        a_run("processes", "--workers", "2", "--steps", stop, **ranks),
        a_run("processes", "--workers", "2", "--resume", **ranks),
        a_run("none", "--workers", "0", "--steps", later, **ranks),
        a_run("none", "--workers", "0", "--resume", **ranks),
        a_run("between", "--workers", "0", "--steps", end, "--every", end, **ranks),
        a_run("between", "--workers", "0", "--resume", **ranks),
    ]


def check_accounts(folder: Path, *, world: int = 2) -> None:
    """Every sample once in each epoch (one twice, where that makes ranks equal); other orders; parts as the whole."""
    whole = accounts(folder, "whole", world)
    repeated = -SAMPLES % world
    for epoch in (0, 1):
        seen = seen_in(epoch, whole)
        assert set(seen) == set(range(SAMPLES))
        assert seen.total() == SAMPLES + repeated
        assert len({len([step for step in account if step[0] == epoch]) for account in whole}) == 1
    assert [step[1:] for step in whole[0] if step[0] == 0] != [step[1:] for step in whole[0] if step[0] == 1]
    assert accounts(folder, "processes", world) == whole
    assert accounts(folder, "none", world) == whole
    assert accounts(folder, "between", world) == whole
