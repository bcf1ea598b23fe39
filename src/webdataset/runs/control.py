"""Carry out a plan: submit tasks, follow the records, submit again what was lost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .engines.base import Engine
from .outcomes import Verdict
from .plans import RunPlan
from .records import DONE, LOST, START, AttemptRecord, RecordReader, RecordWriter, rates
from .runs import Run

POLL_SECONDS = 0.5


@dataclass
class RunCounts:
    """What has happened so far."""

    total: int
    """Items of the plan."""
    skipped: int = 0
    """Items that were done before."""
    done: int = 0
    failed: int = 0
    running: int = 0
    samples: int = 0
    dropped: int = 0
    bytes: int = 0
    began: float = field(default_factory=time.time)

    @property
    def seconds(self) -> float:
        return max(time.time() - self.began, 1e-9)

    @property
    def left(self) -> float | None:
        """Seconds until everything is done, if that can be told."""
        wanted = self.total - self.skipped
        ended = self.done + self.failed
        return None if not ended else self.seconds / ended * (wanted - ended)

    def facts(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        eta = None if self.left is None else round(self.left, 1)
        counts = {name: getattr(self, name) for name in COUNTED}
        return {
            **counts,
            "seconds": round(self.seconds, 3),
            **rates(self.samples, self.bytes, self.seconds),
            "eta": eta,
        }


COUNTED = ("total", "skipped", "done", "failed", "running", "samples", "dropped", "bytes")


class RunController:
    """Does the items of a plan on an engine; iterate over it to hear of each item that is done or given up."""

    def __init__(self, run: Run, plan: RunPlan, engine: Engine, numbers: list[int], *, poll: float | None = None):
        self.run, self.plan, self.engine, self.numbers = run, plan, engine, numbers
        self.counts = RunCounts(plan.count, plan.count - len(numbers))
        self.failures: list[AttemptRecord] = []
        self.stopped = ""
        """Why the run was ended early."""
        self.poll_seconds = poll or engine.poll_seconds
        self._open = set(numbers)
        self._reader = RecordReader(run.place)

    def __iter__(self) -> Iterator[AttemptRecord]:
        for heard in self.events():
            if heard is not None:
                yield heard

    def submit(self) -> dict[str, Any]:
        """Submit everything that is open, and return what the engine needs to find it again."""
        self._reader.skip()
        per_task = self.plan.options.shards_per_task or self.engine.shards_per_task(len(self._open))
        submission = self.run.submission(self.plan, self.engine.name, sorted(self._open), per_task)
        self.engine.submit(submission)
        self.run.save(submission)
        return submission.handle

    def events(self) -> Iterator[AttemptRecord | None]:
        """Yield what happens, and None from time to time, so that progress can be shown."""
        rounds = self.plan.options.retries + 1
        for number in range(rounds if self._open else 0):
            self.submit()
            yield from self._followed()
            if not self._open or self.stopped:
                break
            yield from self._lost(last=number == rounds - 1)

    def attached(self) -> Iterator[AttemptRecord | None]:
        """The same for tasks that another process has submitted."""
        yield from self._followed()

    def cancel(self) -> None:
        """End what was submitted."""
        self.engine.cancel()

    def _followed(self) -> Iterator[AttemptRecord | None]:
        finished, looked = False, 0.0
        while not finished and not self.stopped:
            ended = self.engine.poll(self.poll_seconds)
            finished = self.engine.finished
            yield from self._heard(self._reader.new() if ended is None else ended)
            if finished or time.monotonic() - looked > self.poll_seconds:  # a cluster's scheduler has more to do
                self.counts.running, looked = self.engine.running, time.monotonic()
            yield None
        if self.stopped:
            self.engine.cancel()

    def _heard(self, records: Iterable[AttemptRecord]) -> Iterator[AttemptRecord]:
        for record in records:
            if record.plan != self.plan.id or record.status == START or record.number not in self._open:
                continue
            if record.verdict == Verdict.STOP:
                self.stopped = f"{record.item}: {record.error}"
            if record.final:
                yield self._settled(record)

    def _settled(self, record: AttemptRecord) -> AttemptRecord:
        self._open.discard(record.number)
        counts = self.counts
        counts.samples += record.samples_out or 0
        counts.dropped += record.dropped or 0
        if record.status == DONE:
            counts.done += 1
            counts.bytes += record.bytes_in or record.bytes_out or 0
            return record
        counts.failed += 1
        self.failures.append(record)
        most = self.plan.options.max_failures
        if most is not None and counts.failed > most and not self.stopped:
            self.stopped = f"more than {most} shards failed, the last one {record.item}: {record.error}"
        return record

    def _lost(self, *, last: bool) -> Iterator[AttemptRecord]:
        """Tell of items whose tasks ended without a word; after the last round they are given up."""
        writer = RecordWriter(self.run.place)
        reason = self.engine.reason or "its worker died"
        for number in sorted(self._open) if last else ():
            item = self.plan.item(number)
            record = AttemptRecord(item.name, LOST, self.plan.options.retries + 1, self.plan.id, number=number)
            record.digest, record.version, record.time = self.plan.digest, item.version, time.time()
            record.verdict, record.error, record.final = Verdict.RETRY, reason, True
            writer.write(record)
            yield self._settled(record)
