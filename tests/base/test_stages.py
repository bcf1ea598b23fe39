"""One declaration gives a curried function, a stage and a method."""

from __future__ import annotations

import pickle
from itertools import islice
from typing import Any

import pytest

import webdataset as wds
from webdataset.base.stages import Filter, PipelineStage, Stage, start


@wds.pipelinefilter(kind="counts")
def every(data: Any, n: int, *, first: int = 0) -> Any:
    """Every n-th item."""
    return islice(data, first, None, n)


class Own(wds.FluidWrapper):
    every = wds.fluent(every)


def test_a_filter_is_a_stage_and_a_method() -> None:
    assert list(every(2)(range(5))) == list(Own(range(5)).every(2)) == [0, 2, 4]
    assert list(every.function(range(5), 2, first=1)) == [1, 3]
    assert Own.every is every
    assert every.__doc__ == "Every n-th item."


def test_a_stage_knows_its_options() -> None:
    assert every(3).options() == {"n": 3, "first": 0}
    assert repr(every(3, first=1)) == "<every (3,) {'first': 1}>"


def test_filters_and_stages_pickle() -> None:
    assert pickle.loads(pickle.dumps(every)) is every
    assert list(pickle.loads(pickle.dumps(every(2)))(range(3))) == [0, 2]
    assert isinstance(Filter(len)(), Stage)


def test_wrong_options_of_an_eager_filter_are_refused_at_once() -> None:
    @wds.pipelinefilter(eager=True)
    def checked(data: Any, n: int) -> Any:
        if n < 0:
            raise ValueError(n)
        return data

    with pytest.raises(ValueError, match="-1"):
        checked(-1)


def test_a_stage_that_is_an_object_defines_run() -> None:
    with pytest.raises(NotImplementedError, match="must define run"):
        start(PipelineStage(), [])
    with pytest.raises(ValueError, match="no pipeline stage"):
        start(7, [])
