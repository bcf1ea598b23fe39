"""Every command stops at a shard's end marker, with a word, or reads on with --concatenated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from tests_support import concatenated_tar, numbered

pytestmark = pytest.mark.usefixtures("own_cache")

FIRST = [f"{i:06d}" for i in range(3)]
ALL = [f"{i:06d}" for i in range(5)]
CODE = "_['new'] = b'1'"


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three samples and two, in two archives."""
    monkeypatch.chdir(tmp_path)
    return concatenated_tar(tmp_path, 3, 2)


@pytest.mark.parametrize(
    "command",
    [
        "concat -o out.tar",
        "concat -c 10 -o out.tar",
        "concat --mix 2 -o out.tar",
        "sort -o out.tar",
        "shuffle --seed 1 -o out.tar",
        "shuffle -P 2 -o out.tar",
        "map -e CODE -o out.tar",
        "map -P 2 -e CODE -o out.tar",
        "xargs -c : -o out.tar",
        "split -o out-%d.tar",
    ],
)
@pytest.mark.parametrize("flag", [None, "--concatenated"])
def test_a_command_that_writes(wl: Any, names: Any, joined: str, command: str, flag: str | None) -> None:
    flags, expected = ([flag], ALL) if flag else ([], FIRST)
    words = [CODE if word == "CODE" else word for word in command.split()]
    ended = wl(*words, *flags, joined)
    assert ended.code == 0, ended.err
    assert ("--concatenated" in ended.err) == (not flags)
    written = words[-1].replace("%d", "0")
    found = {sample["__key__"] for sample in wds.WebDataset(written, strict=True)}
    assert sorted(found) == expected
    assert {name.partition(".")[0] for name in names(written)} == {*expected}  # no end marker inside


@pytest.mark.parametrize("command", ["ls --samples", "ls", "extract -f __key__", "show"])
def test_a_command_that_shows(wl: Any, joined: str, command: str) -> None:
    first, all = wl(*command.split(), joined), wl(*command.split(), "--concatenated", joined)
    assert (first.code, all.code) == (0, 0), first.err + all.err
    assert ("--concatenated" in first.err, "--concatenated" in all.err) == (True, False)
    assert (b"000004" in first.out, b"000004" in all.out) == (False, True)


def test_info(wl: Any, joined: str) -> None:
    assert json.loads(wl("info", "--json", joined).out)["samples"] == 3
    assert json.loads(wl("info", "--json", "--concatenated", joined).out)["samples"] == 5


def test_cat_and_dump(wl: Any, joined: str) -> None:
    missing = wl("cat", "-k", "000004", joined, "txt")
    assert (missing.code, missing.out, "key 000004]" in missing.err) == (1, b"", True)
    assert wl("cat", "-k", "000004", "--concatenated", joined, "txt").out == b"txt4"
    assert wl("dump", "-o", "{key}", "-c", "9", "--concatenated", joined).code == 0
    assert Path("000004.txt").read_bytes() == b"txt4"


def test_standard_input(joined: str) -> None:
    def listed(*flags: str) -> list[str]:
        command = [sys.executable, "-m", "webdataset", "ls", *flags]
        ended = subprocess.run(command, input=Path(joined).read_bytes(), capture_output=True, check=True)
        return ended.stdout.decode().split()

    assert listed() == [name for name, _ in numbered(3)]
    assert listed("--concatenated") == [name for name, _ in numbered(5)]


def test_a_part_of_a_shard(wl: Any, joined: str) -> None:
    assert wl("extract", "-f", "__key__", "--concatenated", f"{joined}#2,3").out.split()[-2:] == [b"000002", b"000003"]


def test_an_old_program(wl: Any, joined: str) -> None:
    assert wl.old("tarcats", "--concatenated", "-o", "out.tar", joined).code == 0
    assert [sample["__key__"] for sample in wds.WebDataset("out.tar")] == ALL


def test_an_index_and_a_plan(wl: Any, joined: str) -> None:
    assert "1 shard, 3 samples" in wl("index", joined).err
    assert "1 shard, 5 samples" in wl("index", "--concatenated", joined).err
    assert wl("index", "--check", "--concatenated", joined).code == 0
    assert wl("index", "--check", joined).code == 1
    assert json.loads(wl("plan", "--json", "--concatenated", joined).out)["samples"] == 5
    assert json.loads(wl("plan", "--json", joined).out)["samples"] == 3


def test_a_listing_by_an_index_says_so_too(wl: Any, joined: str) -> None:
    wl("index", joined)
    assert "--concatenated" in wl("ls", "--samples", joined).err


def test_lint(wl: Any, joined: str) -> None:
    ended = wl("lint", joined)
    assert ended.code == 1
    assert (b" behind-end: " in ended.out, b"offset 7168" in ended.out) == (True, True)
    assert wl("lint", "--concatenated", joined).code == 0


def test_a_test_of_speed(wl: Any, joined: str) -> None:
    assert json.loads(wl("test", "--json", joined).out)[0]["samples"] == 3
    assert json.loads(wl("test", "--json", "--concatenated", joined).out)[0]["samples"] == 5
