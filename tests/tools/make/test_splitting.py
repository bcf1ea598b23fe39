"""A stream of samples is split into shards, with a command for each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def test_a_command_for_each_shard(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "up").mkdir()
    shard = make_shard(samples=5)
    flags = ["--maxcount", 2, "-o", f"{tmp_path}/a b/p-%02d.tar"]
    assert wl("split", shard, *flags, "--post", f"cp {{}} {tmp_path}/up", "--delete").code == 0
    assert sorted(os.listdir(tmp_path / "up")) == ["p-00.tar", "p-01.tar", "p-02.tar"]
    assert os.listdir(tmp_path / "a b") == []
    failed = wl("split", shard, *flags, "--post", "false")
    assert failed.code == 1
    assert "status 1" in failed.err


def test_start_maxshards_and_the_name(wl: Any, make_shard: Any, tmp_path: Path) -> None:
    shard = make_shard(samples=9)
    out = ["-o", f"{tmp_path}/p-{{shard:02d}}.tar"]
    assert wl("split", shard, "--maxcount", 2, "--start", 7, "--maxshards", 2, *out).code == 0
    assert sorted(path.name for path in tmp_path.glob("p-*")) == ["p-07.tar", "p-08.tar"]
    refused = wl("split", shard, "-o", tmp_path / "one.tar")
    assert refused.code == 2
    assert "one.tar" in refused.err
