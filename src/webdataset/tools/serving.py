"""What `wl serve` and `wl mon` do: run a program's pipeline in several processes, and ask producers how they are."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.stops import Thread
from webdataset.errors import CommandError, UnavailableError, WebDatasetError
from webdataset.pipeline import DataPipeline
from webdataset.remote.addresses import addresses, check_allowed, zeromq
from webdataset.remote.keys import TRAINER, KeyFile, Keys, keys_of
from webdataset.remote.producer import ProducerStatus
from webdataset.remote.wire import MAX_HEADER_BYTES, packed, unpacked

if TYPE_CHECKING:
    import zmq


RESTART_SECONDS = 1.0
"""How long a process that died stays away, so that one that cannot live does not keep the machine busy."""
COUNTED = [name for name in ProducerStatus._fields if name != "readers"]
SHORT_LIVED = 3
"""How often in turn a process may die before it has served anything."""


class ProgramError(WebDatasetError):
    """A program file that does not give a pipeline."""


def load_pipeline(program: str) -> Any:
    """The pipeline that `FILE.py:NAME` or `MODULE:NAME` names: a dataset, or a function that returns one."""
    place, colon, name = program.rpartition(":")
    if not colon or not name.isidentifier():
        raise ProgramError(f"{program!r} names no pipeline", hint="write program.py:dataset")
    try:
        names = _names_of(place)
    except ProgramError:
        raise
    except (Exception, SystemExit) as error:
        where = _line_in(error, place)
        raise ProgramError(f"{place}{where} failed: {type(error).__name__}: {error}") from error
    if name not in names:
        known = ", ".join(sorted(key for key, value in names.items() if isinstance(value, DataPipeline))[:5])
        raise ProgramError(f"{place} has no {name!r}", hint=f"its pipelines are {known}" if known else "")
    found = names[name]
    if not hasattr(found, "__iter__") and callable(found):
        try:
            found = found()
        except Exception as error:
            raise ProgramError(f"{program}{_line_in(error, place)} failed: {type(error).__name__}: {error}") from error
    if not hasattr(found, "__iter__"):
        raise ProgramError(f"{program} is a {type(found).__name__}, not a pipeline")
    return found


def _names_of(place: str) -> dict[str, Any]:
    if place.endswith(".py") or os.path.exists(place):
        if not os.path.isfile(place):
            raise ProgramError(f"there is no file {place!r}")
        folder = os.path.dirname(os.path.abspath(place))
        if folder not in sys.path:
            sys.path.insert(0, folder)  # as Python does for a program
        return runpy.run_path(place, run_name="__producer__")
    if "" not in sys.path:
        sys.path.insert(0, "")
    if importlib.util.find_spec(place.partition(".")[0]) is None:
        raise ProgramError(f"there is no file and no module {place!r}")
    return vars(importlib.import_module(place))


def _line_in(error: BaseException, place: str) -> str:
    """Where in the user's file it failed."""
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno}"
    lines, trace = [], error.__traceback__
    while trace is not None:
        if os.path.abspath(trace.tb_frame.f_code.co_filename) == os.path.abspath(place):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f", line {lines[-1]}" if lines else ""


# -- several processes -----------------------------------------------------------------------------------


def numbered_addresses(address: str, count: int) -> list[str]:
    """The addresses of several producers of a machine: with ports that follow each other, or numbered paths.

    >>> numbered_addresses("tcp://0.0.0.0:7880", 2), numbered_addresses("ipc:///run/a", 2)
    (['tcp://0.0.0.0:7880', 'tcp://0.0.0.0:7881'], ['ipc:///run/a-0', 'ipc:///run/a-1'])
    """
    found = re.fullmatch(r"(tcp://.*:)(\d+)", address)
    if found is None:
        return [f"{address}-{number}" for number in range(count)]
    port = int(found[2])
    return [f"{found[1]}{port + number if port else 0}" for number in range(count)]


class ProducerProcesses:
    """Producers as child processes, each started again when it dies; `statuses` has the latest word of each."""

    def __init__(self, commands: Sequence[Sequence[str]], bound: Callable[[str], Any]) -> None:
        self._commands = commands
        self._bound = bound
        self._is_closed = False
        self._lock = threading.Lock()
        self._children: list[subprocess.Popen[str] | None] = [None] * len(commands)
        self.statuses: list[ProducerStatus | None] = [None] * len(commands)
        self.failed: Exception | None = None
        self._threads = [Thread(target=self._keep, args=(n,), daemon=True) for n in range(len(commands))]
        for thread in self._threads:
            thread.start()

    def total(self) -> ProducerStatus | None:
        """What all of them do together."""
        known = [status for status in self.statuses if status is not None]
        if not known:
            return None
        numbers: dict[str, Any] = {name: sum(getattr(one, name) for one in known) for name in COUNTED}
        return ProducerStatus(readers=sorted({reader for one in known for reader in one.readers}), **numbers)

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            self._is_closed = True
            children = [child for child in self._children if child is not None]
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
        for thread in self._threads:
            thread.join(5)

    def _keep(self, number: int) -> None:
        short = 0
        while True:
            with self._lock:
                if self._is_closed:
                    return
                child = subprocess.Popen(  # noqa: S603 - this program itself
                    self._commands[number], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
                )
                self._children[number] = child
            served = self._listen(number, child)
            code = child.wait()
            self.statuses[number] = None
            short = 0 if served else short + 1
            if short >= SHORT_LIVED or code == 2:
                self.failed = CommandError(f"producer {number} does not start: it ended with code {code}")
                return
            time.sleep(RESTART_SECONDS)

    def _listen(self, number: int, child: subprocess.Popen[str]) -> bool:
        """What a child says of itself, until it ends; whether it came so far as to serve."""
        served = False
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                message = json.loads(line)
                if "bound" in message:
                    served = True
                    self._bound(message["bound"])
                else:
                    self.statuses[number] = ProducerStatus(**message)
        return served


# -- asking ----------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """What a producer says of itself, if it answers."""

    address: str
    status: ProducerStatus | None


def statuses(urls: Sequence[str], *, keys: Keys | None = None, insecure: bool = False, wait: float = 5.0) -> list[Told]:
    """Ask producers how they are; one that does not answer in time has no status."""
    return next(watched(urls, keys=keys, insecure=insecure, wait=wait))


def watched(
    urls: Sequence[str], *, keys: Keys | None = None, insecure: bool = False, wait: float = 5.0, every: float = 1.0
) -> Iterator[list[Told]]:
    """What producers say of themselves, again and again."""
    zmq, keys, found = zeromq(), keys_of(keys, TRAINER), addresses(urls)
    for address in found:
        check_allowed(address, keys, insecure=insecure)
    context = zmq.Context()
    try:
        sockets = [_connected(zmq, context, keys, address) for address in found]
        while True:
            yield [Told(address, status) for address, status in zip(found, _asked(zmq, sockets, wait), strict=True)]
            time.sleep(every)
    finally:
        context.destroy(linger=0)


def _connected(zmq: ModuleType, context: zmq.Context[Any], keys: KeyFile | None, address: str) -> zmq.Socket[Any]:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_HEADER_BYTES)
    if keys is not None:
        keys.connect(socket)
    socket.connect(address)
    return socket


def _asked(zmq: ModuleType, sockets: list[Any], wait: float) -> list[ProducerStatus | None]:
    poller = zmq.Poller()
    for socket in sockets:
        while socket.poll(0):
            socket.recv_multipart()  # a late answer to an earlier question
        poller.register(socket, zmq.POLLIN)
        socket.send(packed({"kind": "status"}))
    found: dict[Any, ProducerStatus] = {}
    end = time.monotonic() + wait
    while len(found) < len(sockets) and (left := end - time.monotonic()) > 0:
        for socket, _ in poller.poll(left * 1000):
            message = unpacked(socket.recv_multipart()[0], MAX_HEADER_BYTES)
            found[socket] = ProducerStatus(**message["status"])
            poller.unregister(socket)
    return [found.get(socket) for socket in sockets]


def refuse_silence(told: Sequence[Told]) -> None:
    """Raise if no producer answers."""
    if not any(status for _, status in told):
        shown = ", ".join(address for address, _ in told[:8])
        raise UnavailableError(f"no producer answers: {shown}", hint="look at the addresses, and at the keys of both")
