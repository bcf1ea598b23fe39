"""Conditions: what they find, and that nothing can be run with them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset.view.conditions import Condition, ConditionError, is_about_keys

SAMPLE: dict[str, Any] = {
    "cls": 3,
    "txt": "A Dog runs",
    "json": {"score": 0.5, "tags": ["a", "b"], "none": None},
    "x.y": 7,
}


def facts(function: str, field: str) -> Any:
    if function == "has":
        return field in SAMPLE
    return len(repr(SAMPLE[field])) and {"size": 100, "width": 64, "height": 48}[function]


def holds(text: str) -> bool:
    return Condition(text).holds(SAMPLE.__getitem__, facts)


@pytest.mark.parametrize("text", [
    "cls == 3", "cls in (1, 2, 3)", "1 < cls <= 3", "not cls == 4", "'Dog' in txt", "txt.lower().startswith('a dog')",
    "len(txt) == 10", "json.score > 0.4 and json['score'] < 0.6", "json.tags[0] == 'a'", "'b' in json.tags",
    "_['x.y'] == 7", "has(cls) and not has('nothing')", "size(txt) == 100", "width(txt) > height(txt)",
    "cls % 2 == 1", "-cls < 0", "json.none is None", "missing == 1 or cls == 3", "not missing == 1", "max(cls, 5) == 5",
    "json.get('score') == 0.5", "cls == 3 and (txt == 'x' or json.tags == ['a', 'b'])",
])  # fmt: skip
def test_it_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize("text", [
    "cls == 4", "missing == 1", "json.missing == 1", "json.tags[9] == 'a'", "size(missing) > 0", "cls.real == 3",
    "txt == 'a dog runs'", "missing > 3 and cls == 3",
])  # fmt: skip
def test_it_does_not_hold(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize("text", [
    "__import__('os').system('true')", "txt.__class__", "(lambda: 1)()", "[x for x in txt]", "open('/etc/passwd')",
    "txt.format(1)", "exec('1')", "cls := 3", "f'{txt}'", "2 ** 10000000", "getattr(txt, 'lower')", "txt.encode()",
    "len(txt, key=1)", "yield 1", "json._x", "1 if cls else 2", "size()", "*txt", "cls << 99999999", "x" * 3000,
    "(" * 500 + ")" * 500, "cls == 3 and " * 100 + "cls == 3", "cls ==", "", "\0",
])  # fmt: skip
def test_whatever_is_more_than_a_condition_is_refused(text: str) -> None:
    with pytest.raises(ConditionError):
        Condition(text)


def test_texts_are_not_multiplied() -> None:
    with pytest.raises(TypeError, match="numbers"):
        holds("txt * 1000000000 == ''")


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with contextlib.suppress(ConditionError):
        Condition(text)


@pytest.mark.parametrize("query", ["000123", "train/star", "n01 x", "a.b-c_d"])
def test_words_are_parts_of_keys(query: str) -> None:
    assert is_about_keys(query)
