"""Composing: functions of functions, and streams through stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from webdataset.base.stages import Filter, Stage

T = TypeVar("T")


def identity(x: T) -> T:
    """The argument.

    >>> identity(3)
    3
    """
    return x


def compose2(f: Callable[[Any], Any], g: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """First `f`, then `g`."""
    return compose(f, g)


def compose(*args: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One function that applies several, the first one first.

    >>> compose(str.strip, int)(" 7 ")
    7
    """
    return Composed(args)


class Composed:
    """Functions applied one after another; it pickles if they do."""

    def __init__(self, functions: Iterable[Callable[[Any], Any]]) -> None:
        self.functions = tuple(functions)

    def __call__(self, x: object) -> Any:
        for function in self.functions:
            x = function(x)
        return x


def pipeline(source: object, *args: Callable[[Any], Any]) -> Any:
    """Send a source through stages.

    >>> from webdataset.filters import map
    >>> list(pipeline(["1", "2"], map(int)))
    [1, 2]
    """
    return Composed(args)(source)


class FilterFunction(Stage):
    """A function with its options, waiting for the source: the old way to write a stage."""

    def __init__(self, f: Callable[..., Any], *args: object, **kw: object) -> None:
        super().__init__(Filter(f), args, kw)


RestCurried = Curried = Filter
