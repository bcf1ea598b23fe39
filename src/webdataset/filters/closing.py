"""Sources are closed by the stage that reads them, also when its consumer stops early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from webdataset.handlers import Handler, handled, reraise_exception
from webdataset.stages import Filter

R = TypeVar("R")


def close(source: Any) -> None:
    """Close an iterator that can be closed, for example a generator that holds a shard open."""
    closer = getattr(source, "close", None)
    if callable(closer):
        closer()


def closing(source: Any, results: Iterator[R]) -> Iterator[R]:
    """The results, with their source closed as soon as they end or are given up."""
    try:
        yield from results
    finally:
        close(results)
        close(source)


def applied(
    data: Iterable[Any], function: Callable[[Any], R | None], handler: Handler = reraise_exception
) -> Iterator[R]:
    """`handlers.handled`, closing the source at the end."""
    source = iter(data)
    return closing(source, handled(source, function, handler))


def plain(filter: Filter[Any]) -> Callable[..., Any]:
    """The function behind a filter, under the underscore name by which programs import and pickle it."""
    function: Any = filter.function
    function.__name__ = function.__qualname__ = f"_{filter.__name__}"
    return filter.function
