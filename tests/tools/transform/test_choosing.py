"""Samples and fields are chosen, renamed and given new keys."""

from __future__ import annotations

from typing import Any

import pytest

from webdataset.tools.transform.choosing import nested_value


def keys(listed: list[str]) -> list[str]:
    return list(dict.fromkeys(name.split(".")[0] for name in listed))


def test_select_skip_count_and_slice(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(samples=20)
    assert keys(names(wl("concat", "-s", 3, "-c", 2, shard).out)) == ["000003", "000004"]
    assert keys(names(wl("concat", "-S", "cls % 5 == 0", "-s", 1, "-c", 2, shard).out)) == ["000005", "000010"]
    assert keys(names(wl("concat", "--slice", "2:9:3", shard).out)) == ["000002", "000005", "000008"]


def test_fields_are_chosen_and_renamed(wl: Any, make_shard: Any, names: Any) -> None:
    shard = make_shard(samples=1)
    assert names(wl("concat", "-f", "text:foo,txt cls", shard).out) == ["000000.cls", "000000.text"]
    assert names(wl("concat", "-f", "foo;txt", shard).out) == ["000000.txt"]
    wrong = wl("concat", "-f", "clss", shard)
    assert wrong.code == 1
    assert "cls txt" in wrong.err


@pytest.mark.parametrize("pattern", ["#", "%09d", "{index:09d}"])
def test_rekey(wl: Any, make_shard: Any, names: Any, pattern: str) -> None:
    shard = make_shard(samples=2, start=5)
    assert keys(names(wl("concat", "--rekey", pattern, shard).out)) == ["000000000", "000000001"]
    assert keys(names(wl("concat", "--rekey", "x/{key}", shard).out)) == ["x/000005", "x/000006"]
    assert wl("concat", "--rekey", "same", shard).code != 0


def test_a_single_underscore_is_a_field_like_any_other(wl: Any, make_shard: Any, names: Any) -> None:
    assert names(wl("concat", make_shard(files=[("a._x", b"1"), ("a.y", b"2")])).out) == ["a._x", "a.y"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("json.score", 0.5), ("json.boxes.1", "b"), ("json.boxes.-1", "b"), ("a.b", 1), ("x.y.z", 2), ("cls", 7)],
)
def test_a_part_of_a_field_is_named_with_dots(name: str, value: object) -> None:
    sample = {"json": {"score": 0.5, "boxes": ["a", "b"]}, "a.b": 1, "x": {"y": {"z": 2}}, "cls": 7}
    assert nested_value(sample, name) == value


@pytest.mark.parametrize("name", ["json.none", "json.boxes.9", "json.boxes.x", "nothing.here"])
def test_a_part_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises(KeyError):
        nested_value({"json": {"boxes": []}}, name)
