"""What to do with an error: a handler is a function of the exception.

True means skip the item and go on, False means end the stream quietly, or it raises.

>>> list(handled(["1", "x", "3"], int, ignore_and_continue))
[1, 3]
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, TypeVar

from .base.redact import redacted
from .base.reports import Report, Watch, current_report
from .errors import DecodingError, WebDatasetError

Handler = Callable[[Exception], Any]
T = TypeVar("T")


def reraise_exception(exn: Exception) -> bool:
    """Stop with the error `exn` (the default everywhere)."""
    raise exn


def ignore_and_continue(exn: Exception) -> bool:
    """Skip the item that had the error `exn` and go on; `dataset.stats()` counts it."""
    return True


def ignore_and_stop(exn: Exception) -> bool:
    """End the stream at the error `exn`, quietly."""
    return False


def warn_and_continue(exn: Exception) -> bool:
    """Warn of the error `exn`, skip the item and go on."""
    warnings.warn(redacted(repr(exn)), stacklevel=2)
    return True


def warn_and_stop(exn: Exception) -> bool:
    """Warn of the error `exn` and end the stream."""
    warnings.warn(redacted(repr(exn)), stacklevel=2)
    return False


HANDLERS = (reraise_exception, ignore_and_continue, ignore_and_stop, warn_and_continue, warn_and_stop)


def checked_handler(handler: object, *, cure: str = "") -> Handler:
    """The handler, if it is one; everything that takes a handler asks here, when it is built.

    >>> checked_handler("b.tar")
    Traceback (most recent call last):
    TypeError: a handler is a function of the exception, not 'b.tar'; several urls are passed as one list
    """
    if callable(handler):
        return handler
    if not cure:
        several = isinstance(handler, (str, bytes, os.PathLike, list, tuple))
        cure = "several urls are passed as one list" if several else "for example wds.warn_and_continue"
    raise TypeError(redacted(f"a handler is a function of the exception, not {handler!r}; {cure}"))


class CountingHandler:
    """Skip errors and count them by kind; too many in all, or too many in a row, raise.

    Args:
        max_errors: how many errors are skipped in all; None for any number
        max_consecutive: how many are skipped in a row; None for any number

    >>> handler = CountingHandler(max_errors=2)
    >>> list(handled(["1", "x", "3"], int, handler)), handler.total
    ([1, 3], 1)
    """

    def __init__(self, *, max_errors: int | None = None, max_consecutive: int | None = None) -> None:
        self.max_errors = max_errors
        self.max_consecutive = max_consecutive
        self.errors: dict[str, int] = {}
        self.total = 0
        self.consecutive = 0

    def __call__(self, exn: Exception) -> bool:
        kind = type(exn).__name__
        self.errors[kind] = self.errors.get(kind, 0) + 1
        self.total += 1
        self.consecutive += 1
        if self.max_errors is not None and self.total > self.max_errors:
            raise exn
        if self.max_consecutive is not None and self.consecutive > self.max_consecutive:
            raise exn
        return True

    def succeeded(self) -> None:
        """Note that an item came through, so that no errors are in a row."""
        self.consecutive = 0


def handled(
    data: Iterable[Any],
    function: Callable[[Any], T | None],
    handler: Handler = reraise_exception,
    *,
    counted_as: str = "samples_dropped",
    stage: str = "map",
) -> Iterator[T]:
    """Apply a function to every item and ask the handler about errors; a result of None drops the item.

    This is the one loop in which stages meet errors, and in which their time is taken, as that of `stage`. The report
    is taken when the stage is built, and the source is closed at the end, also when the consumer stops early.
    """
    report = current_report()
    return _handled(data, function, checked_handler(handler), counted_as, report, Watch(report, stage))


def _handled(  # noqa: PLR0917 - called in one place
    data: Iterable[Any],
    function: Callable[[Any], T | None],
    handler: Handler,
    counted_as: str,
    report: Report,
    watch: Watch,
) -> Iterator[T]:
    source = iter(data)
    succeeded = report.success_for(handler)
    left = 1
    try:
        for item in source:
            left -= 1
            try:
                if left:
                    result = function(item)
                else:
                    began = perf_counter()
                    result = function(item)
                    watch.ended(perf_counter() - began)
                    left = watch.left
            except Exception as exn:
                left = left or 1
                if ask(handler, placed(exn, item), report, counted_as):
                    continue
                return
            if succeeded is not None:
                succeeded()
            if result is not None:
                yield result
    finally:
        close(source)


def close(source: object) -> None:
    """Close an iterator that can be closed, for example a generator that holds a shard open."""
    closer = getattr(source, "close", None)
    if callable(closer):
        closer()


def ask(handler: Handler, exn: Exception, report: Report, counted_as: str) -> bool:
    """Ask the handler about an error, and count it; strict mode raises instead of skipping."""
    return report.ask(handler, exn, counted_as)


def placed(exn: Exception, item: object) -> Exception:
    """The same error, with the sample it happened in."""
    if not isinstance(item, dict):
        return exn
    key, url = item.get("__key__"), item.get("__url__")
    if isinstance(exn, WebDatasetError):
        return exn if isinstance(exn, DecodingError) and exn.key else exn.at(key=key, url=url)
    if key is not None or url is not None:
        exn.add_note(f"in sample {key!r}" + (f" of {redacted(str(url))}" if url is not None else ""))
    return exn
