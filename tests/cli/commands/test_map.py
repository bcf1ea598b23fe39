"""wl map."""

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


@pytest.mark.parametrize(
    "code", ["_", "_.copy()", "{**_}", "dict(_)", "[_]", "_['jpg']; _['json']", "_['cls'] = _['cls']"]
)
def test_map_identity_is_the_identity(wl: Any, shard: str, code: str) -> None:
    assert wl("map", "-e", code, shard).out == wl("concat", shard).out


def test_a_number_after_c_is_the_count(wl: Any, shard: str, names: Any) -> None:
    assert len(names(wl("map", "-c", "2", "-e", "_", shard).out)) == 8
