"""Tests that are left out: those of servers and programs that are not there, and of frameworks where these are old."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from servers.programs import LEFT_OUT, PLACES, leave_out

TESTS = Path(__file__).resolve().parent
OPTIONS = {
    "quick": "leave out the tests that talk to servers, start engines, execute notebooks or take long: three minutes",
    "without-servers": "leave out the tests that talk to servers, also where these are installed",
    "oldest": "the packages here are the oldest allowed: leave out the tests of frameworks, which need newer ones",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, line in OPTIONS.items():
        parser.addoption(f"--{name}", action="store_true", help=line)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "framework(*names): needs these packages, of the group `frameworks`")
    config.pluginmanager.register(_Counter(), "left out")
    if config.getoption("quick") or config.getoption("without_servers"):
        PLACES.update({kind: [] for kind in PLACES})


@pytest.hookimpl(tryfirst=True)  # before servers are started
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Only a run that was told to leaves something out: elsewhere a framework that is not there is a failure."""
    names = [name for mark in item.iter_markers("framework") for name in mark.args]
    if unknown := set(names) - frameworks():
        pytest.fail(f"not of the group `frameworks`, which --oldest does without: {', '.join(sorted(unknown))}")
    if names and item.config.getoption("oldest"):
        leave_out(f"framework {' '.join(names)}")


@cache
def frameworks() -> frozenset[str]:
    """The packages that ./run test --oldest does not install."""
    packages = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["dependency-groups"]["frameworks"]
    return frozenset(re.match(r"[\w-]+", package)[0] for package in packages)  # type: ignore[index]


class _Counter:
    """Ends a run with a line that tells how many tests were left out, and what they need."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            _, found, packages = report.longrepr[2].partition(LEFT_OUT)
            if found:
                self.tests[packages] += 1

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if self.tests:
            needed = sorted({name for packages in self.tests for name in packages.split()[1:]})
            line = f"tests left out: {self.tests.total()}; they need {', '.join(needed)}"
            asked = any(config.getoption(name.replace("-", "_")) for name in OPTIONS)
            line += "" if asked else "; as root on Debian or Ubuntu, ./run test installs servers"
            config.get_terminal_writer().line(line)
