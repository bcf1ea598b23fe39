"""Tables: drawn on a terminal where rich is installed, plain lines everywhere else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from terminals import session
from webdataset.cache import FileCache
from webdataset.cli.tables import MOST_ROWS

RULE = "─" * 10


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    files = [("a.cls", b"7"), ("a.[b]x", b""), ("b.cls", b"12"), ("b.jpg", b"no image")]
    return make_shard("a[b].tar", files=files)


@pytest.mark.parametrize(
    ("words", "head", "row"),
    [
        (["ls", "-l"], ["mode", "bytes", "modified", "name"], r"-rw-r--r-- +2   \d{4}-\d\d-\d\d \d\d:\d\d   b\.cls"),
        (["ls", "--samples"], ["key", "bytes", "fields"], r"a +1   cls \[b\]x"),
        (["lint"], ["shard", "problem", "where", "what"], r".*a\[b\]\.tar   wrong-image   member b\.jpg, .*"),
        (["info"], ["field"], r"cls +type +int"),
    ],
)
def test_a_terminal_gets_a_table_with_a_head(shard: str, words: list[str], head: list[str], row: str) -> None:
    lines = [plain(line) for line in session(*words, shard, columns=600, at_once=False).lines]
    place = next(number for number, line in enumerate(lines) if RULE in line)
    assert lines[place - 1].split() == head
    assert any(re.fullmatch(row, line) for line in lines[place:]), lines


@pytest.mark.parametrize("words", [["ls", "-l", "--url"], ["ls", "--samples"], ["lint"], ["info"]])
def test_without_rich_or_on_a_plain_terminal_it_prints_what_a_pipe_gets(wl: Any, shard: str, words: list[str]) -> None:
    piped = wl(*words, shard).out.decode().splitlines()
    assert RULE not in "".join(piped)
    shown = session(*words, "-q", shard, columns=600, at_once=False, without="rich")
    assert shown.lines == [line for line in piped if line]


def test_the_cache_is_a_table_on_a_terminal(wl: Any, tmp_path: Path) -> None:
    FileCache(str(tmp_path), validator=None).get_file("pipe:echo hello")
    lines = [plain(line) for line in session("cache", "ls", tmp_path, columns=600, at_once=False).lines]
    assert lines[0].split() == ["size", "used", "file", "url", "state"]
    assert lines[2].startswith("6 bytes   ")
    assert lines[2].endswith("   pipe:echo hello")
    assert lines[3:] == ["1 shard, 6 bytes"]
    assert re.fullmatch(r"   6 bytes  .{16}  .*  pipe:echo hello\n", wl("cache", "ls", tmp_path).out.decode())


def test_a_dumb_terminal_gets_plain_lines(wl: Any, shard: str) -> None:
    assert (
        session("ls", "-l", shard, term="dumb", at_once=False).lines == wl("ls", "-l", shard).out.decode().splitlines()
    )


def test_bare_names_and_json_are_the_same_everywhere(wl: Any, shard: str) -> None:
    for words in (["ls"], ["ls", "--json"], ["lint", "--json"]):
        shown = session(*words, "-q" if words[0] == "lint" else "--", shard, columns=400, at_once=False)
        assert shown.lines == wl(*words, shard).out.decode().splitlines()


def test_a_long_list_is_drawn_in_parts_with_one_head(make_shard: Callable[..., str]) -> None:
    count = MOST_ROWS + 50
    lines = [plain(line) for line in session("ls", "--samples", make_shard(samples=count), at_once=False).lines]
    assert sum("fields" in line for line in lines) == 1
    assert sum(line.startswith("key") for line in lines) == 1
    rows = [line for line in lines if re.search(r"  [\d,]+   ", line)]
    assert len(rows) == count
    assert len({line.rindex("   ") for line in rows}) == 1


def test_rows_are_drawn_although_a_later_one_fails(make_shard: Callable[..., str]) -> None:
    shard = make_shard(samples=3)
    with open(shard, "r+b") as file:
        file.truncate(4000)
    run = session("ls", "-l", shard, columns=600, at_once=False)
    lines = [plain(line) for line in run.lines]
    place = next(number for number, line in enumerate(lines) if RULE in line)
    assert [line.split()[-1] for line in lines[place + 1 : place + 3]] == ["000000.cls", "000000.txt"]
    assert (run.code, f"[url {shard}" in lines[-1]) == (1, True)


def plain(line: str) -> str:
    """A line without colours and weights."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip()
