"""What stages declare, and what is taken of those that declare nothing."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import pytest

import webdataset as wds
from webdataset import filters
from webdataset.base.behaviour import UNDECLARED, Behaviour, behaves, behaviour_of


def doubled(data: Any) -> Any:
    return (2 * item for item in data)


def test_a_plain_function_declares_nothing() -> None:
    assert behaviour_of(doubled) is UNDECLARED
    assert behaviour_of(wds.pipelinefilter(doubled)()) is UNDECLARED


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="maps"):
        wds.pipelinefilter(kind="maps")  # type: ignore[call-overload]


def test_kinds_for_each_item_run_in_a_pool() -> None:
    assert wds.pipelinefilter(kind="each")(doubled).per_sample
    assert wds.pipelinefilter(per_sample=True)(doubled).per_sample
    assert not wds.pipelinefilter(kind="counts")(doubled).per_sample
    assert behaviour_of(partial(map, str)).kind == "each"


def test_an_attribute_of_that_name_that_is_something_else_counts_for_nothing() -> None:
    class Stage:
        behaviour = "good"

    assert behaviour_of(Stage()) is UNDECLARED


def test_every_filter_of_ours_declares_what_it_does() -> None:
    undeclared = [name for name, filter in filters.declared().items() if filter.behaviour == UNDECLARED]
    assert undeclared == ["pipe", "then"]  # what the user's function does is not known


def test_a_declaration_is_inherited_and_can_be_pickled() -> None:
    @behaves("holds", "it waits")
    class Waiting:
        pass

    class More(Waiting):
        pass

    assert behaviour_of(More()) == Behaviour("holds", "it waits")
    filter = wds.pipelinefilter(kind="each")(doubled)
    assert pickle.loads(pickle.dumps(filter)).behaviour == filter.behaviour
