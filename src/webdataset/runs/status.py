"""How far a run is, from its plan and its records alone, so that anybody can ask at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .generations import generations
from .plans import without_collector
from .records import DONE, AttemptRecord, RecordReader, rates
from .runs import Run, Standing

MOST_SHOWN = 1000


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
    reader, ended = RecordReader(run.place), Counter[str]()
    failed: dict[str, dict[str, Any]] = {}
    done: dict[str, tuple[int, int, int]] = {}
    """Samples, dropped ones and bytes of each item: one that was done twice is counted once."""

    def seen() -> Iterator[dict[str, Any]]:
        for record in reader.ended():
            began = record.get("time", 0.0)
            status.first = min(status.first or began, began)
            status.last = max(status.last, began + record.get("seconds", 0.0))
            ended[record.get("generation", "")] += 1
            if record["status"] == DONE:
                amounts = (record.get("samples_out", 0), record.get("dropped", 0), record.get("bytes_in", 0))
                done[record["item"]] = amounts
            elif record.get("final"):
                failed[record["item"]] = record
            yield record

    with without_collector(), run.place.understood("records"):
        for _, item, standing in run.standings(plan, seen()):
            status.standings[standing] += 1
            if standing is Standing.FAILED:
                status.failures.append(AttemptRecord.of(failed[item.name]))
        status.samples, status.dropped, status.bytes = map(sum, zip((0, 0, 0), *done.values(), strict=True))
    status.attempts = reader.begun.total()
    newest = generations(run.place)[-1]  # attempts of older ones are over
    status.running = max(reader.begun[newest] - ended[newest], 0)
    return status
