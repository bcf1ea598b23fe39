"""A run: a place with a plan and the records of what was done; what is left to do follows from both."""

from __future__ import annotations

import fnmatch
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

from webdataset.base import private
from webdataset.base.redact import redacted
from webdataset.base.settings import settings
from webdataset.errors import SecurityError, StateError
from webdataset.storage.urls import local_path

from .generations import Generation, facts_of, generations, owned
from .items import Item, output_versions
from .numbers import parsed_ranges, ranges
from .places import Place
from .plans import PART_ITEMS, RunPlan, plan_in, without_collector
from .records import DONE, START, AttemptRecord, RecordReader


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
    tried: dict[int, int] = field(default_factory=dict)
    """How often items have been tried before."""
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

    def task_name(self, numbers: Sequence[int]) -> str:
        """Return the name of a task, under which it writes its records; it is the same when it is started again."""
        return f"{self.id}-{numbers[0]:07d}"


@dataclass
class _Known:
    """What the records say of one item; what its outputs are decides which of it counts."""

    published: set[tuple[str | None, tuple[str, ...]]] = field(default_factory=set)
    """By the code of the plan: the versions of the input, and of the outputs."""
    done: str = ""
    """The last generation in which it was done, by any code."""
    failed: str = ""
    """The last generation in which it was given up."""
    latest: tuple[str, str | None] = ("", None)
    """Digest and version of what was done last."""


class Run:
    """A run, by the url of its folder or prefix; with `foreign` it may be anybody's, to be shown."""

    def __init__(self, url: str, *, foreign: bool = False) -> None:
        self.place = Place(url, foreign=foreign)
        self.is_trusted = not foreign
        """Whether its plan is believed: outputs are looked at wherever it says that they are."""

    @property
    def url(self) -> str:
        return self.place.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    # -- plan ------------------------------------------------------------------------------------------

    @contextmanager
    def owned(self, plan: RunPlan, engine: str, *, take_over: bool = False) -> Iterator[Generation]:
        """Own the run, and make this its plan; OwnedError if another process owns it, unless it is to be taken over."""
        with owned(self.place, {"plan": plan.id, "engine": engine}, take_over=take_over) as generation:
            _remember(self.name, self.url)
            yield generation

    def facts(self) -> dict[str, Any]:
        """Return what is known of the run as a whole."""
        names = generations(self.place)
        if not names:
            hint = "a run is named by its folder or prefix, as it was printed when it began"
            raise StateError("there is no run here", url=self.url, hint=hint)
        return facts_of(self.place, names[-1])

    def plan(self) -> RunPlan:
        """Return the latest plan."""
        with self.place.understood("generations"):
            return plan_in(self.place, self.facts()["plan"])

    # -- submissions -------------------------------------------------------------------------------------

    def submission(
        self,
        plan: RunPlan,
        engine: str,
        numbers: list[int],
        per_task: int,
        *,
        generation: Generation,
        tried: dict[int, int] | None = None,
    ) -> Submission:
        """Write down which tasks are going to be submitted."""
        id = f"{generation.name}-{os.urandom(3).hex()}"
        submission = Submission(id, engine, plan, numbers, per_task, tried or {})
        self.save(submission)
        return submission

    def save(self, submission: Submission) -> None:
        """Write down a submission, with what the engine needs to find it again."""
        facts: dict[str, Any] = {"engine": submission.engine, "plan": submission.plan.id}
        facts |= {"numbers": ranges(submission.numbers), "per_task": submission.per_task, "handle": submission.handle}
        facts["tried"] = submission.tried
        self.place.write(f"submissions/{submission.id}.json", json.dumps(facts, indent=1).encode())

    def read_submission(self, id: str) -> Submission:
        """Read a submission."""
        file = f"submissions/{id}.json"
        facts = self.place.facts(file)
        with self.place.understood(file):
            plan = plan_in(self.place, facts["plan"])
            plan.check_count()
            numbers = list(parsed_ranges(facts["numbers"], plan.count))
            tried = {int(number): int(count) for number, count in facts["tried"].items()}
            handle = dict(facts["handle"].items())
            return Submission(id, str(facts["engine"]), plan, numbers, max(int(facts["per_task"]), 1), tried, handle)

    def submissions(self) -> list[str]:
        """Return the ids of all submissions, oldest first."""
        names = sorted(self.place.sizes("submissions/"))
        return [name.removeprefix("submissions/").removesuffix(".json") for name in names]

    # -- what is left ------------------------------------------------------------------------------------

    def standings(
        self, plan: RunPlan, records: Iterable[Mapping[str, Any]] | None = None
    ) -> Iterator[tuple[int, Item, Standing]]:
        """Yield each item with its number and how far it is, from the records of attempts that ended."""
        with without_collector():
            known = _known(plan, RecordReader(self.place).ended() if records is None else records)
        items = enumerate(plan.items())
        while chunk := list(islice(items, PART_ITEMS)):
            done = (item for _, item in chunk if _is_done(known.get(item.name)))
            outputs = [url for item in done for url in item.outputs if self._may_look_at(url)]
            versions = output_versions(outputs) if outputs else {}
            for number, item in chunk:
                yield number, item, _standing(plan, item, known.get(item.name), versions)

    def _may_look_at(self, url: str) -> bool:
        """Whether to ask for an output: a stranger's plan could name any server, which would get this user's keys."""
        return self.is_trusted or local_path(url) is not None or _bucket_of(url) == _bucket_of(self.url)

    @property
    def was_begun_here(self) -> bool:
        """Whether this user has begun it, with this cache folder."""
        return redacted(self.url) in _remembered(self.name)

    def attempts(self, plan: RunPlan) -> Counter[str]:
        """Return how often each item of a plan was begun."""
        starts = (record for record in self.records() if record.status == START and record.plan == plan.id)
        return Counter(record.item for record in starts)

    def records(self) -> Iterator[AttemptRecord]:
        """Yield all records."""
        return RecordReader(self.place).new()


def _known(plan: RunPlan, records: Iterable[Mapping[str, Any]]) -> dict[str, _Known]:
    """Return what records say of each item, in whatever order they come."""
    found: dict[str, _Known] = {}
    for record in records:
        if not record.get("final"):
            continue
        known = found.get(record["item"])
        if known is None:
            known = found[record["item"]] = _Known()
        generation, version = record.get("generation", ""), record.get("version")
        if record["status"] != DONE:
            known.failed = max(known.failed, generation)
            continue
        if record.get("digest") == plan.digest:
            known.published.add((version, tuple(record.get("outputs", ()))))
        if generation >= known.done:
            known.done, known.latest = generation, (record.get("digest", ""), version)
    return found


def _is_done(known: _Known | None) -> bool:
    return known is not None and bool(known.latest[0])


def _standing(plan: RunPlan, item: Item, known: _Known | None, versions: dict[str, str]) -> Standing:
    """Return how far an item is: it is done if what stands there is what an attempt with this code and input wrote."""
    if known is None:
        return Standing.MISSING
    found = tuple(versions.get(url, "") for url in item.outputs)
    # without outputs there is nothing to look at, and what was done last counts
    fits = (item.version, found) in known.published if found else known.latest == (plan.digest, item.version)
    if fits and all(found):
        return Standing.DONE
    if known.failed and known.failed >= known.done:
        return Standing.FAILED
    return Standing.STALE if _is_done(known) and all(found) else Standing.MISSING


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


def found_run(text: str, *, foreign: bool = False) -> Run:
    """Return a run by its folder or prefix, or by its name if it was begun on this machine."""
    if "/" not in text and not os.path.exists(os.path.join(text, "generations")) and (urls := _remembered(text)):
        return Run(urls[-1], foreign=foreign)
    run = Run(text, foreign=foreign)
    run.facts()
    return run


def _remembered(name: str) -> list[str]:
    """Return the places of the runs of this name that were begun on this machine, the latest last."""
    with (
        suppress(OSError, SecurityError),
        private.opened(settings.runs_dir, name, os.O_RDONLY) as number,
        open(number, encoding="utf-8", closefd=False) as file,
    ):
        return file.read().splitlines()
    return []


def _remember(name: str, url: str) -> None:
    """Keep the place of a run under its name; a machine without a home does without."""
    urls = [known for known in _remembered(name) if known != redacted(url)] + [redacted(url)]
    with suppress(OSError, SecurityError):
        private.make_private(settings.runs_dir)
        private.write_private(settings.runs_dir, name, "\n".join(urls).encode())


def _bucket_of(url: str) -> list[str]:
    return url.split("/", 3)[:3]
