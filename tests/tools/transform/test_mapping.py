"""Functions of samples, and what they may return."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    fields = {"cls": b"%d", "jpg": jpeg(), "json": b'{"n": %d,  "spaced": true}', "txt": b"number %d"}
    files = [(f"{i:03d}.{ext}", data % i if ext != "jpg" else data) for i in range(10) for ext, data in fields.items()]
    return make_shard("in.tar", files=files)


def test_none_drops_and_a_list_makes_several(wl: Any, shard: str, names: Any) -> None:
    ended = wl("map", "-e", '[_, {"txt": txt.upper()}] if cls < 2 else None', shard)
    assert names(ended.out) == [
        *("000.cls", "000.jpg", "000.json", "000.txt", "000/000001.txt"),
        *("001.cls", "001.jpg", "001.json", "001.txt", "001/000001.txt"),
    ]


@pytest.mark.parametrize("processes", [0, 2])
def test_a_sample_that_fails_under_each_on_error(wl: Any, shard: str, names: Any, processes: int) -> None:
    code = "1 / (cls - 3); pass"
    run = ("map", "-P", processes, "-e", code)
    raised = wl(*run, shard)
    assert (raised.code, raised.out) == (1, b"")
    assert "ZeroDivisionError" in raised.err
    assert "key 003" in raised.err
    skipped = wl(*run, "--on-error", "skip", shard)
    assert skipped.code == 0
    assert len(names(skipped.out)) == 36
    assert "left out: 1 sample\n" in skipped.err
    stopped = wl(*run, "--on-error", "stop", shard)
    assert stopped.code == 1
    assert names(stopped.out)[-1] == "002.txt"


def test_a_result_that_is_no_sample_says_what_is(wl: Any, shard: str) -> None:
    ended = wl("map", "-e", "cls + 1", shard)
    assert ended.code == 1
    assert "int" in ended.err


def test_two_samples_of_one_result_need_keys_of_their_own(wl: Any, shard: str) -> None:
    ended = wl("map", "-e", "[_, _]", shard)
    assert (ended.code, "key 000" in ended.err) == (1, True)
