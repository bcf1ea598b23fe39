"""Server programs: found, started on a free port of loopback, and ended."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

START_SECONDS = 60.0
# where `./run servers` puts the programs of a kind of package; one of pip's on PATH may be of another Python
PLACES = {
    "pip": [f"{sys.prefix}/bin"],
    "npm": [f"{sys.prefix}/node/node_modules/.bin", *os.get_exec_path()],
    "apt": [*os.get_exec_path(), "/usr/sbin", "/sbin"],
}


def pytest_addoption(parser: pytest.Parser) -> None:
    help_line = "leave out the tests that talk to servers, also where these are installed"
    parser.addoption("--without-servers", action="store_true", help=help_line)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("without_servers"):
        PLACES.update({kind: [] for kind in PLACES})


def program(name: str, package: str) -> str:
    """The path of a program; a test that needs one which is not there is skipped."""
    found = shutil.which(name, path=os.pathsep.join(PLACES[package.split(maxsplit=1)[0]]))
    if found is None:
        pytest.skip(f"{name} is not installed: ./run servers (package {package})")
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


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
        wait_for(port, process, log)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args} does not listen: {log.read_text(errors='replace')[-2000:]}")
