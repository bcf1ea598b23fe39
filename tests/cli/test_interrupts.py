"""Ctrl-C and SIGTERM while a server has stopped sending: commands end at once, and leave nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests_support import numbered, tar_bytes

LINES = {
    "ls": "ls {}",
    "info": "info {}",
    "show": "show -c 1000 --html out.html {}",
    "cat": "cat {} cls 500 -o out",
    "extract": "extract -f cls {} -o out.tsv",
    "dump": "dump -q -s 900 {}",
    "test": "test -t 100 {}",
    "test workers": "test -t 100 -P 2 {}",
    "lint": "lint {}",
    "concat": "concat {} -o out.tar",
    "shuffle": "shuffle {} -o out.tar",
    "shuffle cores": "shuffle -P 2 {} -o out.tar",
    "sort": "sort {} -o out.tar",
    "split": "split {} -o out-%d.tar",
    "map": "map -c pass {} -o out.tar",
    "map cores": "map -P 2 -c pass {} -o out.tar",
    "xargs": "xargs -P 2 -c true {} -o out.tar",
    "index": "index {}",
    "cp": "cp {} ./",
}


class Stuck(BaseHTTPRequestHandler):
    """Sends half of a shard, and then nothing more."""

    sent: threading.Event
    over: threading.Event
    data = tar_bytes(numbered(200))

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        self.wfile.write(self.data[: len(self.data) // 2])
        self.wfile.flush()
        self.sent.set()
        self.over.wait()

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, threading.Event]]:
    """The url of a shard, and what is set when half of it was sent."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    handler = type("Handler", (Stuck,), {"sent": threading.Event(), "over": threading.Event()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/a.tar", handler.sent
        handler.over.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", LINES)
def test_a_command_ends_at_once_and_leaves_nothing(
    stuck: tuple[str, threading.Event], command: str, number: int
) -> None:
    url, sent = stuck
    argv = [sys.executable, "-m", "webdataset", *LINES[command].format(url).split()]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert sent.wait(60)
            process.send_signal(number)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert "Traceback" not in told
    assert [name for name in os.listdir() if name != ".cache"] == []


LOST = """
import os, signal, sys, time, weakref
from webdataset.cli.grammar import Parser
from webdataset.cli.running import run_parser

class Thing: pass

def run(_):
    thing = Thing()
    gone = weakref.ref(thing, lambda _: os.kill(os.getpid(), int(sys.argv[1])) or time.sleep(0.01))
    del thing  # the interpreter drops what is raised in the callback
    print("lost", flush=True)
    time.sleep(600)

sys.exit(run_parser(Parser(prog="wl"), [], run))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_the_interpreter_drops_is_not_lost(number: int) -> None:
    done = subprocess.run([sys.executable, "-c", LOST, str(int(number))], capture_output=True, text=True, timeout=60)
    assert done.stdout == "lost\n"
    assert done.returncode == (130 if number == signal.SIGINT else 143)
    assert "ignored" not in done.stderr


EXECUTED = """
import sys
from webdataset.cli.grammar import Parser
from webdataset.cli.running import run_parser

sys.exit(run_parser(Parser(prog="wl"), [], lambda _: exec("raise KeyboardInterrupt")))
"""


def test_an_interrupt_while_a_dataclass_is_made_has_its_exit_code() -> None:
    # the interpreter remembers an interrupt that left an exec(), and would end by the signal
    done = subprocess.run([sys.executable, "-c", EXECUTED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n"), "interrupted" in done.stderr) == (130, 1, True)


NAMED = """
import sys
from webdataset.cli.grammar import Parser
from webdataset.cli.running import run_parser

class Field:
    def __set_name__(self, *_):
        raise KeyboardInterrupt

sys.exit(run_parser(Parser(prog="wl"), [], lambda _: type("Class", (), {"field": Field()})))
"""


def test_an_interrupt_while_a_class_is_made_has_its_exit_code() -> None:
    done = subprocess.run([sys.executable, "-c", NAMED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, "interrupted" in done.stderr.splitlines()[0]) == (130, True)


IMPORTED = """
import sys
from webdataset.cli import main

class Interrupts:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
sys.exit(main(["ls", "a.tar"]))
"""


@pytest.mark.parametrize("module", ["webdataset.cli.commands.ls", "webdataset.dataset"])
def test_an_interrupt_while_a_command_is_imported_has_its_exit_code(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTED, module], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


class Serving(BaseHTTPRequestHandler):
    """Sends a shard that is large enough to be read by a thread."""

    data = tar_bytes(numbered(1100))

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        with contextlib.suppress(OSError):  # whoever is interrupted goes away
            self.wfile.write(self.data)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Serving) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/a.tar"
        server.shutdown()
        thread.join()


EVERYWHERE = """
import contextlib, io, os, sys
from interrupts import different_moments, interrupted
from webdataset.cli import main

WAITING = ("threading.py", "base/stops.py")
OVER = 99

def command():
    with contextlib.redirect_stdout(io.StringIO()):
        codes.append(main(["ls", sys.argv[1]]))

codes = []
moments = different_moments(command, WAITING)
for moment in moments[::2]:
    pid = os.fork()
    if not pid:
        codes.clear()
        sys.exit(codes[0] if interrupted(command, moment, WAITING) else OVER)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_command_that_is_interrupted_wherever_it_waits_ends_with_its_exit_code(served: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", EVERYWHERE, served]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    codes = Counter(done.stdout.split())
    assert codes.keys() <= {"130", "99"}  # one that has not come to the moment has not waited as long as the first
    assert codes["130"] > 20
