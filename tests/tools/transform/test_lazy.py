"""Fields are decoded when they are accessed, and encoded only if they were changed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from tests_support import tar_bytes
from webdataset.tools.transform.lazy import LazySample


def jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    fields = {"cls": b"%d", "jpg": jpeg(), "json": b'{"n": %d,  "spaced": true}', "txt": b"number %d"}
    files = [(f"{i:03d}.{ext}", data % i if ext != "jpg" else data) for i in range(10) for ext, data in fields.items()]
    return make_shard("in.tar", files=files)


def test_statements_change_one_field_and_leave_the_rest_byte_for_byte(wl: Any, shard: str, members: Any) -> None:
    ended = wl("map", "-c", '_["cls"] -= 1', shard)
    assert (ended.code, ended.told) == (0, "")
    before, after = members(shard), members(ended.out)
    assert after["003.cls", b"2"] == 1
    assert {item for item in before if not item[0].endswith(".cls")} <= set(after)


def test_a_value_changed_in_place_is_written(wl: Any, shard: str, members: Any) -> None:
    out = members(wl("map", "-e", "_['json']['n'] += 100; _['jpg'][:] = 0", shard).out)
    assert json.loads(next(data for name, data in out if name == "003.json"))["n"] == 103
    picture = next(data for name, data in out if name == "003.jpg")
    assert np.asarray(Image.open(io.BytesIO(picture))).max() < 5


def test_a_typo_in_a_field_lists_the_fields(wl: Any, shard: str) -> None:
    for code in ('_["clss"] -= 1', "clss"):
        ended = wl("map", "-e", code, shard)
        assert ended.code == 1
        assert "cls jpg json txt" in ended.err


def test_raw_leaves_bytes(wl: Any, shard: str, members: Any) -> None:
    assert members(wl("map", "-d", "raw", "-e", "_['cls'] += b'!'", shard).out)["003.cls", b"3!"] == 1


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    contents=st.lists(st.dictionaries(st.sampled_from(["a", "b.c", "bin", "xyz"]), st.binary(max_size=600), min_size=1))
)
def test_identity_keeps_every_byte(wl: Any, tmp_path: Path, members: Any, contents: list[dict[str, bytes]]) -> None:
    files = [(f"{n}.{ext}", data) for n, fields in enumerate(contents) for ext, data in sorted(fields.items())]
    (tmp_path / "in.tar").write_bytes(tar_bytes(files))
    assert members(wl("map", "-e", "_", tmp_path / "in.tar").out) == members(tmp_path / "in.tar")


@pytest.mark.parametrize("code", ["dict(_, cls=cls + 1)", '{**_, "cls": cls + 1}', '_ | {"cls": cls + 1}'])
def test_a_changed_copy_decodes_only_what_the_code_uses(wl: Any, make_shard: Any, members: Any, code: str) -> None:
    shard = make_shard(files=[("a.jpg", b"no image at all"), ("a.cls", b"7"), ("b.jpg", b"x"), ("b.cls", b"8")])
    ended = wl("map", "-e", code, shard)
    assert (ended.code, ended.told) == (0, "")
    assert sorted(members(ended.out)) == [
        ("a.cls", b"8"),
        ("a.jpg", b"no image at all"),
        ("b.cls", b"9"),
        ("b.jpg", b"x"),
    ]


def test_a_changed_copy_is_a_sample_of_values() -> None:
    sample = LazySample({"__key__": "a", "cls": b"7", "json": b"[1, 2]"})
    copy = sample.changed({"txt": "new"}, cls=8)
    assert (copy["cls"], copy["json"], copy["txt"], sample["cls"]) == (8, [1, 2], "new", 7)
    assert copy.encoded() == {"__key__": "a", "cls": b"8", "json": b"[1, 2]", "txt": b"new"}
    assert (sample | {"cls": 3})["cls"] == 3
