"""A shard of every kind of field, and commands that look at it."""

from __future__ import annotations

import io
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


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    """Exit code, stdout, stderr."""
    code = main(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def mixed_shard(make_shard: Callable[..., str]) -> str:
    """Ten samples, the class of each its number modulo 3."""
    array = io.BytesIO()
    np.save(array, np.zeros((2, 3), np.float32))
    fields = {"cls": b"%d", "json": b'{"n": %d}', "npy": array.getvalue(), "png": picture(), "txt": b"hello"}
    files = [
        (f"s{i}.{name}", data % (i % 3) if b"%d" in data else data) for i in range(10) for name, data in fields.items()
    ]
    return make_shard("a.tar", files=files)
