"""Progress and summaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def test_progress_and_summary_as_json(wl: Any, make_shard: Callable[..., str]) -> None:
    ended = wl("concat", "--json", make_shard(samples=7))
    facts = json.loads(ended.err.splitlines()[-1])
    assert (facts["done"], facts["samples"], facts["reasons"]) == (True, 7, {})


def test_quiet_is_quiet(wl: Any, make_shard: Callable[..., str]) -> None:
    shard = make_shard(files=[("README", b""), ("a.x", b"1")])
    assert wl("concat", "-q", shard).err == ""
    assert "(2.6 kB)" in wl("concat", "-v", shard).err
