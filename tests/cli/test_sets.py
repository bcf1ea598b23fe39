"""Numbered shards that commands write: those that are there are not replaced unasked, and what is left is told."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servers.nginx import Nginx
from tests_support import numbered, tar_bytes


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with in.tar, which has ten samples."""
    monkeypatch.chdir(tmp_path)
    Path("in.tar").write_bytes(tar_bytes(numbered(10)))
    Path("recipe").write_text("".join(f"{i}.txt text:{i}\n" for i in range(10)))


def made() -> list[str]:
    return sorted(name for name in os.listdir() if name.startswith(("o-", ".o-")))


COMMANDS = {
    "split": "split in.tar",
    "concat": "concat in.tar",
    "map": "map -e _ in.tar",
    "map cores": "map -P 2 -e _ in.tar",
    "xargs": "xargs -c true in.tar",
    "shuffle": "shuffle in.tar",
    "sort": "sort in.tar",
    "create": "create recipe",
}


@pytest.mark.parametrize("line", COMMANDS.values(), ids=COMMANDS)
def test_a_command_refuses_to_replace_shards_and_does_so_with_force(wl: Any, line: str) -> None:
    words = [*shlex.split(line), "-o", "o-%03d.tar"]
    assert wl(*words, "--maxcount", 2).code == 0
    before = {name: os.stat(name) for name in made()}
    ended = wl(*words, "--maxcount", 5)
    assert ended.code == 2
    assert all(named in ended.err for named in ("5 shards of o-%03d.tar", "o-000.tar to o-004.tar", "--force"))
    assert {name: os.stat(name) for name in made()} == before
    assert wl(*words, "--maxcount", 5, "--force").code == 0
    assert made() == ["o-000.tar", "o-001.tar"]


def test_force_replaces_the_whole_set_with_its_gaps_and_indices(wl: Any) -> None:
    wl("split", "in.tar", "--maxcount", 1, "-o", "o-{shard:02d}.tar")
    wl("index", "o-{00..09}.tar", "--format", "wdx,dali,energon")
    os.unlink("o-05.tar")
    Path("o-x.tar").touch()
    assert wl("split", "in.tar", "--maxcount", 5, "--force", "-o", "o-{shard:02d}.tar").code == 0
    assert made() == ["o-00.tar", "o-01.tar", "o-05.idx", "o-05.tar.idx", "o-05.tar.wdx", "o-x.tar"]


def test_numbering_on_behind_what_is_there_needs_no_force(wl: Any) -> None:
    assert wl("split", "in.tar", "--maxcount", 5, "-o", "o-%d.tar").code == 0
    assert wl("split", "in.tar", "--maxcount", 5, "-o", "o-%d.tar", "--start", 2).code == 0
    assert made() == [f"o-{number}.tar" for number in range(4)]
    assert wl("split", "in.tar", "--maxcount", 9, "-o", "o-%d.tar", "--start", 3).code == 2


def test_one_archive_is_replaced_as_ever(wl: Any) -> None:
    assert wl("concat", "in.tar", "-o", "o-.tar").code == wl("concat", "in.tar", "-o", "o-.tar").code == 0


@pytest.mark.parametrize("words", [["--force"], ["--force", "-P", "2"]])
def test_what_is_read_is_not_replaced(wl: Any, words: list[str]) -> None:
    wl("split", "in.tar", "--maxcount", 5, "-o", "o-%d.tar")
    before = {name: Path(name).read_bytes() for name in made()}
    ended = wl("map", "-e", "_", *words, "o-0.tar", "./o-1.tar#0,3", "-o", "o-%d.tar")
    assert ended.code == 2
    assert "o-0.tar and 1 more" in ended.err
    assert {name: Path(name).read_bytes() for name in made()} == before


def test_an_empty_result_removes_nothing(wl: Any) -> None:
    wl("split", "in.tar", "--maxcount", 5, "-o", "o-%d.tar")
    for allowed, code in (([], 1), (["--allow-empty"], 0)):
        ended = wl("split", "in.tar", "-S", "False", *allowed, "--force", "-o", "o-%d.tar")
        assert ended.code == code
        assert "o-0.tar to o-1.tar" in ended.err
        assert made() == ["o-0.tar", "o-1.tar"]


@pytest.mark.parametrize("line", ["tarsplit -n {} -o o in.tar", "tarp split -c {} -o o-%06d.tar in.tar"])
def test_old_programs_replace_as_they_always_did_and_tell_what_is_left_over(wl: Any, line: str) -> None:
    assert wl.old(*shlex.split(line.format(2))).code == 0
    ended = wl.old(*shlex.split(line.format(5)))
    assert ended.code == 0
    assert ("3 shards" in ended.err, "o-000002.tar to o-000004.tar" in ended.err) == (True, True)
    assert len(made()) == 5


def test_shards_of_a_web_server_are_looked_at_too(wl: Any, nginx: Nginx) -> None:
    pattern = nginx.url("/cli/o-%d.tar")
    assert wl("split", "in.tar", "--maxcount", 2, "-o", pattern).code == 0
    assert wl("split", "in.tar", "--maxcount", 5, "-o", pattern).code == 2
    assert wl("split", "in.tar", "--maxcount", 5, "-o", pattern, "--force").code == 0
    assert sorted(os.listdir(nginx.files / "cli")) == ["o-0.tar", "o-1.tar"]


# -- commands that fail or are interrupted ----------------------------------------------------------------


FAILING = "map -e '_ if cls < 7 else 1 / 0' --maxcount 3 in.tar -o o-%d.tar"


def test_a_command_that_fails_says_which_complete_shards_it_leaves(wl: Any) -> None:
    ended = wl(*shlex.split(FAILING))
    assert ended.code == 1
    [line] = ended.err.splitlines()[1:]
    assert all(named in line for named in ("2 complete", "o-%d.tar", "o-0.tar to o-1.tar"))
    assert made() == ["o-0.tar", "o-1.tar"]


def test_with_force_a_command_that_fails_says_which_are_new_and_removes_nothing(wl: Any) -> None:
    wl("split", "in.tar", "--maxcount", 1, "-o", "o-%d.tar")
    ended = wl(*shlex.split(FAILING), "--force")
    [line] = ended.err.splitlines()[1:]
    assert re.fullmatch(r"wl map: 2 .*: o-0\.tar to o-1\.tar; 8 .*earlier.*: o-2\.tar to o-9\.tar", line)
    assert len(made()) == 10


def test_with_force_a_command_that_completes_nothing_says_that_the_earlier_set_is_there(wl: Any) -> None:
    wl("split", "in.tar", "--maxcount", 5, "-o", "o-%d.tar")
    ended = wl("map", "-e", "1 / 0", "in.tar", "-o", "o-%d.tar", "--force")
    [line] = ended.err.splitlines()[1:]
    assert re.fullmatch(r"wl map: 2 .*earlier.*: o-0\.tar to o-1\.tar", line)


def test_creating_that_fails_says_it_too(wl: Any) -> None:
    Path("recipe").write_text("a.txt text:1\nb.txt text:2\nc.txt nofile\n")
    ended = wl("create", "recipe", "--maxcount", 1, "-o", "o-%d.tar")
    [line] = ended.err.splitlines()[1:]
    assert re.fullmatch(r"wl create: 1 complete .*: o-0\.tar", line)


def test_shards_that_were_deleted_after_their_command_are_not_named(wl: Any) -> None:
    words = ["--post", "true", "--delete", "--maxcount", 3, "-o", "o-%d.tar"]
    Path("in.tar").write_bytes(tar_bytes(numbered(10))[:-3000])
    ended = wl("split", "in.tar", *words)
    assert (ended.code, "complete" in ended.err) == (1, False)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_interrupted_says_which_complete_shards_it_leaves(number: int, code: int) -> None:
    argv = [sys.executable, "-m", "webdataset", "split", "-v", "--maxcount", "3", "-o", "o-%d.tar"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        try:
            process.stdin.write(tar_bytes(numbered(10), end=False))  # and nothing more for now
            process.stdin.write(tar_bytes(numbered(3000, start=100), end=False)[:-512])
            process.stdin.flush()
            told = iter(process.stderr.readline, b"")
            assert b"# wrote o-1.tar\n" in told
            process.send_signal(number)
            rest = b"".join(told).decode().splitlines()
            assert process.wait(30) == code
        finally:
            process.kill()
    [line] = [line for line in rest if "complete" in line]
    count = len(made())
    assert re.fullmatch(rf"wl split: {count} .*: o-0\.tar to o-{count - 1}\.tar", line)
    assert not [name for name in made() if name.startswith(".")]
