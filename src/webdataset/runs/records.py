"""Records: what was tried and how it ended, one JSON line for each attempt, appended and never changed.

Each process writes a file of its own for each task, so that no two write to one, in the folder of the task's
generation; in a store, where objects cannot grow, the file is written again with each line, and a new one is begun
after a hundred lines. Neither the names of files nor times say anything about the order of records.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from .places import Place

FOLDER = "records/"
MOST_LINES = 100

START, DONE, FAILED, KILLED, TIMEOUT, LOST = "start", "done", "failed", "killed", "timeout", "lost"
SUPERSEDED = "superseded"
"""Of a task that found another owner: nothing was published."""
ENDED = {DONE, FAILED, KILLED, TIMEOUT, LOST, SUPERSEDED}


@dataclass
class AttemptRecord:
    """One line: the start of an attempt, or its end."""

    item: str
    status: str
    attempt: int = 1
    plan: str = ""
    generation: str = ""
    number: int = 0
    digest: str = ""
    version: str | None = None
    """Of the input."""
    worker: str = ""
    time: float = 0.0
    """When the attempt began, in seconds since 1970."""
    seconds: float = 0.0
    samples_in: int | None = None
    samples_out: int | None = None
    dropped: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    checksum: str | None = None
    outputs: list[str] | None = None
    """What was published: `SIZE-TIME` of files, versions of objects."""
    verdict: str = ""
    code: int | None = None
    error: str = ""
    final: bool = False
    """Whether nothing more is tried: it is done, or was given up."""
    result: Any = None
    """What the function returned, if JSON can say it."""

    def line(self) -> bytes:
        """Return the record as a line of JSON; what is not known is left out."""
        known = vars(self).items()
        facts = {name: value for name, value in known if value is not None and value is not False and value != ""}
        return _encoded(facts).encode() + b"\n"

    @classmethod
    def parsed(cls, line: bytes) -> Self | None:
        """Read a line; None if it is incomplete, because its writer was killed, or of another program."""
        return next(map(cls.of, facts_of([line])), None)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        """Make a record of what a line says; fields of later versions are left out."""
        return cls(**{name: value for name, value in facts.items() if name in _FIELDS})


def facts_of(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return what lines say, without those that are incomplete, or of another program."""
    try:
        found = json.loads(b"[%b]" % b",".join(lines))  # in one go, which takes a third of the time
    except ValueError:
        if len(lines) == 1:
            return []
        return [facts for line in lines for facts in facts_of([line])]
    return [facts for facts in found if isinstance(facts, dict) and "item" in facts and "status" in facts]


_encoded = json.JSONEncoder(separators=(",", ":")).encode
_STARTS = b'"status":"start"'
_FIELDS = tuple(each.name for each in dataclasses.fields(AttemptRecord))


def worker_name() -> str:
    """Return the name of this process among all workers.

    >>> worker_name() == f"{socket.gethostname()}-{os.getpid()}"
    True
    """
    return f"{socket.gethostname()}-{os.getpid()}"


def rates(samples: int, size: int, seconds: float) -> dict[str, float]:
    """Return how fast samples and bytes were processed.

    >>> rates(1000, 5_000_000, 2.0)
    {'samples_per_second': 500.0, 'mb_per_second': 2.5}
    """
    return {"samples_per_second": round(samples / seconds, 1), "mb_per_second": round(size / seconds / 1e6, 2)}


class RecordWriter:
    """Appends records of a task to a file of this process."""

    def __init__(self, place: Place, task: str = "") -> None:
        self.place = place
        self.task = task
        self._lines: list[bytes] = []
        self._name = ""

    def write(self, record: AttemptRecord) -> None:
        """Write one line, which is readable for others when this returns."""
        record.worker = record.worker or worker_name()
        line = record.line()
        if not self._name or (self.place.folder is None and len(self._lines) >= MOST_LINES):
            self._lines = []
            self._name = f"{records_of(self.task)}{os.urandom(6).hex()}.jsonl"
        if self.place.folder is not None:
            self.place.append(self._name, line)
        else:
            self._lines.append(line)
            self.place.write(self._name, b"".join(self._lines))


def generation_of(task: str) -> str:
    """Return the generation of a task or submission: `GENERATION-SUBMISSION-TASK`; a task by hand has none.

    >>> generation_of("00000007-1a2b3c4d-5e6f70-000012")
    '00000007-1a2b3c4d'
    """
    return "-".join(task.split("-")[:2])


def records_of(task: str) -> str:
    """Return how the names of the records of a task begin: `records/GENERATION/SUBMISSION-TASK-`.

    >>> records_of("00000007-1a2b3c4d-5e6f70-000012")
    'records/00000007-1a2b3c4d/5e6f70-000012-'
    """
    return f"{FOLDER}{generation_of(task)}/{'-'.join(task.split('-')[2:])}-" if task else f"{FOLDER}by-hand/"


@dataclass
class RecordReader:
    """Reads the records of a run, or of a part of it, and later what was added meanwhile."""

    place: Place
    prefix: str = FOLDER
    begun: Counter[str] = field(default_factory=Counter)
    """How many attempts began in each generation."""
    _read: dict[str, int] = field(default_factory=dict)
    """How many bytes of each file have been read."""

    def new(self) -> Iterator[AttemptRecord]:
        """Yield the records that were written since the last call."""
        return (AttemptRecord.of(facts) for _, lines in self._lines() for facts in facts_of(lines))

    def ended(self) -> Iterator[dict[str, Any]]:
        """Yield what the records of attempts that ended say; the others are only counted, in `begun`."""
        for name, lines in self._lines():
            others = [line for line in lines if _STARTS not in line]
            self.begun[name.split("/")[1]] += len(lines) - len(others)
            yield from facts_of(others)

    def _lines(self) -> Iterator[tuple[str, list[bytes]]]:
        sizes = self.place.sizes(self.prefix).items()
        grown = {name: known for name, size in sizes if size > (known := self._read.get(name, 0))}
        for name, data in self.place.read_new(grown):
            whole = data[: data.rfind(b"\n") + 1]
            self._read[name] = grown[name] + len(whole)
            if whole:
                yield name, whole.splitlines()


class Tries:
    """How often items were tried, from the records of some tasks.

    >>> tries = Tries()
    >>> tries.add([AttemptRecord("a", START), AttemptRecord("a", KILLED), AttemptRecord("a", START)])
    >>> tries.begun[0], tries.lost(), tries.count(0)
    (2, {0}, 1)
    """

    def __init__(self, before: Mapping[int, int] | None = None) -> None:
        self._before = before or {}
        """How often items were tried in other tasks."""
        self.begun: Counter[int] = Counter()
        self._ended: Counter[int] = Counter()
        self.settled: set[int] = set()
        """Items that are done, or were given up."""

    def add(self, records: Iterable[AttemptRecord]) -> None:
        """Take these records into account."""
        for record in records:
            if record.status == START:
                self.begun[record.number] += 1
            else:
                self._ended[record.number] += 1
            if record.final:
                self.settled.add(record.number)

    def lost(self) -> set[int]:
        """Return the items that were begun, and of which nothing was heard any more."""
        return {number for number, count in self.begun.items() if count > self._ended[number]} - self.settled

    def count(self, number: int) -> int:
        """Return how often an item was tried; the first time that its worker was lost was perhaps not its fault."""
        if number in self._before:
            return self._before[number] + self.begun[number]
        lost = max(self.begun[number] - self._ended[number], 0)
        return self.begun[number] - min(lost, 1)
