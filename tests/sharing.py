"""The tests, shared by processes that are forked once all tests are collected: `pytest --share 4`.

Collecting takes six seconds, which every process of pytest-xdist would spend. Tests are dealt in units: those of a
module in a row, whose fixtures are then made once, and those that belong together wherever they are,

    @pytest.mark.together("ceph")

which thus share their server. A process asks for a unit when it has done its last one. What becomes of a test is told,
counted and remembered by the process that collected it; if one dies, its test has failed, and another takes its place.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import traceback
from collections import deque
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

import warm

LARGEST_UNIT = 40
"""Tests of a module that are dealt at once; of many more, one process would still be busy when the others are done."""
SECONDS_TO_END = 60
MOST_BROKEN = 8
"""Processes that may end for no test's sake, before no more are started."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=int, default=0, metavar="N", help="run the tests in N processes")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "together(name): one process runs all tests of this name, in a row")
    os.environ[warm.RUN] = str(os.getpid())


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests, where processes are asked for and everything could be collected; else pytest does."""
    count = session.config.getoption("share")
    if not count or session.testsfailed or session.config.getoption("collectonly"):
        return None
    _Dealer(session).run(count)
    return True


def group(item: pytest.Item) -> str | None:
    """What a test belongs to."""
    mark = item.get_closest_marker("together")
    return mark.args[0] if mark else None


def units(items: list[pytest.Item]) -> list[list[int]]:
    """The numbers of the tests, as they are dealt: a unit has the turn of its first test."""
    found: dict[tuple[str, object], list[int]] = {}
    for number, item in enumerate(items):
        name = group(item)
        found.setdefault(("module", item.path) if name is None else ("group", name), []).append(number)
    cut = []
    for (kind, _), numbers in found.items():
        size = LARGEST_UNIT if kind == "module" else len(numbers)
        cut += [numbers[first : first + size] for first in range(0, len(numbers), size)]
    return sorted(cut)


# -- the process that collected the tests ----------------------------------------------------------


class _Process:
    """One that runs tests, and what it has still to do."""

    def __init__(self, number: int, identity: int, connection: Connection) -> None:
        self.number, self.identity, self.connection = number, identity, connection
        self.sentinel = os.pidfd_open(identity)
        self.unit: list[int] = []
        self.is_running = False
        """Whether it is in the midst of the first test of its unit."""

    def end(self) -> None:
        """Interrupt it, as Ctrl-C does, and wait until it has ended its servers."""
        self.connection.close()
        signal.pidfd_send_signal(self.sentinel, signal.SIGINT)
        if not wait([self.sentinel], SECONDS_TO_END):
            signal.pidfd_send_signal(self.sentinel, signal.SIGKILL)
        self.reap()

    def reap(self) -> int:
        _, status = os.waitpid(self.identity, 0)
        os.close(self.sentinel)
        self.connection.close()
        return os.waitstatus_to_exitcode(status)


class _Dealer:
    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.hook = session.config.hook
        self.units = deque(units(session.items))
        self.processes: list[_Process] = []
        self.started = 0
        self.broken: list[str] = []

    def run(self, count: int) -> None:
        terminal = self.session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False  # tests of several files run at once
        self.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        _check_threads()
        try:
            while len(self.processes) < min(count, len(self.units)):
                self.start()
            while self.processes and not self._reason_to_stop():
                self.listen()
        finally:
            for process in self.processes:
                process.end()
        if self.broken:
            raise RuntimeError("; ".join(self.broken))
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def _reason_to_stop(self) -> bool | str:
        return self.session.shouldfail or self.session.shouldstop

    def start(self) -> None:
        ours, theirs = Pipe()
        identity = os.fork()
        if not identity:
            for connection in [ours, *(process.connection for process in self.processes)]:
                connection.close()  # else they would outlive this process here
            _Worker(self.session, theirs, self.started).live()
        theirs.close()
        self.processes.append(_Process(self.started, identity, ours))
        self.started += 1

    def listen(self) -> None:
        """Hear what the processes say, and see which have ended."""
        ready = set(wait([each for process in self.processes for each in (process.connection, process.sentinel)]))
        for process in list(self.processes):
            if process.connection in ready:
                self.hear(process)
            elif process.sentinel in ready:
                self.processes.remove(process)
                self.miss(process, process.reap())

    def hear(self, process: _Process) -> None:
        try:
            what, content = process.connection.recv()
        except (EOFError, ConnectionResetError):
            wait([process.sentinel])  # nobody else has the other end, unless the process left children behind
            self.processes.remove(process)
            self.miss(process, process.reap())
            return
        if what == "asks":
            process.unit = self.units.popleft() if self.units else []
            with contextlib.suppress(OSError):  # it may be gone
                process.connection.send(process.unit)
        elif what == "starts":
            process.is_running = True
        elif what == "report":
            self.report(self.hook.pytest_report_from_serializable(config=self.session.config, data=content))
        elif what == "ends":
            process.is_running = False
            item = self.session.items[process.unit.pop(0)]
            self.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def report(self, report: pytest.TestReport) -> None:
        self.hook.pytest_runtest_logreport(report=report)

    def miss(self, process: _Process, status: int) -> None:
        """A process has ended: as it should, or in the midst of a test, which has failed, or between two tests."""
        if not status and not process.unit:
            return
        if process.is_running:
            self.fail(self.session.items[process.unit.pop(0)], status)
        else:
            self.broken.append(f"process {process.number} ended between two tests, with status {status}; see above")
        if process.unit:
            self.units.appendleft(process.unit)
        if self.units and len(self.broken) <= MOST_BROKEN:
            self.start()

    def fail(self, item: pytest.Item, status: int) -> None:
        self.report(
            pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"{item.nodeid}: the process of this test ended with status {status}",
                when="call",
            )
        )


def _check_threads() -> None:
    """What has threads must not be forked: OpenMP in a child, for instance, waits forever for those of its parent."""
    names = [Path(task, "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    if len(names) > 1:
        raise RuntimeError(f"a module of the tests starts threads when it is imported: {', '.join(names)}")


# -- a process that runs them ----------------------------------------------------------------------


class _Worker:
    def __init__(self, session: pytest.Session, connection: Connection, number: int) -> None:
        self.session, self.connection, self.number = session, connection, number

    def live(self) -> NoReturn:
        status = 1
        try:
            self.prepare()
            while unit := self.ask():
                self.session._setupstate.teardown_exact(self.session.items[unit[0]])
                self.run(unit)
            self.session._setupstate.teardown_exact(None)
            status = 0
        except (KeyboardInterrupt, EOFError, ConnectionError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts all processes, and so does the dealer
            self.session._setupstate.teardown_exact(None)  # servers end
        except BaseException:
            traceback.print_exc(file=self.stderr)
        finally:
            os._exit(status)

    def prepare(self) -> None:
        """Have what forked processes must not share."""
        config = self.session.config
        if capture := config.pluginmanager.get_plugin("capturemanager"):
            capture.stop_global_capturing()
        self.stderr = os.fdopen(os.dup(2), "w")
        if capture:
            capture.start_global_capturing()
        if terminal := config.pluginmanager.get_plugin("terminalreporter"):
            config.pluginmanager.unregister(terminal)
        config.pluginmanager.register(self, "shared tests")
        folders: Any = config._tmp_path_factory  # type: ignore[attr-defined]
        folders._basetemp = folders.getbasetemp() / f"process-{self.number}"
        folders._basetemp.mkdir(mode=0o700)
        random.seed()

    def ask(self) -> list[int]:
        """The next tests to run; none are left where there are none."""
        self.connection.send(("asks", None))
        unit: list[int] = self.connection.recv()
        return unit

    def run(self, unit: list[int]) -> None:
        items = [self.session.items[number] for number in unit]
        for item, following in zip(items, [*items[1:], self.elsewhere(items)], strict=True):
            self.connection.send(("starts", None))
            self.session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self.connection.send(("ends", None))

    def elsewhere(self, unit: list[pytest.Item]) -> pytest.Item | None:
        """A test of another module, and of no group: whatever comes next, fixtures of this module end now."""
        modules = {item.path for item in unit}
        others = (item for item in self.session.items if item.path not in modules and group(item) is None)
        return next(others, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self.session.config.hook
        self.connection.send(("report", hook.pytest_report_to_serializable(config=self.session.config, report=report)))
