"""The plan of a run: its program, its options and its items, as files that any worker can read.

`plan.json` describes the plan; the items are in files of ten thousand each, so that a task reads only those it needs.
A plan is named after its contents and never changes.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from webdataset.errors import StateError
from webdataset.storage.stores.lookup import is_stored
from webdataset.storage.urls import local_path

from .items import Item
from .options import TaskOptions
from .places import Place

PART_ITEMS = 10_000
FOLDER = "plans/"
FORMAT = 1


@dataclass(frozen=True)
class RunProgram:
    """What is done with each item."""

    facts: dict[str, Any]
    """The kind, and what belongs to it: the words of a command, or a command's options."""
    digest: str
    """Of the code and its options."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    """The files that the code is read from, with their digests."""


@dataclass
class RunPlan:
    """A plan; its items are read when they are asked for.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     items = [Item("0", ("a.tar",), ("b.tar",))]
    ...     plan = write_plan(Place(folder), RunProgram({"kind": "command"}, "d1"), TaskOptions(), items)
    ...     read_plan(plan.url).item(0).outputs
    ('b.tar',)
    """

    place: Place
    """Of the run."""
    id: str
    program: dict[str, Any]
    digest: str
    """Of the code and its options."""
    options: TaskOptions
    count: int
    cwd: str
    """Where relative names in the program's code and words begin."""
    folders: list[str]
    """The folders of the outputs: local ones, and those of stores."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The files that the code is read from, with their digests."""

    @property
    def url(self) -> str:
        """The name of the plan for `wl task`."""
        return self.place.join(f"{FOLDER}{self.id}")

    def item(self, number: int) -> Item:
        """Return one item."""
        if not 0 <= number < self.count:
            raise StateError(f"the plan has items 0 to {self.count - 1}, not {number}", url=self.url)
        return _part(self.place, self.id, number // PART_ITEMS)[number % PART_ITEMS]

    def items(self) -> Iterator[Item]:
        """Yield all items, in order."""
        for part in range(-(-self.count // PART_ITEMS)):
            yield from _read_part(self.place, self.id, part)

    def check_count(self) -> None:
        """Compare the number of items that the plan claims with the bytes that are there."""
        folder = f"{FOLDER}{self.id}"
        with self.place.understood(f"{folder}/plan.json"):
            if self.count > sum(self.place.sizes(f"{folder}/items-").values()):
                raise ValueError(f"its files are too small for {self.count} items")

    def file(self, name: str) -> bytes:
        """Return a file that belongs to the program."""
        return self.place.read(f"{FOLDER}{self.id}/{name}")


def write_plan(place: Place, program: RunProgram, options: TaskOptions, items: Iterable[Item]) -> RunPlan:
    """Write a plan; files of it that are there already stay, if they say the same."""
    facts = {"format": FORMAT, "program": program.facts, "digest": program.digest, "options": options.as_dict()}
    facts |= {"cwd": os.getcwd(), "sources": dict(program.sources)}
    content = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    with tempfile.TemporaryDirectory(prefix="webdataset-plan-") as folder, without_collector():
        count, folders = 0, set[str]()
        for number, part_items in enumerate(_parts(items)):
            data = json.dumps(part_items, separators=(",", ":")).encode()
            content.update(data)
            count += len(part_items)
            folders.update(_folder_of(url) for item in part_items for url in item.outputs)
            with open(os.path.join(folder, _part_name(number)), "wb") as file:
                file.write(data)
        if not count:
            raise StateError("there is nothing to do: no shards", url=place.url)
        facts |= {"count": count, "folders": sorted(folders - {""})}
        plan = _plan(place, content.hexdigest()[:16], facts, options)
        name = f"{FOLDER}{plan.id}"
        for part in sorted(os.listdir(folder)):
            with open(os.path.join(folder, part), "rb") as file:
                _keep(place, f"{name}/{part}", file.read())
        for own, data in program.files.items():
            _keep(place, f"{name}/{own}", data)
        _keep(place, f"{name}/plan.json", json.dumps(facts, indent=1).encode())
    return plan


def _keep(place: Place, name: str, data: bytes) -> None:
    """Write a file unless it is there: its name tells what it should say, but anybody may have made it."""
    if place.read_if_there(name) != data:
        place.write(name, data)


@contextmanager
def without_collector() -> Iterator[None]:
    """Let no garbage be collected: a million items have none, and looking for it took a quarter of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_plan(url: str) -> RunPlan:
    """Read a plan by its url."""
    run, _, name = url.rstrip("/").rpartition(f"/{FOLDER}")
    if not run:
        raise StateError("this is no plan", url=url, hint="its name has the form RUN/plans/ID")
    return plan_in(Place(run), name)


def plan_in(place: Place, name: str) -> RunPlan:
    """Read a plan of a run by its id."""
    url, file = place.join(f"{FOLDER}{name}"), f"{FOLDER}{name}/plan.json"
    facts = place.facts_if_there(file)
    if facts is None:
        hint = "a run in a folder needs a disk that all workers share; a store is reached from everywhere"
        raise StateError("there is no plan here", url=url, hint=hint)
    if facts.get("format") != FORMAT:
        raise StateError("the plan was made by another version of this package", url=url, hint="use one version only")
    with place.understood(file):
        facts["count"] = int(facts["count"])
        return _plan(place, name, facts, TaskOptions.of(facts["options"]))


def _plan(place: Place, id: str, facts: dict[str, Any], options: TaskOptions) -> RunPlan:
    known = {name: facts[name] for name in ("program", "digest", "count", "cwd", "folders")}
    return RunPlan(place, id, options=options, sources=facts.get("sources", {}), **known)


def _folder_of(url: str) -> str:
    path = local_path(url)
    if path is not None:
        return os.path.dirname(os.path.abspath(path))
    return f"{url.rpartition('/')[0]}/" if is_stored(url) else ""


def _parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while part := list(islice(remaining, PART_ITEMS)):
        yield part


def _part_name(number: int) -> str:
    return f"items-{number:06d}.json"


@lru_cache(maxsize=4)
def _part(place: Place, id: str, number: int) -> Sequence[Item]:
    return list(_read_part(place, id, number))


def _read_part(place: Place, id: str, number: int) -> Iterator[Item]:
    file = f"{FOLDER}{id}/{_part_name(number)}"
    with place.understood(file):
        for name, inputs, outputs, size, version in json.loads(place.read(file)):
            if not all(isinstance(text, str) for text in (name, *inputs, *outputs)):
                raise TypeError("names and urls are text")
            yield Item(name, tuple(inputs), tuple(outputs), size, version)
