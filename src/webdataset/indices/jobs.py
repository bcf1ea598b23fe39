"""Indices made by other processes: parsing headers is work for the processor, and one Python uses one core.

A worker is started as a program of its own, not forked: it neither inherits locks that other threads hold nor
imports the user's script. It ends when its input does, so none outlives this process.
"""

from __future__ import annotations

import base64
import json
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from typing import IO, Any, NamedTuple

from webdataset.base.reports import Report, current_report
from webdataset.errors import StorageError

from .files import keep_index
from .lists import Facts
from .rules import ReadingRules

CODE = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from webdataset.indices.jobs import serve; serve()"


class Indexed(NamedTuple):
    """A shard whose index is kept: what it says, where it is, and why not where it was asked for."""

    facts: Facts
    place: str
    refusal: str


class IndexProcesses:
    """Processes that make indices, one for each thread that asks."""

    def __init__(self, rules: ReadingRules) -> None:
        self._rules = rules
        self._strict = current_report().strict
        self._own = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []

    def facts(self, url: str, **options: Any) -> Indexed:
        """What `index_facts` returns, computed by this thread's process."""
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, (url, self._rules, options, self._strict))
            line = process.stdout.readline()
        except OSError:
            line = b""
        if not line:
            raise StorageError("the process that made its index has ended", url=url, hint="was it killed?")
        result, warned = _receive(line)
        for message, kind in warned:
            warnings.warn(message, kind, stacklevel=2)
        if isinstance(result, Exception):
            raise result
        indexed: Indexed = result
        return indexed

    def close(self) -> None:
        """Kill all processes."""
        for process in self._all:
            process.kill()
            process.communicate()

    def _process(self) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if process is None:
            command = [sys.executable, "-c", CODE, json.dumps(sys.path)]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
            self._own.process = process
            self._all.append(process)
        return process


def index_facts(url: str, rules: ReadingRules, **options: Any) -> Indexed:
    """Make the index of a shard unless it is kept already; the options are those of `keep_index`."""
    index, place, refusal = keep_index(url, rules, **options)
    return Indexed((index.samples, index.size, index.version), place, refusal)


def serve() -> None:
    """Answer requests on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = sys.stdin.buffer, sys.stdout.buffer
    for line in source:
        url, rules, options, strict = _receive(line)
        result: object
        with warnings.catch_warnings(record=True) as caught, Report(strict=strict).in_force():
            warnings.simplefilter("always")
            try:
                result = index_facts(url, rules, **options)
            except Exception as error:
                result = error
        warned = [(str(warning.message), warning.category) for warning in caught]
        try:
            _send(target, (result, warned))
        except (TypeError, pickle.PicklingError):
            _send(target, (StorageError(f"{type(result).__name__}: {result}", url=url), []))


def _send(stream: IO[bytes], message: object) -> None:
    stream.write(base64.b64encode(pickle.dumps(message)) + b"\n")
    stream.flush()


def _receive(line: bytes) -> Any:
    return pickle.loads(base64.b64decode(line))  # noqa: S301 - written by ourselves, through a pipe of our own
