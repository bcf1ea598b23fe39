"""Commands run in folders of their own, and what they leave there becomes samples."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shard(make_shard: Any) -> str:
    files = [(f"{i:03d}.{ext}", f"{ext}{i}".encode()) for i in range(10) for ext in ("cls", "txt")]
    return make_shard("in.tar", files=files)


def test_the_key_is_a_file_and_can_be_changed(wl: Any, shard: str, names: Any) -> None:
    ended = wl("xargs", "-c", "echo new-$(cat sample.__key__) > sample.__key__", "--count", 1, shard)
    assert names(ended.out) == ["new-000.cls", "new-000.txt"]


def test_folders_become_samples(wl: Any, shard: str, names: Any) -> None:
    command = "mkdir x y; cp sample.txt x; cp sample.txt y; echo own > y/sample.__key__"
    assert names(wl("xargs", "-c", command, "--count", 1, shard).out) == ["000/x.txt", "own.txt"]


def test_numbered_files_become_samples(wl: Any, shard: str, names: Any) -> None:
    command = "for i in 000001 000002; do cp sample.txt sample-$i.txt; cp sample.cls sample-$i.cls; done"
    expected = ["000/000001.cls", "000/000001.txt", "000/000002.cls", "000/000002.txt"]
    assert names(wl("xargs", "-c", command, "--count", 1, shard).out) == expected
    added = wl("xargs", "--add", "-c", command, "--count", 1, shard)
    assert names(added.out) == ["000.cls", "000.txt", *expected]


def test_no_files_drop_the_sample(wl: Any, shard: str, names: Any) -> None:
    assert names(wl("xargs", "-c", "grep -q 3 sample.txt || rm sample.*", shard).out) == ["003.cls", "003.txt"]


def test_other_files_are_left_out_with_a_word(wl: Any, shard: str, names: Any) -> None:
    ended = wl("xargs", "-c", "touch notes", shard)
    assert len(names(ended.out)) == 20
    assert ended.err.count("'notes'") == 1


@pytest.mark.parametrize(
    "name",
    ["a b.txt", "it's.txt", 'say "x".txt', "new\nline.txt", "-rf.txt", "$(touch trap).txt", "dir/-x.a b.txt", "ü.txt"],
)
def test_any_name_is_safe(wl: Any, make_shard: Any, name: str, members: Any, tmp_path: Path) -> None:
    shard = make_shard("odd.tar", files=[(name, b"x"), (name.rsplit(".", 1)[0] + ".$(rm x) ;`id`", b"y")])
    ended = wl("xargs", "-c", "cat sample.* > /dev/null; cp sample.__key__ sample.copy", shard)
    assert ended.code == 0
    found = members(ended.out)
    assert found[name, b"x"] == 1
    assert not (tmp_path / "trap").exists()


def test_no_command_sees_the_files_of_another(wl: Any, shard: str, names: Any) -> None:
    command = "ls -a > sample.ls; mkdir d; touch .hidden d/x sample.more; ln -s /nowhere sample.link; rm sample.link"
    ended = wl("xargs", "-q", "--exclude", "more", "-c", command, shard, "--subfolders", "--add")
    assert ended.code == 0
    assert names(ended.out) == [f"{n:03d}.{field}" for n in range(10) for field in ("cls", "ls", "txt")]
    told = subprocess.run(["tar", "-xOf", "-", "--wildcards", "*.ls"], input=ended.out, capture_output=True, check=True)
    assert set(told.stdout.split()) == {b".", b"..", b"sample.__key__", b"sample.cls", b"sample.ls", b"sample.txt"}


def test_what_runs_on_after_its_command_does_not_write_into_another_sample(wl: Any, shard: str, tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    later = f"(read line < {fifo}; touch sample.late; echo done > {fifo}) > /dev/null 2>&1 &"
    command = (
        f"if grep -q txt0 sample.txt; then {later} elif grep -q txt9 sample.txt; then echo > {fifo}; cat {fifo}; fi"
    )
    ended = wl("xargs", "-c", command, shard)
    assert (ended.code, ended.told) == (0, "done\n")
    assert b"late" not in ended.out


def test_folders_of_failed_commands_do_not_stay(wl: Any, shard: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    count = f"ls {tmp_path}/work/* | wc -l > sample.n; [ $(cat sample.n) -lt 3 ] && grep -q 9 sample.txt"
    ended = wl("xargs", "--on-error", "skip", "--tmpdir", tmp_path / "work", "-c", count, shard)
    assert "left out: 9 samples" in ended.err
    assert os.listdir(tmp_path / "work") == []


def test_kept_folders_are_one_for_each_sample(wl: Any, shard: str, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    assert wl("xargs", "--keep", "--tmpdir", tmp_path / "work", "-c", "! grep -q 5 sample.txt", shard).code == 1
    found = sorted(path.read_text() for path in tmp_path.glob("work/*/*/sample.txt"))
    assert found[:6] == [f"txt{n}" for n in range(6)]


def test_a_shell_that_does_not_exist(wl: Any, shard: str) -> None:
    ended = wl("xargs", "--shell", "no-such-shell", "-c", "true", shard)
    assert ended.code == 1
    assert "no-such-shell" in ended.err


def test_commands_are_refused_in_secure_mode(wl: Any, shard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WDS_ALLOW_PIPE", "0")
    ended = wl("xargs", "-c", "true", shard)
    assert ended.code == 1
    assert "refused" in ended.err


def test_two_files_for_one_field_are_an_error(wl: Any, shard: str) -> None:
    ended = wl("xargs", "-c", "cp sample.txt sample.TXT", shard)
    assert ended.code == 1
    assert "two files" in ended.err


def test_a_key_that_ends_in_a_newline_stays(wl: Any, make_shard: Any, members: Any) -> None:
    shard = make_shard(files=[("a\n.txt", b"x")])
    assert members(wl("xargs", "-c", "true", shard).out) == members(shard)
