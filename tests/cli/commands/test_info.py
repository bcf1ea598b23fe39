"""wl info."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inspected import Capture, mixed_shard, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def test_info_describes_the_fields(shard: str, capsysbinary: Capture) -> None:
    code, out, err = wl(capsysbinary, "info", shard)
    text = out.decode()
    assert (code, err) == (0, "")
    assert text.startswith("10 samples ")
    assert all(told in text for told in (" 6 x 8 x 3", " 2 x 3", " float32"))


def test_info_is_there_for_programs(shard: str, capsysbinary: Capture) -> None:
    facts = json.loads(wl(capsysbinary, "info", "--json", "-c", "4", shard)[1])
    assert facts["samples"] == 4
    assert facts["fields"]["cls"]["range"] == [0, 2]


def test_info_says_when_it_did_not_look_at_all(shard: str, capsysbinary: Capture) -> None:
    assert b"-c 0" in wl(capsysbinary, "info", "-c", "4", shard)[1]
    assert b"-c 0" not in wl(capsysbinary, "info", "-c", "0", shard)[1]


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_info_plots_in_each_format(shard: str, tmp_path: Path, name: str, start: bytes, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "info", "--plot", str(tmp_path / name), shard)
    assert (code, err) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(start)
