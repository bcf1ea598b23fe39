"""Commands as a person sees them: on a pseudo terminal."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from terminals import Session, session
from webdataset.cache import FileCache

SLOW = "__import__('time').sleep(0.002) or True"


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
    assert re.fullmatch(r"300 samples of 3 shards .*/out\.tar.*", run.lines[-1])


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
    assert re.fullmatch(rf"wl sort: .*\[url {cut}, .*", run.lines[-1])


@pytest.mark.parametrize("command", [["map", "-e", "__import__('time').sleep(0.002) or _"], ["shuffle", "-S", SLOW]])
def test_percents_move_within_a_shard_that_another_process_reads(
    shards: list[str], tmp_path: Path, command: list[str]
) -> None:
    run = session(*command, "-P", 2, *shards[:2], "-o", tmp_path / "out.tar")
    first = [state for state in run.states if "0 of 2 shards" in state]
    percents = {int(found) for state in first for found in re.findall(r"(\d+)%", state)}
    assert len(percents - {0}) > 1, run.states
    assert any(re.search(r"[1-9]\d* samples .* [\d.]+ [kMG]?B/s", state) for state in first)
    check_percents(run, "1/2" if command[0] == "shuffle" else "")
    assert run.lines[-1].startswith("200 samples of 2 shards")


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_files_to_be_written_are_counted_by_their_bytes(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in" / "more").mkdir(parents=True)
    for number in range(30):
        (tmp_path / "in" / ("more" if number % 2 else "") / f"{number}.txt").write_bytes(b"x" * 100 * number)
    (tmp_path / "in" / ".hidden").write_bytes(b"x" * 1_000_000)
    (tmp_path / "in" / "more" / "up").symlink_to(tmp_path / "in")
    source = tmp_path / "in"
    if kind == "zip":
        source = Path(shutil.make_archive(str(tmp_path / "in"), "zip", tmp_path / "in" / "more"))
    run = session("create", source, "-o", tmp_path / "out.tar")
    assert len({found for state in run.states for found in re.findall(r"(\d+)%", state)}) > 5
    check_percents(run)


def test_the_check_of_a_cache_has_the_line(make_shard: Any, tmp_path: Path) -> None:
    cache = FileCache(str(tmp_path / "cache"))
    for number in range(3):
        cache.get_file(f"pipe:cat {make_shard(f'{number}.tar', samples=10)}")
    run = session("cache", "verify", tmp_path / "cache")
    check_percents(run)
    assert sum(line.rstrip().endswith("ok") for line in run.lines) == 3
