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
STAGES = ("open", "first_byte", "read", "parse", "decode", "map", "batch", "wait", "transfer", "consumer")
"""What a pass spends its time with."""
_TIME = "time:"
"""Seconds are counted under this and the stage's name."""
_ACTIVE = "active"
"""The whole time of those who read: what no stage accounts for is the parser's."""


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

    def spend(self, stage: str, seconds: float) -> None:
        """Add to the time of one of STAGES."""
        self.counts[_TIME + stage] += seconds  # type: ignore[assignment]

    def spent(self, *stages: str) -> float:
        """The seconds of these stages so far."""
        return sum(self.counts[_TIME + stage] for stage in stages)

    def seconds(self) -> dict[str, float]:
        """The time of every stage, in seconds, over all workers.

        >>> report = Report()
        >>> report.spend("decode", 2.0)
        >>> report.seconds()["decode"]
        2.0
        """
        times = {stage: self.spent(stage) for stage in STAGES}
        reading = sum(times[stage] for stage in STAGES if stage not in ("wait", "transfer", "consumer"))
        times["parse"] += max(0.0, self.spent(_ACTIVE) - reading)
        return {stage: round(seconds, 6) for stage, seconds in times.items()}

    def ask(self, handler: Callable[[Exception], Any], exn: Exception, counted_as: str) -> bool:
        """The handler's word on an error, counted; strict mode has no skips."""
        if self.strict:
            raise exn
        go_on = bool(handler(exn))
        self.dropped(counted_as, exn)
        return go_on

    def success_for(self, handler: object) -> Callable[[], Any] | None:
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
            | {name: n for name, n in self.counts.items() if name not in COUNTS and not name.startswith(_TIME)}
            | {"reasons": dict(self.reasons), "seconds": self.seconds()}
        )

    def add(self, other: dict[str, Any]) -> None:
        """Add another report's `as_dict()`, for example a worker's."""
        for name, value in other.items():
            if name == "reasons":
                self.reasons.update(value)
            elif name == "seconds":
                for stage, seconds in value.items():
                    self.spend(stage, seconds)
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


class Watch:
    """Times some of the calls of a function, so that it costs little: the quicker they are, the fewer.

    `left` counts down to the next call that is timed.
    """

    __slots__ = ("_every", "_report", "_stage", "began", "left")

    LONG = 2e-5
    """Calls of this many seconds are all timed."""
    RARELY = 64

    def __init__(self, report: Report, stage: str) -> None:
        self._report = report
        self._stage = stage
        self._every = self.left = 1
        self.began = 0.0

    def ended(self, seconds: float) -> None:
        """The call that was timed took so long."""
        self._report.counts[_TIME + self._stage] += seconds * self._every  # type: ignore[assignment]
        self._every = self.left = 1 if seconds > self.LONG else min(2 * self._every, self.RARELY)


def bound_by(seconds: dict[str, float]) -> str:
    """In a word, what a run spends most of its time with: a stage, or the consumer if it is seldom waited for.

    >>> bound_by({"decode": 5.0, "read": 1.0, "wait": 3.0, "consumer": 1.0})
    'decode'
    >>> bound_by({"decode": 5.0, "read": 1.0, "wait": 0.1, "consumer": 9.0})
    'consumer'
    """
    if seconds.get("consumer", 0.0) > seconds.get("wait", 0.0) + seconds.get("transfer", 0.0):
        return "consumer"
    stages = {stage: time for stage, time in seconds.items() if stage not in ("wait", "consumer")}
    longest = max(stages, key=lambda stage: stages[stage], default="")
    return longest if stages.get(longest) else ""


def _reason(error: Exception) -> str:
    """The kind of trouble, without its place, so that equal troubles add up."""
    message = error.message if isinstance(error, WebDatasetError) else str(error)
    first_line = redacted(message).split("\n", 1)[0][:200]
    return f"{type(error).__name__}: {first_line}"


_local = threading.local()
