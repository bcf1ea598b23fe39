"""Commands as a person sees them: on a pseudo terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from terminals import Session, session


@pytest.fixture
def shards(make_shard: Any, tmp_path: Path) -> list[str]:
    return [make_shard(f"in-{number}.tar", samples=100) for number in range(3)]


def check_percents(run: Session, name: str = "") -> None:
    """Percents only grow within a pass, and the line is gone in the end."""
    states = [state for state in run.states if state.startswith(name) and "%" in state]
    percents = [int(re.findall(r"(\d+)%", state)[0]) for state in states]
    assert percents == sorted(percents)
    assert percents[-1] > 90
    assert not any("%" in line for line in run.lines)


def test_a_bar_with_percents_rates_shards_and_the_time_left(shards: list[str], tmp_path: Path) -> None:
    run = session("map", "-e", "_", *shards, "-o", tmp_path / "out.tar")
    line = r"\[=*>? *\] +\d+%  [\d,]+ samples  [\d,]+/s  [\d.]+ [kMG]B/s  [0-3] of 3 shards  \d:\d\d left"
    assert any(re.fullmatch(line, state) for state in run.states), run.states[-3:]
    check_percents(run)
    summary = r"300 samples of 3 shards \(.* kB\) read, all written to .*out\.tar, in .* s \(.*/s\)"
    assert re.fullmatch(summary, run.lines[-1])


@pytest.mark.parametrize("command", [["sort", "-k", "cls", "--rekey", "#"], ["shuffle"], ["shuffle", "-P", "2"]])
def test_two_passes_are_named(shards: list[str], tmp_path: Path, command: list[str]) -> None:
    run = session(*command, *shards, "-o", tmp_path / "out.tar")
    names = list(dict.fromkeys(re.findall(r"[12]/2 \w+", "\n".join(run.states))))
    assert names == ["1/2 reading", "2/2 writing"]
    check_percents(run, "1/2")
    check_percents(run, "2/2")


@pytest.mark.parametrize(
    "words",
    [["concat"], ["map", "-P", "2", "-e", "_"], ["split", "--maxcount", "70"], ["lint"], ["index"], ["cp"], ["dump"]],
)
def test_every_command_that_may_take_long_has_the_line(shards: list[str], tmp_path: Path, words: list[str]) -> None:
    target = {"split": "s-%d.tar", "cp": "copies/", "dump": "files/{key}"}.get(words[0], "out.tar")
    (tmp_path / "copies").mkdir()
    output = [] if words[0] in ("lint", "index") else ["-o", tmp_path / target]
    if words[0] == "dump":
        shards = shards[:1]
    if words[0] == "cp":
        output = [f"{tmp_path}/copies/"]
    run = session(*words, *shards, *output)
    assert run.code == (1 if words[0] == "lint" else 0)
    assert any("%" in state for state in run.states), run.written[-500:]


def test_the_line_fits_the_terminal_and_quick_commands_show_none(shards: list[str], tmp_path: Path) -> None:
    narrow = session("map", "-e", "_", *shards, "-o", tmp_path / "out.tar", columns=40)
    assert max(map(len, narrow.states[:-1])) < 40
    assert session("concat", "-c", 3, *shards, "-o", tmp_path / "few.tar", at_once=False).states == []


def test_samples_are_counted_not_their_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(20):
        for ending in ("jpg", "cls", "json"):
            (tmp_path / "in" / f"{number}.{ending}").write_text("{}")
    run = session("create", tmp_path / "in", "-o", tmp_path / "out.tar")
    counts = [int(found) for state in run.states for found in re.findall(r"(\d+) samples?  ", state)]
    assert max(counts) == 20
    assert "20 samples" in run.lines[-1]


def test_errors_stand_on_a_line_of_their_own(make_shard: Any, tmp_path: Path) -> None:
    good = make_shard("a.tar", samples=50)
    cut = tmp_path / "cut.tar"
    cut.write_bytes(Path(good).read_bytes()[:20_000])
    run = session("sort", good, cut, "-o", tmp_path / "out.tar")
    assert run.code == 1
    assert run.lines[-1].startswith("wl sort: the archive ends early")
