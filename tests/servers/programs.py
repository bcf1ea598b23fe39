"""Server programs: found, started on free ports of loopback, and ended."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from waiting import soon

START_TRIALS = 5
START_SECONDS = 200.0
"""A store of several programs takes 5 s to start, and many times as long on a machine that has other things to do."""
PORTS_BELOW = 12_000
# where `./run test` puts the programs of a kind of package; one of pip's on PATH may be of another Python
PLACES = {
    "pip": [f"{sys.prefix}/bin"],
    "npm": [f"{sys.prefix}/node/node_modules/.bin", *os.get_exec_path()],
    "apt": [*os.get_exec_path(), "/usr/sbin", "/sbin"],
}
COMMAND = re.compile(r"(?:^|[;&|'\"])\s*(\w+)")
LEFT_OUT = "not installed here: "

# programs of which there are others by the same name: how to ask, what the right one answers, its package
NAMESAKES = {
    "convert": ("-version", "ImageMagick", "apt imagemagick"),
    "mogrify": ("-version", "ImageMagick", "apt imagemagick"),
    "gm": ("version", "GraphicsMagick", "apt graphicsmagick"),
}


class NotStarted(RuntimeError):
    """A server that ended, or never listened."""


def program(name: str, package: str) -> str:
    """The path of a program; a test that needs one which is not there is left out."""
    found = shutil.which(name, path=os.pathsep.join(PLACES[package.split(maxsplit=1)[0]]))
    return found or leave_out(package)


def needs_programs_of(line: str) -> None:
    """A command line that calls a program which is not there, or which only has its name, is left out."""
    for name in NAMESAKES.keys() & set(COMMAND.findall(line)):
        if not _is_itself(name):
            leave_out(NAMESAKES[name][2])


def leave_out(package: str) -> NoReturn:
    """Skip the test, in a way that the end of the run can count."""
    pytest.skip(f"{LEFT_OUT}{package}")


@cache
def _is_itself(name: str) -> bool:
    question, answer, _ = NAMESAKES[name]
    if shutil.which(name) is None:
        return False
    told = subprocess.run([name, question], capture_output=True, text=True, check=False, timeout=60)
    return told.returncode == 0 and answer in told.stdout


# -- ports -----------------------------------------------------------------------------------------

_reserved: dict[int, socket.socket] = {}


def free_port() -> int:
    """A port that nothing listens on, and that no other test run on this machine is given while this one lasts.

    It lies below those that the system hands out by itself, to any connection at any time. The reservation is an
    abstract socket: it is there for all users of the machine, and gone with its process.
    """
    while True:
        port = random.SystemRandom().randrange(_first_handed_out() - PORTS_BELOW, _first_handed_out())
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0webdataset-test-port-{port}")
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            reservation.close()
        else:
            _reserved[port] = reservation
            atexit.register(reservation.close)
            return port


@cache
def _first_handed_out() -> int:
    found = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return found if found > 1024 + PORTS_BELOW else 32_768


# -- processes -------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(make: Callable[..., contextlib.AbstractContextManager[object]], ports: int = 1) -> Iterator[tuple[int, ...]]:
    """What `make(*ports)` starts, on free ports; on others if that fails, because somebody may have been quicker."""
    with contextlib.ExitStack() as stack:
        for trial in range(START_TRIALS):
            numbers = tuple(free_port() for _ in range(ports))
            try:
                stack.enter_context(make(*numbers))
                break
            except NotStarted:
                if trial + 1 == START_TRIALS:
                    raise
        yield numbers


@contextlib.contextmanager
def running(command: list[str], port: int, folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from the moment it listens until the end of the block."""
    log = folder / "log.txt"
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )
    try:
        if not soon(lambda: process.poll() is not None or _listens(port), START_SECONDS) or process.poll() is not None:
            raise NotStarted(f"{command} does not listen: {log.read_text(errors='replace')[-2000:]}")
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server, by force if it does not hear."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
