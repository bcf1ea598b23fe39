"""One declaration gives a curried function, a stage and a method."""

from __future__ import annotations

import inspect
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
    with pytest.raises(NotImplementedError, match="run"):
        start(PipelineStage(), [])
    with pytest.raises(ValueError, match="stage"):
        start(7, [])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: every(2, frist=1), "'first'"),
        (lambda: every(2, colour=1), "colour'$"),
        (lambda: every(1, 2, 3), "got 3"),
        (lambda: every(2, n=2), "'n'"),
        (lambda: every(first=2), "'n'"),
        (lambda: Own([]).shuffle(10, initail=3), "'initial'"),
        (lambda: wds.batched(2, partail=True), "'partial'"),
        (lambda: wds.rename(kepe=False, image="jpg"), "'keep'"),
        (lambda: wds.map_dict(handlr=wds.warn_and_continue), "'handler'"),
        (lambda: wds.map(3), "got 3"),
        (lambda: wds.plan("a.tar", rnks=8), "'ranks'"),
        (lambda: wds.RandomMix([[1]], prbs=[1]), "'probs'"),
        (lambda: wds.ShardWriter("a-%d.tar", maxcuont=1), "'maxcount'"),
        (lambda: wds.ShardWriter("a-%d.tar", compres="gz"), "'compress'"),
        (lambda: wds.WebDataset("a.tar", shardshufle=9), "'shardshuffle'"),
        (lambda: wds.WebLoader([], num_wrokers=2), "'num_workers'"),
        (lambda: wds.WebLoader([], prefetch=2, workers="thread"), "'prefetch'"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(call: Any, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        call()


def test_a_wrong_image_spec_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ValueError, match="'rgb'"):
        wds.decode("rbg")


def test_fields_may_be_called_anything() -> None:
    (sample,) = wds.map_dict(handle=len)([{"handle": "abc"}])
    assert sample == {"handle": 3}


def test_signatures_are_those_of_the_options() -> None:
    shown = {name: [*inspect.signature(getattr(Own([]), name)).parameters] for name in ("every", "batched", "shuffle")}
    assert shown["every"] == ["n", "first"]
    assert shown["batched"] == ["batchsize", "collation_fn", "partial", "handler"]
    assert shown["shuffle"] == ["size", "initial", "rng", "seed", "handler", "max_bytes"]
    assert [*inspect.signature(every).parameters] == ["n", "first"]
    assert [*inspect.signature(wds.WebDataset.plan).parameters] == ["self", "ranks", "workers", "epoch"]
    loader = [*inspect.signature(wds.WebLoader).parameters]
    assert loader[:3] == ["dataset", "batch_size", "shuffle"]
    assert {"num_workers", "pin_memory", "prefetch_factor", "workers", "persistent_workers"} <= {*loader}
