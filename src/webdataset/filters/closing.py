"""Sources are closed by the stage that reads them, also when its consumer stops early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from webdataset.handlers import close

R = TypeVar("R")


def closing(source: object, results: Iterator[R]) -> Iterator[R]:
    """The results, with their source closed as soon as they end or are given up."""
    try:
        yield from results
    finally:
        close(results)
        close(source)
