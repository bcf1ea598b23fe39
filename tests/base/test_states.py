"""States: what they are of, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

import webdataset as wds
from webdataset.base.states import about_shards, check_fits, loader_places, loader_state, plain

STATE: dict[str, Any] = {"version": 1, "kind": "stream", "of": {"stages": ["map", "batched"], "shards": 3}}


def test_a_state_fits_what_it_is_of() -> None:
    check_fits(STATE, "stream", {"shards": 3, "stages": ("map", "batched")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 7}, "version 7"),
        ({"kind": "exact"}, "exact"),
        ({"of": {"stages": ["map", "select"], "shards": 3}}, "select"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(wds.StateError, match=message):
        check_fits(STATE | change, "stream", STATE["of"])


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(wds.StateError, match="no state"):
        check_fits({"model": 1}, "stream", {})


def test_the_state_of_a_loader_has_those_of_its_workers() -> None:
    state = loader_state([{**STATE, "mark": 1}, {**STATE, "mark": 2}], 1)
    workers, following = loader_places(STATE["of"], state, 2)
    assert ([each["mark"] for each in workers], following) == ([1, 2], 1)
    with pytest.raises(wds.StateError, match="2 workers"):
        loader_places(STATE["of"], state, 3)


def test_plain_is_what_json_gives_back() -> None:
    assert plain({1: (2, [3])}) == {"1": [2, [3]]}


def shards(names: list[str], **more: Any) -> dict[str, Any]:
    return {"source": {"urls": "".join(names) + str(more), "about": about_shards(names, **more)}, "stages": []}


NAMES = [f"train-{n:03d}.tar" for n in range(12)]


@pytest.mark.parametrize(
    ("saved", "here", "words"),
    [
        (shards(NAMES), shards(NAMES[:-1]), ["12", "11", "train-011.tar"]),
        (shards(NAMES[:7]), shards(NAMES), ["train-007.tar", "train-009.tar", "2 more"]),
        (shards(["a.tar"]), shards(["b.tar"]), ["a.tar", "b.tar"]),
        (shards(NAMES), shards(NAMES[::-1]), ["order"]),
        (shards(NAMES, samples=9), shards(NAMES, samples=8), ["9 samples", "8"]),
        ({"source": {"urls": "x", "shards": 3}}, shards(NAMES), ["3 shards", "12"]),
    ],
)
def test_other_shards_are_told_by_name_and_number(saved: Any, here: Any, words: list[str]) -> None:
    with pytest.raises(wds.StateError) as refused:
        check_fits({"version": 1, "kind": "stream", "of": saved}, "stream", here)
    assert [word for word in words if word not in str(refused.value)] == []


def test_shards_at_another_place_are_told_as_that() -> None:
    saved, here = ({"urls": url, "about": about_shards([url])} for url in ("/old/a.tar", "/new/a.tar"))
    with pytest.raises(wds.StateError, match="another place"):
        check_fits({"version": 1, "kind": "stream", "of": saved}, "stream", here)


def test_of_many_names_that_are_not_numbered_a_state_only_has_the_number() -> None:
    assert about_shards([f"{n * n}.tar" for n in range(100)]) == {"shards": 100}


def test_a_stage_that_is_missing_or_other_is_named() -> None:
    state = {"version": 1, "kind": "stream", "of": {"stages": ["shuffle(5)", "batched(2)"]}}
    with pytest.raises(wds.StateError, match=r"shuffle\(5\) .*map\(f\) "):
        check_fits(state, "stream", {"stages": ["batched(2)", "map(f)"]})
