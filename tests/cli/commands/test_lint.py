"""wl lint."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from webdataset.cli import main

Capture = pytest.CaptureFixture[bytes]


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (255, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    """Ten samples, the class of each its number modulo 3."""
    array = io.BytesIO()
    np.save(array, np.zeros((2, 3), np.float32))
    fields = {"cls": b"%d", "json": b'{"n": %d}', "npy": array.getvalue(), "png": picture(), "txt": b"hello"}
    files = [
        (f"s{i}.{name}", data % (i % 3) if b"%d" in data else data) for i in range(10) for name, data in fields.items()
    ]
    return make_shard("a.tar", files=files)


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    """Exit code, stdout, stderr."""
    code = main(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def test_lint_finds_nothing_in_a_good_shard(shard: str, capsysbinary: Capture) -> None:
    assert wl(capsysbinary, "lint", shard) == (0, b"", "no problems found\n")


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
