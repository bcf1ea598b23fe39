"""States: what they are of, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webdataset as wds
from webdataset.base.states import _names, about_shards, check_fits, loader_places, loader_state, plain

STATE: dict[str, Any] = {"version": 1, "kind": "stream", "of": {"stages": ["map", "batched"], "shards": 3}}


def test_a_state_fits_what_it_is_of() -> None:
    check_fits(STATE, "stream", {"shards": 3, "stages": ("map", "batched")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "version 7; this program knows version 1"),
        ({"kind": "exact"}, "that of an exact dataset, not of a streamed dataset"),
        ({"of": {"stages": ["map", "select"], "shards": 3}}, "the stage select is batched here"),
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


def shards(names: list[str], **more: Any) -> dict[str, Any]:
    return {"source": {"urls": "".join(names) + str(more), "about": about_shards(names, **more)}, "stages": []}


NAMES = [f"train-{n:03d}.tar" for n in range(12)]


@pytest.mark.parametrize(
    ("saved", "here", "words"),
    [
        (shards(NAMES), shards(NAMES[:-1]), "of 12 shards, here are 11: train-011.tar is missing here"),
        (shards(NAMES[:7]), shards(NAMES), "train-007.tar, train-008.tar, train-009.tar and 2 more are new"),
        (shards(["a.tar"]), shards(["b.tar"]), "of 1 shard, here is 1: a.tar is missing here, and b.tar is new"),
        (shards(NAMES), shards(NAMES[::-1]), "its 12 shards come in another order"),
        (shards(NAMES, samples=9), shards(NAMES, samples=8), "its 12 shards had 9 samples, and have 8"),
        ({"source": {"urls": "x", "shards": 3}}, shards(NAMES), "it is of 3 shards, and here are 12"),
    ],
)
def test_other_shards_are_told_by_name_and_number(saved: Any, here: Any, words: str) -> None:
    with pytest.raises(wds.StateError) as refused:
        check_fits({"version": 1, "kind": "stream", "of": saved}, "stream", here)
    assert words in str(refused.value)


def test_shards_at_another_place_are_told_as_that() -> None:
    saved, here = ({"urls": url, "about": about_shards([url])} for url in ("/old/a.tar", "/new/a.tar"))
    with pytest.raises(wds.StateError, match="its 1 shard have the same names, but lie in another place"):
        check_fits({"version": 1, "kind": "stream", "of": saved}, "stream", here)


@given(st.lists(st.from_regex(r"[ab]{0,2}[0-9]{1,3}(\.tar)?", fullmatch=True), max_size=12))
def test_names_in_short_are_the_names(names: list[str]) -> None:
    assert _names(about_shards(names)["names"]) == names


def test_of_many_names_that_are_not_numbered_a_state_only_has_the_number() -> None:
    assert about_shards([f"{n * n}.tar" for n in range(100)]) == {"shards": 100}


def test_a_stage_that_is_missing_or_other_is_named() -> None:
    state = {"version": 1, "kind": "stream", "of": {"stages": ["shuffle(5)", "batched(2)"]}}
    with pytest.raises(wds.StateError, match=r"the stage shuffle\(5\) is missing here; the stage map\(f\) is new here"):
        check_fits(state, "stream", {"stages": ["batched(2)", "map(f)"]})
