"""Records: what was tried and how it ended, one JSON line for each attempt, appended and never changed.

Each process writes a file of its own, so that no two write to one; in a store, where objects cannot grow, the file is
written again with each line, and a new one is begun after a hundred lines.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from webdataset.errors import WebDatasetError

from .places import Place

FOLDER = "records/"
MOST_LINES = 100

START, DONE, FAILED, KILLED, TIMEOUT, LOST = "start", "done", "failed", "killed", "timeout", "lost"
ENDED = {DONE, FAILED, KILLED, TIMEOUT, LOST}


@dataclass
class AttemptRecord:
    """One line: the start of an attempt, or its end."""

    item: str
    status: str
    attempt: int = 1
    plan: str = ""
    submission: str = ""
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
        try:
            facts = json.loads(line)
            return cls(**{name: value for name, value in facts.items() if name in _FIELDS})
        except (ValueError, TypeError, AttributeError):
            return None


_encoded = json.JSONEncoder(separators=(",", ":")).encode
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
    """Appends records to a file of this process."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._lines: list[bytes] = []
        self._name = ""

    def write(self, record: AttemptRecord) -> None:
        """Write one line, which is readable for others when this returns."""
        record.worker = record.worker or worker_name()
        line = record.line()
        if not self._name or (self.place.folder is None and len(self._lines) >= MOST_LINES):
            self._lines = []
            self._name = f"{FOLDER}{int(time.time()):x}-{worker_name()}-{os.urandom(4).hex()}.jsonl"
        if self.place.folder is not None:
            self.place.append(self._name, line)
        else:
            self._lines.append(line)
            self.place.write(self._name, b"".join(self._lines))


@dataclass
class RecordReader:
    """Reads the records of a run, and later what was added meanwhile."""

    place: Place
    _read: dict[str, int] = field(default_factory=dict)
    """How many bytes of each file have been read."""

    def new(self) -> Iterator[AttemptRecord]:
        """Yield the records that were written since the last call."""
        for name, size in sorted(self.place.sizes(FOLDER).items()):
            known = self._read.get(name, 0)
            if size <= known:
                continue
            try:
                data = self.place.read_from(name, known)
            except (WebDatasetError, OSError):
                continue  # a store lists what cannot be read yet; the next time it can be
            whole = data[: data.rfind(b"\n") + 1]
            self._read[name] = known + len(whole)
            for line in whole.splitlines():
                if (record := AttemptRecord.parsed(line)) is not None:
                    yield record

    def skip(self) -> None:
        """Leave out what is there already."""
        self._read = dict(self.place.sizes(FOLDER))
