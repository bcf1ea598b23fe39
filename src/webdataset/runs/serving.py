"""The process that does items: `wl task PLAN --serve`, asked and answering by lines of JSON.

It is told the number of an item and of the attempt, and answers with the record of how it ended. What the item prints
goes to its log. The records of the attempt are written here, not by who asked, so that a finished item counts even if
the latter has died meanwhile. A process that has been idle for long ends by itself.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, Self
from urllib.parse import quote

from webdataset.errors import WebDatasetError
from webdataset.storage.urls import local_path

from .generations import check_newest
from .items import Item, size_and_version
from .outcomes import Verdict
from .performing import RunCommand, failed, perform
from .plans import RunPlan, read_plan
from .records import START, AttemptRecord, RecordWriter, generation_of
from .sources import PlannedSources
from .staging import Stages

IDLE_SECONDS = 60.0
PAUSE = 1.0
"""Seconds after which nothing is kept for the next item."""
CHUNK = 1 << 20
_ZEROS = bytes(1000)
LONGEST_LOG = 1 << 20
LOGS, ERRORS = "logs/", "errors/"
READY = b"ready\n"
"""What it says first."""


def serve(plan_url: str, run_command: RunCommand, *, idle: float = IDLE_SECONDS) -> int:
    """Do the items that stdin names, until it ends."""
    plan = read_plan(plan_url)
    with contextlib.suppress(OSError):  # if it is missed, errors name it
        os.chdir(plan.cwd)
    with ItemWorker(plan, run_command) as worker, _own_streams() as (requests, answers):
        answers.write(READY)
        answers.flush()
        for line in _lines(requests, idle, worker.close):
            asked = json.loads(line)
            record = worker.attempt(asked["number"], asked["attempt"], asked.get("task", ""))
            answers.write(record.line())
            answers.flush()
    return 0


class ItemWorker:
    """Attempts items of a plan, and writes the records."""

    def __init__(self, plan: RunPlan, run_command: RunCommand) -> None:
        self.plan, self.run_command = plan, run_command
        self.records = RecordWriter(plan.place)
        self._stages = Stages()
        self._sources = PlannedSources(plan.sources)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what is kept from one item to the next; it can go on afterwards."""
        self._stages.remove()

    def begin(self, task: str) -> None:
        """Do items of another task from now on."""
        generation = generation_of(task)
        if generation != self._stages.generation:
            self.close()
            self._stages = Stages(generation, partial(check_newest, self.plan.place, generation))
        self.records = RecordWriter(self.plan.place, task)

    def attempt(self, number: int, attempt: int, task: str = "") -> AttemptRecord:
        """Do an item of a task and return the record of how it ended."""
        plan, item, began = self.plan, self.plan.item(number), time.time()
        if task != self.records.task:
            self.begin(task)
        generation = self._stages.generation
        record = AttemptRecord(item.name, START, attempt, plan.id, generation, number, plan.digest, item.version)
        record.time = began
        try:
            self._stages.check()
            self.records.write(record)
            with _captured(plan, log_name(item, attempt)), _sample_errors(plan, item) as errors:
                done = perform(plan, number, self.run_command, errors, stages=self._stages, sources=self._sources)
                if done.verdict is Verdict.DONE:
                    record.bytes_out, record.checksum = _described(item)
                    record.outputs = done.versions
        except Exception as error:  # no place for the log, or the output is gone
            done = failed(error)
        record.seconds = round(time.time() - began, 3)
        record.bytes_in = item.size
        record.status = done.status
        record.verdict, record.code, record.error, record.result = done.verdict, done.code, done.error, done.result
        record.samples_in, record.samples_out, record.dropped = done.samples_in, done.samples_out, done.dropped
        record.final = done.verdict is not Verdict.RETRY or attempt > plan.options.retries
        with contextlib.suppress(WebDatasetError, OSError):  # a full disk: who asked hears of it
            self.records.write(record)
        return record


def log_name(item: Item, attempt: int) -> str:
    """Return the name of the log of an attempt."""
    return f"{LOGS}{quote(item.name, safe='')[:200]}.{attempt}.txt"


def errors_name(item: Item) -> str:
    """Return the name of the file with the errors of samples."""
    return f"{ERRORS}{quote(item.name, safe='')[:200]}.jsonl"


def _described(item: Item) -> tuple[int | None, str | None]:
    """Return size and checksum of the outputs: the CRC-32 of files, the version of objects."""
    if not item.outputs:
        return None, None
    size, checksums = 0, []
    for url in item.outputs:
        path = local_path(url)
        if path is None:
            each, version = size_and_version(url)
            checksums.append(f"version:{version}")
        else:
            each, checksum = _checksum(path)
            checksums.append(f"crc32:{checksum:08x}")
        size += each
    return size, " ".join(checksums)


def _checksum(path: str) -> tuple[int, int]:
    """Return size and CRC-32 of a file; mapped, since copying it would take longer than the sum."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return 0, 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return size, _crc32(data)


def _crc32(data: mmap.mmap) -> int:
    """Return the sum; isal takes a tenth of zlib's time for it.

    But isal leaves the upper halves of vector registers in use, and until something cleans them, as the search for a
    byte does, the functions of other items take longer: zlib's compression 8 %.
    """
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib.crc32(data)
    checksum: int = isal_zlib.crc32(data)
    _ZEROS.find(b"1")
    return checksum


@contextlib.contextmanager
def _sample_errors(plan: RunPlan, item: Item) -> Iterator[str]:
    """Give a file for the errors of samples, and keep it with the run if anything was written."""
    path = os.path.join(tempfile.gettempdir(), f"webdataset-errors-{os.urandom(8).hex()}.jsonl")
    try:
        yield path
    finally:
        if os.path.exists(path):
            with open(path, "rb") as file:
                plan.place.write(errors_name(item), file.read())
            os.unlink(path)


# -- streams -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _own_streams() -> Iterator[tuple[int, BinaryIO]]:
    """Keep stdin and stdout for requests and answers, so that nothing else reads from or writes to them."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    with os.fdopen(answers, "wb") as stream:
        yield requests, stream
    os.close(requests)


def _lines(requests: int, idle: float, at_pause: Callable[[], None]) -> Iterator[bytes]:
    pending = b""
    while True:
        while b"\n" in pending:
            line, _, pending = pending.partition(b"\n")
            yield line
        ready, _, _ = select.select([requests], [], [], min(PAUSE, idle))
        if not ready:
            at_pause()
            ready, _, _ = select.select([requests], [], [], idle)
        data = os.read(requests, CHUNK) if ready else b""
        if not data:
            return
        pending += data


@contextlib.contextmanager
def _captured(plan: RunPlan, name: str) -> Iterator[None]:
    """Send what is printed to a file of the run; an empty one is removed."""
    place = plan.place
    unnamed = os.path.join(tempfile.gettempdir(), f"webdataset-log-{os.urandom(8).hex()}.txt")
    path = place.join(name) if place.folder is not None else unnamed
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL
    log = place.created(name) if place.folder is not None else os.open(path, flags, 0o600)
    before = os.dup(1), os.dup(2)
    try:
        sys.stdout.flush()
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        for number, saved in zip((1, 2), before, strict=True):
            os.dup2(saved, number)
            os.close(saved)
        _keep_log(plan, log, path, name)


def _keep_log(plan: RunPlan, log: int, path: str, name: str) -> None:
    size = os.fstat(log).st_size
    data = os.pread(log, LONGEST_LOG, max(size - LONGEST_LOG, 0)) if plan.place.folder is None else b""
    os.close(log)
    if size and plan.place.folder is None:
        plan.place.write(name, data)
    if not size or plan.place.folder is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
