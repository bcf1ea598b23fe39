"""wl shuffle and its old name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("cores", [(), ("-P", "2")])
@pytest.mark.parametrize("seed", range(5))
def test_a_shuffle_keeps_equal_keys_apart(wl: Any, make_shard: Any, members: Any, seed: int, cores: Any) -> None:
    shards = [make_shard(f"{name}.tar", samples=5) for name in "abcd"]
    ended = wl("shuffle", "--seed", seed, *cores, *shards)
    assert ended.code == 0
    assert set(members(ended.out).values()) == {4}
    assert ended.out == wl("shuffle", "--seed", seed, *shards).out


def test_a_bad_shard_is_told_in_parallel_too(wl: Any, make_shards: Any, tmp_path: Path, members: Any) -> None:
    shards = make_shards(3, samples=20)
    Path(shards[1]).write_bytes(Path(shards[1]).read_bytes()[:5000])
    ended = wl("shuffle", "-P", 2, *shards)
    assert ended.code == 1
    assert "shard-000001.tar" in ended.err
    skipped = wl("shuffle", "-P", 2, "--on-error", "skip", "--seed", 1, *shards)
    assert skipped.code == 0
    assert "1 shard\n" in skipped.err
    assert skipped.out == wl("shuffle", "--on-error", "skip", "--seed", 1, *shards).out


def test_tarpcat_loses_no_file(wl: Any, make_shards: Any, members: Any) -> None:
    shards = make_shards(3, samples=5)
    ended = wl.old("tarpcat", "-p", 2, *shards, "-o", "-")
    assert members(ended.out) == sum((members(shard) for shard in shards), Counter())
    assert len(members(wl.old("tarpcat", "-c", 4, *shards, "-o", "-").out)) == 8
