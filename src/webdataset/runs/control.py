"""Carry out a plan: submit tasks, follow the records, submit again what was lost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from .engines.base import Engine
from .generations import Generation
from .items import Item, output_versions
from .outcomes import Verdict
from .plans import PART_ITEMS, RunPlan
from .records import DONE, LOST, START, SUPERSEDED, AttemptRecord, RecordReader, RecordWriter, Tries, rates
from .records import FOLDER as RECORDS
from .runs import Run, Submission

IDLE_ROUNDS = 3
"""Submissions of which nothing was heard at all, until the rest is given up."""


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
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.began, 1e-9)

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

    def __init__(
        self,
        run: Run,
        plan: RunPlan,
        engine: Engine,
        numbers: list[int],
        generation: Generation | None = None,
        *,
        follow: str = "",
    ):
        self.run, self.plan, self.engine, self.numbers = run, plan, engine, numbers
        self.generation = generation
        """The right to submit tasks; without it only those of another generation are followed, `follow`."""
        self.counts = RunCounts(plan.count, plan.count - len(numbers))
        self.failures: list[AttemptRecord] = []
        self.stopped = ""
        """Why the run was ended early."""
        self.poll_seconds = engine.poll_seconds
        self._open = set(numbers)
        self._done: dict[int, list[list[str]]] = {}
        """The versions of what was written, by the number of the item; several if it was done twice."""
        self._tries = Tries()
        self._reader = RecordReader(run.place, f"{RECORDS}{generation.name if generation else follow}/")

    def __iter__(self) -> Iterator[AttemptRecord]:
        for heard in self.events():
            if heard is not None:
                yield heard

    def submit(self) -> dict[str, Any]:
        """Submit everything that is open, and return what the engine needs to find it again."""
        assert self.generation is not None
        self.generation.make_stages(self.plan)
        return self._submit(sorted(self._open), alone=False).handle

    def events(self) -> Iterator[AttemptRecord | None]:
        """Yield what happens, and None from time to time, so that progress can be shown."""
        if self._open:
            assert self.generation is not None
            self.generation.make_stages(self.plan)
        idle = 0
        while self._open and not self.stopped:
            begun = self._tries.begun.total() + len(self._done) + len(self.failures)
            lost = sorted(self._tries.lost() & self._open)
            others = sorted(self._open.difference(lost))
            for numbers in filter(None, (others, lost)):
                if not self.stopped:
                    self._submit(numbers, alone=numbers is lost)
                    yield from self._followed()
            idle = idle + 1 if begun == self._tries.begun.total() + len(self._done) + len(self.failures) else 0
            if not self.stopped:
                yield from self._given_up(all_of_them=idle == IDLE_ROUNDS)

    def attached(self) -> Iterator[AttemptRecord | None]:
        """The same for tasks that another process has submitted."""
        yield from self._followed()

    def finish(self) -> None:
        """Give up the ownership of the run when nothing is to be published any more, and look at what was done."""
        if self.generation is None:
            return
        self.generation.end()
        changed = [] if self.stopped else self._changed(sorted(self._done))
        if changed:  # Dask may have done a task twice, and what was heard first is not what stands there
            for record in self._reader.new():
                if record.status == DONE and record.number in self._done:
                    self._done[record.number].append(record.outputs or [])
            changed = self._changed([number for number, _ in changed])
        if changed:
            text = (
                f"{len(changed)} outputs are not as they were written any more, the first one of {changed[0][1].name}"
            )
            self.stopped = f"{text}; the same line again does them"

    def cancel(self) -> None:
        """End what was submitted; what cannot be ended publishes nothing once the generation has ended."""
        self.engine.cancel()

    def leave(self) -> None:
        """Let go of tasks without ending them."""
        self.engine.leave()
        if self.generation is not None:
            self.generation.leave()

    def _changed(self, numbers: Iterable[int]) -> list[tuple[int, Item]]:
        """Return those of these items, which were done, whose outputs are not what a record says."""
        found, remaining = [], iter(numbers)
        while chunk := [(number, self.plan.item(number)) for number in islice(remaining, PART_ITEMS)]:
            versions = output_versions([url for _, item in chunk for url in item.outputs])
            for number, item in chunk:
                if [versions.get(url) for url in item.outputs] not in self._done[number]:
                    found.append((number, item))
        return found

    def _submit(self, numbers: list[int], *, alone: bool) -> Submission:
        """Submit items; those that were lost alone, since each may be what killed its worker."""
        assert self.generation is not None
        per_task = 1 if alone else self.plan.options.shards_per_task or self.engine.shards_per_task(len(numbers))
        tried = {number: self._tries.count(number) for number in numbers if self._tries.begun[number]}
        make = partial(self.run.submission, generation=self.generation, tried=tried)
        submission = make(self.plan, self.engine.name, numbers, per_task)
        self.engine.submit(submission)
        self.run.save(submission)
        return submission

    def _followed(self) -> Iterator[AttemptRecord | None]:
        finished, looked = False, 0.0
        while not finished and not self.stopped:
            ended = self.engine.poll(self.poll_seconds)
            finished = self.engine.finished
            if self.generation is not None:
                self.generation.beat()
            yield from self._heard(self._reader.new() if ended is None else ended)
            if finished or time.monotonic() - looked > self.poll_seconds:  # a cluster's scheduler has more to do
                self.counts.running, looked = self.engine.running, time.monotonic()
            yield None
        if self.stopped:
            self.engine.cancel()

    def _heard(self, records: Iterable[AttemptRecord]) -> Iterator[AttemptRecord]:
        for record in records:
            if record.plan != self.plan.id:
                continue
            self._tries.add([record])
            if record.status == SUPERSEDED and self.generation is not None:
                self.generation.check()
            if record.status == DONE and record.number in self._done:
                self._done[record.number].append(record.outputs or [])
            if record.status == START or record.number not in self._open:
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
            self._done[record.number] = [record.outputs or []]
            counts.done += 1
            counts.bytes += record.bytes_in or record.bytes_out or 0
            return record
        counts.failed += 1
        self.failures.append(record)
        most = self.plan.options.max_failures
        if most is not None and counts.failed > most and not self.stopped:
            self.stopped = f"more than {most} shards failed, the last one {record.item}: {record.error}"
        return record

    def _given_up(self, *, all_of_them: bool) -> Iterator[AttemptRecord]:
        """Give up items that were tried often enough, or all if no task begins."""
        assert self.generation is not None
        writer = RecordWriter(self.run.place, f"{self.generation.name}-owner-0")
        reason = self.engine.reason or "its worker died"
        for number in sorted(self._open):
            tried = self._tries.count(number)
            if not all_of_them and tried <= self.plan.options.retries:
                continue
            item = self.plan.item(number)
            record = AttemptRecord(item.name, LOST, tried, self.plan.id, self.generation.name, number)
            record.digest, record.version, record.time = self.plan.digest, item.version, time.time()
            record.verdict, record.error, record.final = Verdict.RETRY, reason, True
            writer.write(record)
            yield self._settled(record)
