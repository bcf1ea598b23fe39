"""wl cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from webdataset.cli import main

Capture = pytest.CaptureFixture[bytes]


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = main(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def test_cache_lists_verifies_and_clears(make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture) -> None:
    from webdataset.dataset import WebDataset

    cache = tmp_path / "cache"
    cache.mkdir()
    url = f"pipe:cat {make_shard()}"
    assert len(list(WebDataset(url, cache_dir=str(cache), shardshuffle=False))) == 10
    code, out, err = wl(capsysbinary, "cache", "ls", str(cache))
    assert (code, err) == (0, "1 shard, 21.5 kB\n")
    assert url.encode() in out
    assert wl(capsysbinary, "cache", "verify", str(cache))[0] == 0
    entry = json.loads(wl(capsysbinary, "cache", "ls", "--json", str(cache))[1])
    with open(entry["path"], "r+b") as file:
        file.write(b"X")
    assert wl(capsysbinary, "cache", "verify", str(cache))[0] == 1
    assert wl(capsysbinary, "cache", "clear", str(cache))[0] == 0
    assert wl(capsysbinary, "cache", "ls", str(cache))[1] == b""


def test_cache_without_a_folder_is_a_mistake_of_use(monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture) -> None:
    monkeypatch.delenv("WDS_CACHE", raising=False)
    monkeypatch.delenv("WEBDATASET_CACHE", raising=False)
    assert wl(capsysbinary, "cache", "ls")[0] == 2
