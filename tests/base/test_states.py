"""States: what they are of, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

import webdataset as wds
from webdataset.base.states import check_fits, loader_places, loader_state, plain

STATE: dict[str, Any] = {"version": 1, "kind": "stream", "of": {"stages": ["map", "batched"], "shards": 3}}


def test_a_state_fits_what_it_is_of() -> None:
    check_fits(STATE, "stream", {"shards": 3, "stages": ("map", "batched")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "version 7; this program knows version 1"),
        ({"kind": "exact"}, "that of an exact dataset, not of a streamed dataset"),
        ({"of": {"stages": ["map", "select"], "shards": 3}}, r"stages\[1\] was 'select' and is 'batched'"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(wds.StateError, match=message):
        check_fits(STATE | change, "stream", STATE["of"])


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(wds.StateError, match="no state of a dataset"):
        check_fits({"model": 1}, "stream", {})


def test_the_state_of_a_loader_has_those_of_its_workers() -> None:
    state = loader_state([{**STATE, "mark": 1}, {**STATE, "mark": 2}], 1)
    workers, following = loader_places(STATE["of"], state, 2)
    assert ([each["mark"] for each in workers], following) == ([1, 2], 1)
    with pytest.raises(wds.StateError, match="with 2 workers, and this one has 3"):
        loader_places(STATE["of"], state, 3)


def test_plain_is_what_json_gives_back() -> None:
    assert plain({1: (2, [3])}) == {"1": [2, [3]]}
