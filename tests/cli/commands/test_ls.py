"""wl ls."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inspected import Capture, mixed_shard, picture, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def test_ls_prints_what_tar_prints(shard: str, capsysbinary: Capture) -> None:
    theirs = subprocess.run(["tar", "-tf", shard], capture_output=True, check=True).stdout
    assert wl(capsysbinary, "ls", shard) == (0, theirs, "")


def test_ls_prints_strange_names_as_tar_does(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    names = ["a b.txt", "new\nline.txt", "back\\slash.txt", "-dash.txt", "esc\x1b[2J.txt", "quo\"te'.txt"]
    path = make_shard(files=[(name, b"") for name in names])
    theirs = subprocess.run(["tar", "-tf", path], capture_output=True, check=True).stdout
    assert wl(capsysbinary, "ls", path) == (0, theirs, "")


def test_ls_shows_all_kinds_of_members_and_their_mode(tmp_path: Path, capsysbinary: Capture) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a.txt").write_text("hello")
    (tmp_path / "d/link").symlink_to("a.txt")
    path = tmp_path / "k.tar"
    subprocess.run(["tar", "-C", tmp_path, "-cf", path, "d"], check=True)
    lines = wl(capsysbinary, "ls", "-l", str(path))[1].decode().splitlines()
    theirs = subprocess.run(["tar", "-tvf", path], capture_output=True, text=True, check=True).stdout.splitlines()
    for ours, line in zip(lines, theirs, strict=True):
        words = line.split()
        assert ours.split() == [words[0], *words[2:]]


def test_ls_lists_samples(shard: str, capsysbinary: Capture) -> None:
    out = wl(capsysbinary, "ls", "--samples", "-s", "1", "-c", "1", shard)[1].decode()
    size = 1 + 8 + len(picture()) + 5 + 152
    assert out == f"s1\t{size}\tcls json npy png txt\n"


def test_ls_of_a_cut_shard_prints_what_is_there_and_fails(shard: str, capsysbinary: Capture) -> None:
    with open(shard, "r+b") as file:
        file.truncate(2000)
    code, out, err = wl(capsysbinary, "ls", shard)
    assert (code, out[:7]) == (1, b"s0.cls\n")
    assert f"[url {shard}" in err
