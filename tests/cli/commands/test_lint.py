"""wl lint."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from inspected import Capture, mixed_shard, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def test_lint_finds_nothing_in_a_good_shard(shard: str, capsysbinary: Capture) -> None:
    code, out, err = wl(capsysbinary, "lint", shard)
    assert (code, out, "10 samples" in err) == (0, b"", True)


def test_lint_fails_when_it_finds_something(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    path = make_shard(files=[("a.png", b"no picture"), ("esc\x1b[2J.txt", b"")])
    code, out, err = wl(capsysbinary, "lint", path)
    assert code == 1
    assert b"wrong-image" in out
    assert b"\x1b" not in out
    assert "1 x wrong-image" in err
    lines = [json.loads(line) for line in wl(capsysbinary, "lint", "--json", path)[1].splitlines()]
    assert {line["problem"] for line in lines} >= {"wrong-image", "empty-field"}
    assert wl(capsysbinary, "lint", "--ignore", "wrong-image,empty-field,half-sample", path)[0] == 0
    assert wl(capsysbinary, "lint", "--ignore", "nonsense", path)[0] == 2
