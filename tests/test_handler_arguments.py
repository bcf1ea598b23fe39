"""What is not callable is no handler, wherever one can be given, and that is said when the thing is built."""

from __future__ import annotations

import importlib
import inspect
import io
import pickle
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from webdataset.base.stages import Filter, pipelinefilter
from webdataset.handlers import checked_handler, reraise_exception

NONE_OF_THEM = ["b.tar", Path("b.tar"), ["b.tar"], 3, None]


def test_a_second_url_is_refused_with_the_list_to_pass() -> None:
    with pytest.raises(TypeError, match=r"WebDataset\(\['a.tar', 'b.tar'\]\)"):
        wds.WebDataset("a.tar", "b.tar")
    with pytest.raises(TypeError, match=r"WebDataset\(\['a.tar', 'b.tar'\]\)"):
        wds.WebDataset("a.tar", "b.tar", "c.tar")
    with pytest.raises(TypeError, match=r"WebDataset\(\[PosixPath\('a.tar'\), PosixPath\('b.tar'\)\]\)"):
        wds.WebDataset(Path("a.tar"), Path("b.tar"))


def test_a_secret_of_a_second_url_is_not_told() -> None:
    with pytest.raises(TypeError, match="list") as raised:
        wds.WebDataset("https://host/a.tar?token=hush", "https://host/b.tar?token=hush")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("handler", NONE_OF_THEM, ids=str)
@pytest.mark.parametrize("exact", [False, True])
def test_a_dataset_takes_no_handler_that_is_none(make_shard: Any, handler: Any, exact: bool) -> None:
    shard = make_shard()
    with pytest.raises(TypeError, match="handler"):
        wds.WebDataset(shard, handler=handler, exact=exact)


def filters() -> Iterator[Filter[Any]]:
    """Every filter of the package that takes a handler."""
    found = {}
    for module in pkgutil.walk_packages(wds.__path__, "webdataset."):
        if not module.name.endswith("__main__"):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Filter) and "handler" in inspect.signature(value.function).parameters:
                    found[value.__module__, value.__name__] = value
    return iter(found.values())


FILTERS = {filter.__name__: filter for filter in filters()}


def test_there_are_as_many_filters_with_a_handler_as_one_would_think() -> None:
    assert {"map", "decode", "to_tuple", "batched", "shuffle", "tarfile_samples", "sort_samples"} <= {*FILTERS}


@pytest.mark.parametrize("name", FILTERS)
def test_every_filter_refuses_what_is_no_handler_when_it_is_built(name: str) -> None:
    filter = FILTERS[name]
    default = inspect.signature(filter.function).parameters["handler"].default
    for handler in NONE_OF_THEM:
        if handler is not default:
            with pytest.raises(TypeError, match="handler"):
                filter(handler=handler)
    try:
        filter(handler=wds.warn_and_continue)
        complaint = ""
    except (TypeError, ValueError) as error:
        complaint = str(error)  # of another argument, which is missing
    assert "handler" not in complaint


def test_a_handler_that_is_given_by_its_place_is_looked_at_too() -> None:
    with pytest.raises(TypeError, match="'cls'"):
        wds.map(len, "cls")
    with pytest.raises(TypeError, match=r"'b\.tar'"):
        wds.tarfile_to_samples("b.tar")
    with pytest.raises(TypeError, match="'cls'"):
        wds.WebDataset("a.tar").map(len, "cls")
    wds.map(len, wds.ignore_and_continue)


def test_a_shuffle_may_be_told_that_it_has_no_handler() -> None:
    assert sorted(wds.shuffle(10, handler=None)([1, 2, 3])) == [1, 2, 3]


@pytest.mark.parametrize(
    "build",
    [
        lambda handler: wds.url_opener([], handler=handler),
        lambda handler: wds.tariterators.tar_file_iterator(io.BytesIO(), handler=handler),
        lambda handler: wds.tar_file_expander([], handler=handler),
        lambda handler: wds.group_by_keys([], handler=handler),
        lambda handler: wds.tarfile_samples([], handler),
        lambda handler: wds.filters._map([], len, handler),
        lambda handler: wds.filters._to_tuple([], "cls", handler=handler),
        lambda handler: wds.index([], handler=handler),
        lambda handler: wds.cache.FileCache("cache", handler=handler),
        lambda handler: wds.cache.StreamingOpen(handler=handler),
        lambda handler: wds.cache.cached_url_opener([], handler),
        lambda handler: wds.cache.cached_tarfile_samples([], handler),
        lambda handler: list(wds.cache.cbors_to_samples.function([], handler)),
    ],
)
def test_every_function_refuses_what_is_no_handler_before_it_reads(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for handler in NONE_OF_THEM:
        with pytest.raises(TypeError, match="handler"):
            build(handler)


def test_options_of_a_stream_refuse_what_is_no_handler() -> None:
    with pytest.raises(TypeError, match="'warn'"):
        wds.gopen.set_options(io.BytesIO(), handler="warn")
    assert wds.gopen.set_options(io.BytesIO(), handler=None) is False


@pipelinefilter
def own(data: Any, handler: Any = "skip") -> Any:
    """A filter of a program, whose handlers are something else."""
    return data


@pipelinefilter
def alike(data: Any, handler: Any = reraise_exception) -> Any:
    """A filter of a program, whose handlers are ours."""
    return data


def test_the_filters_of_a_program_may_mean_something_else_by_a_handler() -> None:
    assert [*own("warn")([1]), *own(handler="stop")([2])] == [1, 2]
    with pytest.raises(TypeError, match="'stop'"):
        alike("stop")


def test_a_filter_with_a_handler_can_still_be_pickled() -> None:
    stage = pickle.loads(pickle.dumps(wds.map(len, wds.ignore_and_continue)))
    assert list(stage(["ab", 3])) == [2]


def test_anything_that_can_be_called_is_a_handler() -> None:
    handler = wds.CountingHandler()
    assert checked_handler(handler) is handler
