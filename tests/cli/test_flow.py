"""From the inputs to the output: urls, errors, equal keys, streams."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests_support import numbered, tar_bytes


def keys(listed: list[str]) -> list[str]:
    return list(dict.fromkeys(name.split(".")[0] for name in listed))


def test_braces_globs_and_folders(wl: Any, make_shards: Any, tmp_path: Path) -> None:
    expected = wl("concat", *make_shards(3, samples=2)).out
    for spec in ("shard-{000000..000002}.tar", "shard-*.tar", ""):
        assert wl("concat", f"{tmp_path}/{spec}").out == expected


def test_equal_keys_side_by_side_are_an_error_with_the_cure(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(samples=1)
    ended = wl("concat", shard, shard)
    assert ended.code == 1
    assert ("key 000000]" in ended.err, "--rekey '{key}-{index}'" in ended.err) == (True, True)
    cured = wl("concat", "--rekey", "{key}-{index}", shard, shard)
    assert keys(names(cured.out)) == ["000000-0", "000000-1"]
    assert cured.told == ""


def test_equal_keys_on_either_side_of_a_shards_end_are_fine(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    shard = make_shard(samples=1)
    assert wl("concat", shard, shard, "--maxcount", 1, "-o", tmp_path / "o-%d.tar").code == 0
    assert len(list(tmp_path.glob("o-?.tar"))) == 2


def test_output_patterns_make_shards(wl: Any, make_shard: Any, tmp_path: Path, names: Any) -> None:
    shard = make_shard(samples=5)
    assert wl("concat", shard, "--maxcount", 2, "-o", tmp_path / "o-{shard:03d}.tar").code == 0
    assert sorted(path.name for path in tmp_path.glob("o-*")) == ["o-000.tar", "o-001.tar", "o-002.tar"]
    assert len(names(tmp_path / "o-002.tar")) == 2


def test_members_in_no_sample_are_counted(wl: Any, make_shard: Any) -> None:
    ended = wl("concat", make_shard(files=[("README", b"1"), ("a.y", b"2")]))
    assert ended.code == 0
    assert "1 member\n" in ended.err


def test_a_tar_cut_in_the_middle(wl: Any, tmp_path: Path, names: Any) -> None:
    (tmp_path / "cut.tar").write_bytes(tar_bytes(numbered(10))[:7000])
    ended = wl("concat", tmp_path / "cut.tar", "-o", tmp_path / "out.tar")
    assert ended.code == 1
    assert "offset" in ended.err
    assert not (tmp_path / "out.tar").exists()
    skipped = wl("concat", "--on-error", "skip", tmp_path / "cut.tar")
    assert skipped.code == 0
    assert "1 shard\n" in skipped.err
    assert keys(names(skipped.out)) == ["000000", "000001", "000002"]


def test_it_reads_no_more_than_it_needs_and_ends_the_producer(make_shard: Callable[..., str]) -> None:
    shard = make_shard(samples=3000)
    endless = f"(while true; do cat {shard} || exit; done; echo never)"
    line = f"{endless} | {sys.executable} -m webdataset concat -c 10 - | tar -tf -"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0
    assert len(ended.stdout.split()) == 20
    assert "Traceback" not in ended.stderr
    assert "wl" not in ended.stderr


def test_a_terminal_gets_no_bytes(make_shard: Callable[..., str]) -> None:
    line = f"{sys.executable} -m webdataset concat {make_shard()}"
    ended = subprocess.run(
        ["script", "-qec", line, "/dev/null"], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "-o FILE" in ended.stdout


@pytest.mark.parametrize("command", ["concat", "sort", "shuffle", "split", "dump", "show", "extract", "info"])
def test_a_selection_of_nothing_is_an_error_unless_that_is_fine(
    wl: Any, make_shard: Any, tmp_path: Path, command: str
) -> None:
    shard = make_shard("in.tar", samples=3)
    target = {"split": "o-%d.tar", "dump": "files/{key}"}.get(command, "o.tar")
    output = [] if command in ("show", "info") else ["-o", tmp_path / target]
    ended = wl(command, "-S", "cls > 100", shard, *output)
    assert ended.code == 1
    assert "--allow-empty" in ended.err
    assert command == "extract" or not list(tmp_path.glob("o*.tar"))
    assert wl(command, "-S", "cls > 100", "--allow-empty", shard, *output).code == 0
    assert wl(command, "-S", "cls < 2", shard, *output).code == 0
