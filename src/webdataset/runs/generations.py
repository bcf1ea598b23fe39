"""Who owns a run: one process at a time submits tasks, and only tasks of the newest generation publish outputs.

An owner begins a generation by writing `generations/NUMBER-NONCE.json`, then lists: the last name in the order of text
is the newest, whatever clocks say, and all others have been superseded. While it lives it writes a counter that goes
on, so that nobody takes over from it. Tasks write into stage folders that are named after their generation; the next
owner removes those of older ones before it looks at any output, so that no task of theirs, however long it was
paused, changes one afterwards. In stores, where nothing is renamed, a task looks for a newer generation before its
upload is completed, and uploads to S3 are discarded as stages are; an object that appears too late has another version
than any record, and is found by the next look.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from webdataset.errors import StateError, StorageError
from webdataset.storage.publish import as_storage_error
from webdataset.storage.stores.lookup import is_stored, unfinished

from .outcomes import StopRunError
from .places import Place
from .plans import RunPlan, plan_in

FOLDER = "generations/"
STAGE = ".webdataset-"
BEAT_SECONDS = 10.0
STALE_SECONDS = 30.0
"""For which a counter that stands still is watched, by the clock of who watches."""
TRIES = 100


class SupersededError(StopRunError):
    """What was begun for an owner that is no longer the run's."""


class OwnedError(StateError):
    """A run that belongs to another process."""


class Generation:
    """The right to submit tasks, until another process takes it."""

    def __init__(self, place: Place, facts: dict[str, Any], name: str = "") -> None:
        """Begin a generation, the next one unless it has a name; `facts` are kept with it."""
        self.place, self.facts = place, facts
        self.is_over = False
        self.name = name or _after((generations(place) or ["0"])[-1], os.urandom(4).hex())
        place.write(f"{FOLDER}{self.name}.json", json.dumps(facts | _here(), indent=1).encode())
        self._count, self._beaten = 0, time.monotonic()
        self.check()

    def check(self) -> None:
        """Raise SupersededError if there is a newer generation."""
        check_newest(self.place, self.name)

    def beat(self) -> None:
        """Show from time to time that this process lives, and notice if another one has taken over."""
        if time.monotonic() - self._beaten > BEAT_SECONDS:
            self.check()
            self._count, self._beaten = self._count + 1, time.monotonic()
            self._write(beat=self._count)

    def leave(self) -> None:
        """Let tasks go on without an owner."""
        self.is_over = True
        self._write(left=True)

    def end(self) -> None:
        """Take the right to publish from all tasks, and remove what they have not published."""
        if self.is_over:
            return
        self.is_over = True
        # whoever takes over at the same time has a name behind this one
        last = Generation(self.place, self.facts, _after(self.name, "0" * 8))
        last.revoke()
        last._write(ended=True)

    def revoke(self) -> None:
        """Remove what tasks of older generations have staged."""
        older = generations(self.place)
        older = older[: older.index(self.name)]
        plans = set()
        for name in reversed(older):
            if lease(self.place, name).get("ended"):
                break  # which removed all before it
            with self.place.understood(f"{FOLDER}{name}.json"):
                plans.add(facts_of(self.place, name)["plan"])
        for plan in (plan_in(self.place, name) for name in plans):
            for folder in plan.folders:
                if is_stored(folder):
                    self._discard_uploads(plan, folder)
                else:
                    _remove_stages(folder, set(older))

    def _discard_uploads(self, plan: RunPlan, folder: str) -> None:
        """Discard uploads to outputs; those of somebody who took over meanwhile are only made again."""
        found: list[tuple[str, Callable[[], object]]] = []
        with suppress(StorageError):  # who may not list them finds what appears too late by its version
            found = list(unfinished(folder))
        if not found:
            return
        outputs = {url for item in plan.items() for url in item.outputs}
        self.check()
        for url, discard in found:
            if url in outputs:
                discard()

    def make_stages(self, plan: RunPlan) -> None:
        """Make the folders of outputs, and in each the one for what is staged; tasks never make any.

        Whoever was paused before this, and superseded meanwhile, removes them again.
        """
        folders = [folder for folder in plan.folders if not is_stored(folder)]
        for folder in folders:
            stage = os.path.join(folder, f"{STAGE}{self.name}")
            try:
                os.makedirs(folder, exist_ok=True)
                os.mkdir(stage)
            except OSError as error:
                raise as_storage_error(error, stage) from error
        try:
            self.check()
        except SupersededError:
            for folder in folders:
                _remove_stages(folder, {self.name})
            raise

    def _write(self, **state: object) -> None:
        self.place.write(f"{FOLDER}{self.name}.lease", json.dumps(state).encode())


def own(place: Place, facts: dict[str, Any], *, take_over: bool = False) -> Generation:
    """Become the owner of a run; OwnedError if another process is, unless it is to be taken over."""
    newest = (generations(place) or [""])[-1]
    with place.understood(f"{FOLDER}{newest}.json"):
        if newest and not take_over and _is_owned(place, newest):
            owner = facts_of(place, newest)
            hint = f"`wl jobs status {place.url}` shows how far it is; if it hangs, end it, or use --take-over"
            raise OwnedError(f"process {owner['pid']} on {owner['host']} is doing this run", url=place.url, hint=hint)
    generation = Generation(place, facts)
    generation.revoke()
    return generation


@contextmanager
def owned(place: Place, facts: dict[str, Any], *, take_over: bool = False) -> Iterator[Generation]:
    """Own a run; whatever happens, nothing of it is published afterwards, unless its tasks are left."""
    generation = own(place, facts, take_over=take_over)
    try:
        yield generation
        generation.end()
    except BaseException:
        with suppress(SupersededError):
            generation.end()
        raise


def generations(place: Place) -> list[str]:
    """Return the names of all generations, oldest first."""
    names = place.sizes(FOLDER)
    return sorted(name[len(FOLDER) : -len(".json")] for name in names if name.endswith(".json"))


def check_newest(place: Place, name: str) -> None:
    """Raise SupersededError if a generation is not the newest one."""
    if generations(place)[-1:] != [name]:
        hint = "what it has not published is done again by the new owner"
        raise SupersededError("another process has taken over this run", url=place.url, hint=hint)


def facts_of(place: Place, name: str) -> dict[str, Any]:
    """Return what is kept with a generation."""
    return place.facts(f"{FOLDER}{name}.json")


def lease(place: Place, name: str) -> dict[str, Any]:
    """Return the state of an owner: how often it has beaten, or that it has left its tasks, or ended them."""
    return place.facts_if_there(f"{FOLDER}{name}.lease") or {}


def _after(name: str, nonce: str) -> str:
    """Return the name of the next generation.

    >>> _after("00000007-1a2b3c4d", "5e6f7081")
    '00000008-5e6f7081'
    """
    return f"{int(name.partition('-')[0]) + 1:08d}-{nonce}"


def _is_owned(place: Place, name: str) -> bool:
    """Whether the owner of the newest generation lives."""
    state, owner, here = lease(place, name), facts_of(place, name), _here()
    if state.get("ended") or state.get("left"):
        return False
    if owner["system"] == here["system"]:
        return _began(owner["pid"]) == str(owner["began"])
    until = time.monotonic() + STALE_SECONDS
    while time.monotonic() < until:
        time.sleep(min(1.0, STALE_SECONDS / 3))
        if lease(place, name) != state or generations(place)[-1] != name:
            return True
    return False


def _here() -> dict[str, Any]:
    """Return what tells whether this process is alive, to others of the same system; times are for people."""
    pid = os.getpid()
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"host": socket.gethostname(), "system": _system(), "pid": pid, "began": _began(pid), "made": made}


def _system() -> str:
    """Return what processes have in common that see each other: a host, since it was started, without containers."""
    parts = [socket.gethostname()]
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts += [file.read().strip(), str(os.stat("/proc/self/ns/pid").st_ino)]
    return " ".join(parts)


def _began(pid: int) -> str:
    """Return what no other process of the same number has; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, *words = file.read().rpartition(")")[2].split()
            return "" if state in "ZX" else words[18]
    except OSError:
        if os.path.exists("/proc/self/stat"):
            return ""
    try:  # not Linux
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "other"
    return "alive"


def _remove_stages(folder: str, names: set[str]) -> None:
    for _ in range(TRIES):  # a task may make a file while others are removed
        try:
            stages = [name for name in os.listdir(folder) if name.startswith(STAGE) and name[len(STAGE) :] in names]
        except FileNotFoundError:
            return
        if not stages:
            return
        for stage in stages:
            shutil.rmtree(os.path.join(folder, stage), ignore_errors=True)
    hint = "whoever owns it must remove it: it belongs to an earlier owner of this run"
    raise StateError("what was staged cannot be removed", url=os.path.join(folder, stages[0]), hint=hint)
