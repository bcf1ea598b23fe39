"""How far a run is, from its plan and its records alone, so that anybody can ask at any time."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .records import DONE, ENDED, START, AttemptRecord, rates
from .runs import Run, Standing

MOST_SHOWN = 1000
QUIET = 24 * 3600.0
"""An attempt that began longer ago than this, and never ended, does not run any more."""


@dataclass
class RunStatus:
    """What is known of a run."""

    url: str
    engine: str
    total: int
    standings: Counter[str] = field(default_factory=Counter)
    running: int = 0
    samples: int = 0
    dropped: int = 0
    bytes: int = 0
    first: float = 0.0
    last: float = 0.0
    attempts: int = 0
    failures: list[AttemptRecord] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return the status as plain data."""
        seconds = max(self.last - self.first, 1e-9)
        done = self.standings[Standing.DONE]
        left = self.total - done - len(self.failures)
        return {
            "run": self.url,
            "engine": self.engine,
            "total": self.total,
            "done": done,
            "failed": len(self.failures),
            "stale": self.standings[Standing.STALE],
            "running": self.running,
            "attempts": self.attempts,
            "samples": self.samples,
            "dropped": self.dropped,
            "bytes": self.bytes,
            "seconds": round(seconds, 1),
            **rates(self.samples, self.bytes, seconds),
            "eta": round(seconds / done * left, 1) if done and self.running else None,
            "failures": [{"item": record.item, "error": record.error} for record in self.failures[:MOST_SHOWN]],
        }

    def text(self) -> str:
        """Return the status as lines."""
        facts = self.facts()
        lines = [f"run       {self.url}", f"engine    {self.engine}", f"shards    {self.total}"]
        shown = ("done", "stale", "failed", "running", "attempts", "samples", "dropped")
        lines += [f"{name:<10}{facts[name]}" for name in shown if facts[name] or name == "done"]
        lines.append(f"{'rate':<10}{facts['samples_per_second']:.0f} samples/s, {facts['mb_per_second']:.1f} MB/s")
        lines += [f"  {record.item}: {record.error}" for record in self.failures[:MOST_SHOWN]]
        return "\n".join(lines) + "\n"


def status_of(run: Run) -> RunStatus:
    """Return how far a run is."""
    plan = run.plan()
    status = RunStatus(run.url, str(run.facts().get("engine", "")), plan.count)
    open_attempts: dict[tuple[str, int, str], float] = {}
    failed: dict[str, AttemptRecord] = {}
    done: dict[str, AttemptRecord] = {}
    """The latest of each item: one that was done twice is counted once."""
    for record in run.records():
        _count(status, record, open_attempts)
        if record.final and record.status != DONE:
            failed[record.item] = record
        elif record.status == DONE:
            done[record.item] = record
            failed.pop(record.item, None)
    status.samples = sum(record.samples_out or 0 for record in done.values())
    status.dropped = sum(record.dropped or 0 for record in done.values())
    status.bytes = sum(record.bytes_in or 0 for record in done.values())
    for _, item, standing in run.standings(plan):
        status.standings[standing] += 1
        if standing is Standing.FAILED:
            status.failures.append(failed[item.name])
    recent = time.time() - QUIET
    status.running = len({key[0] for key, began in open_attempts.items() if began > recent} - set(failed))
    return status


def _count(status: RunStatus, record: AttemptRecord, open_attempts: dict[tuple[str, int, str], float]) -> None:
    end = record.time + record.seconds
    status.first = min(status.first or record.time, record.time)
    status.last = max(status.last, end)
    key = (record.item, record.attempt, record.plan)
    if record.status == START:
        status.attempts += 1
        open_attempts[key] = record.time
    elif record.status in ENDED:
        open_attempts.pop(key, None)
