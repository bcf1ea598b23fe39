"""Sources are closed by the stage that reads them, also when its consumer stops early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from webdataset.base.stages import Filter
from webdataset.handlers import close

R = TypeVar("R")


def closing(source: Any, results: Iterator[R]) -> Iterator[R]:
    """The results, with their source closed as soon as they end or are given up."""
    try:
        yield from results
    finally:
        close(results)
        close(source)


def plain(filter: Filter[Any]) -> Callable[..., Any]:
    """The function behind a filter, under the underscore name by which programs import and pickle it."""
    function: Any = filter.function
    function.__name__ = function.__qualname__ = f"_{filter.__name__}"
    return filter.function
