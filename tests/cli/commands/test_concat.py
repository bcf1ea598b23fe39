"""wl concat."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def keys(listed: list[str]) -> list[str]:
    return list(dict.fromkeys(name.split(".")[0] for name in listed))


def test_all_samples_in_order(wl: Any, make_shards: Any, names: Any) -> None:
    shards = make_shards(3, samples=2)
    assert keys(names(wl("concat", *shards).out)) == [f"{i:06d}" for i in range(6)]


def test_shuffle_and_mix_keep_all_samples(wl: Any, make_shards: Any, members: Any) -> None:
    shards = make_shards(3, samples=5)
    everything = members(wl("concat", *shards).out)
    shuffled = wl("concat", "--shuffle", 100, "--seed", 3, *shards).out
    assert members(shuffled) == members(wl("concat", "--mix", 2, *shards).out) == everything
    assert shuffled == wl("concat", "--shuffle", 100, "--seed", 3, *shards).out != wl("concat", *shards).out


def test_a_full_disk(make_shard: Any, wl_process: Any) -> None:
    ended = wl_process("concat", make_shard(samples=100), "-o", "/dev/full")
    assert (ended.returncode, ended.stderr.count(b"\n")) == (1, 1)
    assert b"[url /dev/full]" in ended.stderr


def test_secrets_stay_out_of_errors(wl: Any) -> None:
    assert "hunter2" not in wl("concat", "nosuch://me:hunter2@host/a.tar").err


def test_a_wrong_option_is_exit_2(wl: Any) -> None:
    assert wl("concat", "--nonsense").code == 2
    assert wl("concat", "-c", "many").code == 2


def test_a_reader_that_goes_away_is_no_error(make_shard: Callable[..., str]) -> None:
    shard = make_shard(samples=3000)
    line = f"set -o pipefail; {sys.executable} -m webdataset concat {shard} | head -c 100 | wc -c"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "100", "")


def test_tarp_cat(wl: Any, make_shards: Any, names: Any, tmp_path: Path) -> None:
    shards = make_shards(3, samples=2)
    (tmp_path / "list").write_text("\n".join(shards))
    ended = wl.old("tarp", "cat", "-l", tmp_path / "list", "-f", "t:txt", "-R", "#", "--slice", "1:3", "-o", "-")
    assert names(ended.out) == ["000000000.t", "000000001.t"]
    one = wl.old("tarp", "cat", "--shardslice", "1:2", *shards, "-o", "-")
    assert keys(names(one.out)) == ["000002", "000003"]


def test_an_old_program_that_is_not_there(wl: Any) -> None:
    assert wl.old("tarp", "dance").code == 2


@pytest.mark.parametrize("order", [("--shuffle", "9", "--seed", "1"), ("--mix", "3")])
def test_equal_keys_are_kept_apart_where_the_order_is_free(wl: Any, make_shard: Any, members: Any, order: Any) -> None:
    shard = make_shard(samples=4)
    ended = wl("concat", *order, shard, shard, shard)
    assert ended.code == 0
    assert set(members(ended.out).values()) == {3}
    assert len(members(ended.out)) == 8
