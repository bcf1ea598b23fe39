"""What a pass has read, dropped and why, and how strict it is about that.

A report is in force while the stages of a pass are built; each stage keeps the one it was built under. So nested and
interleaved pipelines count apart, at no cost per sample.

>>> report = Report()
>>> with report.in_force():
...     current_report() is report
True
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from webdataset.errors import ShardError, ShardWarning, WebDatasetError

from .redact import redacted
from .settings import settings

COUNTS = (
    "shards_read",
    "shards_retried",
    "shards_skipped",
    "samples_read",
    "samples_dropped",
    "members_dropped",
    "bytes_read",
    "retries",
    "waits",
    "wait_seconds",
    "warnings",
)
MAX_REASONS = 100


class Report:
    """Counts of one pass over a dataset.

    >>> report = Report()
    >>> report.count("samples_read", 10)
    >>> report.dropped("samples_dropped", ValueError("bad png"))
    >>> report.as_dict()["samples_read"], report.as_dict()["reasons"]
    (10, {'ValueError: bad png': 1})
    """

    def __init__(self, *, strict: bool | None = None) -> None:
        self.strict = settings.strict if strict is None else strict
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def count(self, name: str, n: float = 1) -> None:
        """Add to one of COUNTS."""
        self.counts[name] += n  # type: ignore[assignment]  # seconds are not whole

    def dropped(self, name: str, reason: Exception | str) -> None:
        """Count something that was left out, and why."""
        self.counts[name] += 1
        text = reason if isinstance(reason, str) else _reason(reason)
        if text not in self.reasons and len(self.reasons) >= MAX_REASONS:
            text = "other reasons"
        self.reasons[text] += 1

    def ask(self, handler: Callable[[Exception], Any], exn: Exception, counted_as: str) -> bool:
        """The handler's word on an error, counted; strict mode has no skips."""
        if self.strict:
            raise exn
        go_on = bool(handler(exn))
        self.dropped(counted_as, exn)
        return go_on

    def success_for(self, handler: Any) -> Callable[[], Any] | None:
        """What to call after an item came through, for handlers that want to know."""
        return getattr(handler, "succeeded", None)

    def warn(self, message: str, **places: Any) -> None:
        """One counted warning about a place in the data; an error in strict mode."""
        error = ShardError(message, **places)
        if self.strict:
            error.hint = "strict mode is on: strict=False delivers what is there"
            raise error
        self.counts["warnings"] += 1
        warnings.warn(str(error), ShardWarning, stacklevel=3)

    def as_dict(self) -> dict[str, Any]:
        """The counts as plain data, every name of COUNTS present."""
        counts: dict[str, Any] = {name: self.counts[name] for name in COUNTS}
        return (
            counts
            | {"wait_seconds": round(counts["wait_seconds"], 3)}
            | {name: n for name, n in self.counts.items() if name not in COUNTS}
            | {"reasons": dict(self.reasons)}
        )

    def add(self, other: dict[str, Any]) -> None:
        """Add another report's `as_dict()`, for example a worker's."""
        for name, value in other.items():
            if name == "reasons":
                self.reasons.update(value)
            else:
                self.counts[name] += value

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Stages built inside this block report here."""
        outer = put_in_force(self)
        try:
            yield
        finally:
            put_in_force(outer)


def put_in_force(report: Report | None) -> Report | None:
    """Put a report in force, or none, and return the one that was."""
    outer: Report | None = getattr(_local, "report", None)
    _local.report = report
    return outer


def current_report() -> Report:
    """The report in force, or a fresh one for a stage that is used on its own."""
    report = getattr(_local, "report", None)
    return Report() if report is None else report


def _reason(error: Exception) -> str:
    """The kind of trouble, without its place, so that equal troubles add up."""
    message = error.message if isinstance(error, WebDatasetError) else str(error)
    first_line = redacted(message).split("\n", 1)[0][:200]
    return f"{type(error).__name__}: {first_line}"


_local = threading.local()
