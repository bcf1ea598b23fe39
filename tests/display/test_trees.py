"""Values as trees: cut where they would be too much."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from webdataset.display.trees import arrays_in, tree

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(VALUES)
def test_every_value_is_json_that_can_be_sent(value: Any) -> None:
    assert json.dumps(tree(value), allow_nan=False)


def test_long_lists_deep_nests_and_long_texts_are_cut() -> None:
    shown = tree(list(range(100_000)))
    assert (shown["size"], len(shown["items"])) == (100_000, 500)
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert len(json.dumps(tree(deep))) < 5000
    text = tree("x" * 10_000)
    assert (text["size"], len(text["text"])) == (10_000, 4000)


def test_all_nodes_together_are_bounded() -> None:
    shown = tree([[0] * 400] * 400, nodes=1000)
    assert len(json.dumps(shown)) < 20_000


def test_large_and_strange_numbers_stay_themselves() -> None:
    assert tree(2**60) == {"type": "number", "text": str(2**60)}
    assert tree(float("inf")) == {"type": "number", "text": "inf"}
    assert tree(1 << 100_000)["text"] == "100001 bits"


def test_arrays_and_objects_are_told() -> None:
    assert tree({"a": np.zeros((2, 3))})["items"][0][1]["shape"] == [2, 3]
    assert tree(b"bytes") == {"type": "bytes", "text": "b'bytes'"}


def test_arrays_are_found_by_their_path() -> None:
    value = {"a": np.zeros(1), "b": {"c": [np.zeros(2), "text"]}, "d": 3}
    assert {path: len(array) for path, array in arrays_in(value).items()} == {"a": 1, "b.c.0": 2}
    assert list(arrays_in(np.zeros(1))) == [""]
    loop: list[Any] = []
    loop.append(loop)
    assert arrays_in(loop) == {}
