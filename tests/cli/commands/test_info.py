"""wl info."""

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


def test_info_describes_the_fields(shard: str, capsysbinary: Capture) -> None:
    code, out, err = wl(capsysbinary, "info", shard)
    text = out.decode()
    assert (code, err) == (0, "")
    assert text.startswith("10 samples, ")
    assert "shape   6 x 8 x 3" in text
    assert "shape   2 x 3" in text
    assert "dtype   float32" in text


def test_info_is_there_for_programs(shard: str, capsysbinary: Capture) -> None:
    facts = json.loads(wl(capsysbinary, "info", "--json", "-c", "4", shard)[1])
    assert facts["samples"] == 4
    assert facts["fields"]["cls"]["range"] == [0, 2]


def test_info_says_when_it_did_not_look_at_all(shard: str, capsysbinary: Capture) -> None:
    assert b"only the first 4 samples" in wl(capsysbinary, "info", "-c", "4", shard)[1]
    assert b"only" not in wl(capsysbinary, "info", "-c", "0", shard)[1]
