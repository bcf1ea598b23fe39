"""A run: a place with a plan and the records of what was done; what is left to do follows from both."""

from __future__ import annotations

import fnmatch
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

from webdataset.base.redact import redacted
from webdataset.base.settings import settings
from webdataset.errors import StateError

from .items import Item, output_sizes
from .numbers import parsed_ranges, ranges
from .places import Place
from .plans import PART_ITEMS, RunPlan, read_plan
from .records import DONE, ENDED, START, AttemptRecord, RecordReader


class Standing(StrEnum):
    """How far an item is."""

    DONE = "done"
    MISSING = "missing"
    STALE = "stale"
    """There is an output, but of another input or by other code."""
    FAILED = "failed"


@dataclass
class Submission:
    """Tasks that were given to an engine; each is some items of the plan."""

    id: str
    engine: str
    plan: RunPlan
    numbers: list[int]
    per_task: int = 1
    handle: dict[str, Any] = field(default_factory=dict)
    """What the engine needs to find the tasks again."""

    @property
    def count(self) -> int:
        """The number of tasks."""
        return -(-len(self.numbers) // self.per_task)

    def task(self, index: int) -> list[int]:
        """Return the items of a task."""
        if not 0 <= index < self.count:
            raise StateError(f"there are tasks 0 to {self.count - 1}, not {index}")
        return self.numbers[index * self.per_task : (index + 1) * self.per_task]

    def tasks(self) -> Iterator[list[int]]:
        """Yield the items of each task."""
        for index in range(self.count):
            yield self.task(index)


@dataclass
class _Known:
    """What the records say of one item."""

    digest: str = ""
    version: str | None = None
    size: int | None = None
    done: bool = False
    failed: bool = False


class Run:
    """A run, by the url of its folder or prefix."""

    def __init__(self, url: str) -> None:
        self.place = Place(url)

    @property
    def url(self) -> str:
        return self.place.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    # -- plan ------------------------------------------------------------------------------------------

    def begin(self, plan: RunPlan, **facts: object) -> None:
        """Make this the run's plan."""
        known = {"plan": plan.id, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts}
        self.place.write("run.json", json.dumps(known, indent=1).encode())
        _remember(self.name, self.url)

    def facts(self) -> dict[str, Any]:
        """Return what is known of the run as a whole."""
        data = self.place.read_if_there("run.json")
        if data is None:
            hint = "a run is named by its folder or prefix, as it was printed when it began"
            raise StateError("there is no run here", url=self.url, hint=hint)
        found: dict[str, Any] = json.loads(data)
        return found

    def plan(self) -> RunPlan:
        """Return the latest plan."""
        return read_plan(self.place.join(f"plans/{self.facts()['plan']}"))

    # -- submissions -------------------------------------------------------------------------------------

    def submission(self, plan: RunPlan, engine: str, numbers: list[int], per_task: int) -> Submission:
        """Write down which tasks are going to be submitted."""
        id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"
        submission = Submission(id, engine, plan, numbers, per_task)
        self.save(submission)
        return submission

    def save(self, submission: Submission) -> None:
        """Write down a submission, with what the engine needs to find it again."""
        facts: dict[str, Any] = {"engine": submission.engine, "plan": submission.plan.id}
        facts |= {"numbers": ranges(submission.numbers), "per_task": submission.per_task, "handle": submission.handle}
        self.place.write(f"submissions/{submission.id}.json", json.dumps(facts, indent=1).encode())

    def read_submission(self, id: str) -> Submission:
        """Read a submission."""
        facts = json.loads(self.place.read(f"submissions/{id}.json"))
        plan = read_plan(self.place.join(f"plans/{facts['plan']}"))
        numbers = list(parsed_ranges(facts["numbers"]))
        return Submission(id, facts["engine"], plan, numbers, facts["per_task"], facts["handle"])

    def submissions(self) -> list[str]:
        """Return the ids of all submissions, oldest first."""
        names = sorted(self.place.sizes("submissions/"))
        return [name.removeprefix("submissions/").removesuffix(".json") for name in names]

    # -- what is left ------------------------------------------------------------------------------------

    def standings(self, plan: RunPlan) -> Iterator[tuple[int, Item, Standing]]:
        """Yield each item with its number and how far it is."""
        known = self._known()
        items = enumerate(plan.items())
        while chunk := list(islice(items, PART_ITEMS)):
            outputs = [url for _, item in chunk if _is_done(known.get(item.name)) for url in item.outputs]
            sizes = output_sizes(outputs) if outputs else {}
            for number, item in chunk:
                yield number, item, _standing(plan, item, known.get(item.name), sizes)

    def _known(self) -> dict[str, _Known]:
        found: dict[str, _Known] = {}
        for record in RecordReader(self.place).new():
            if record.status in ENDED:
                known = found.setdefault(record.item, _Known())
                if record.status == DONE:
                    found[record.item] = _Known(record.digest, record.version, record.bytes_out, done=True)
                elif record.final:
                    known.failed = True
        return found

    def attempts(self, plan: RunPlan) -> Counter[str]:
        """Return how often each item of a plan was begun."""
        starts = (record for record in self.records() if record.status == START and record.plan == plan.id)
        return Counter(record.item for record in starts)

    def records(self) -> Iterator[AttemptRecord]:
        """Yield all records."""
        return RecordReader(self.place).new()


def _is_done(known: _Known | None) -> bool:
    return known is not None and known.done


def _standing(plan: RunPlan, item: Item, known: _Known | None, sizes: dict[str, int]) -> Standing:
    if known is None:
        return Standing.MISSING
    if not known.done:
        return Standing.FAILED if known.failed else Standing.MISSING
    if any(url not in sizes for url in item.outputs):
        return Standing.MISSING
    total = sum(sizes[url] for url in item.outputs)
    if item.outputs and known.size is not None and total >= 0 and total != known.size:
        return Standing.STALE  # somebody else has written it
    return Standing.DONE if (known.digest, known.version) == (plan.digest, item.version) else Standing.STALE


def is_wanted(item: Item, standing: Standing, redo: str | None) -> bool:
    """Whether an item is to be done: what is not done; or what `redo` says: failed, all, or a pattern of names.

    >>> is_wanted(Item("007"), Standing.DONE, None), is_wanted(Item("007"), Standing.DONE, "00*")
    (False, True)
    """
    if redo is None:
        return standing is not Standing.DONE
    if redo in ("all", "failed"):
        return redo == "all" or standing is Standing.FAILED
    return fnmatch.fnmatchcase(item.name, redo)


def found_run(text: str) -> Run:
    """Return a run by its folder or prefix, or by its name if it was begun on this machine."""
    if "/" not in text and not os.path.exists(os.path.join(text, "run.json")):
        with suppress(OSError), open(os.path.join(settings.runs_dir, text), encoding="utf-8") as file:
            return Run(file.read().strip())
    run = Run(text)
    run.facts()
    return run


def _remember(name: str, url: str) -> None:
    """Keep the place of a run under its name; a machine without a home does without."""
    with suppress(OSError):
        os.makedirs(settings.runs_dir, exist_ok=True)
        with open(os.path.join(settings.runs_dir, name), "w", encoding="utf-8") as file:
            file.write(redacted(url))
