"""The end of a run: what was missing (servers, programs, frameworks), how many tests that left out, and the cure."""

from __future__ import annotations

import os
import shutil
from collections import Counter

import pytest

from servers.programs import LEFT_OUT


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Missing(), "missing servers")


class _Missing:
    """Counts the tests that were left out, by the packages that they need (`apt squid`)."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            _, found, packages = report.longrepr[2].partition(LEFT_OUT)
            if found:
                self.tests[packages] += 1

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        if self.tests:
            chosen = bool(config.getoption("--without-servers", default=False))
            config.get_terminal_writer().line(closing_line(self.tests, chosen=chosen))


def closing_line(tests: Counter[str], *, chosen: bool = False) -> str:
    """The last line of a run; `chosen` if it was asked to do without servers.

    >>> closing_line(Counter({"pip moto": 2}))
    'left out: 2 tests, which need moto; to install it: ./run servers'
    >>> closing_line(Counter({"pip moto": 1, "apt squid": 3}), chosen=True)
    'left out: 4 tests, which need moto, squid, as --without-servers asks'
    >>> closing_line(Counter({"framework keras": 1, "framework jax": 1}))
    'left out: 2 tests, which need jax, keras, as --oldest installs no frameworks'
    """
    newer = Counter({packages: count for packages, count in tests.items() if packages.startswith("framework ")})
    servers = tests - newer
    said = [f"{_counted(newer)}, as --oldest installs no frameworks"] if newer else []
    if servers and chosen:
        said.append(f"{_counted(servers)}, as --without-servers asks")
    elif servers:
        those = "it" if len(_names(servers)) == 1 else "them"
        said.append(f"{_counted(servers)}; to install {those}: {cure({packages.split()[0] for packages in servers})}")
    return f"left out: {'; '.join(said)}"


def _counted(tests: Counter[str]) -> str:
    needed = ", ".join(_names(tests))
    return f"1 test, which needs {needed}" if tests.total() == 1 else f"{tests.total()} tests, which need {needed}"


def _names(tests: Counter[str]) -> list[str]:
    return sorted({name for packages in tests for name in packages.split()[1:]})


def cure(kinds: set[str]) -> str:
    """The command that installs packages of these kinds here, for this user."""
    if "apt" not in kinds or (shutil.which("apt-get") and os.geteuid() == 0):
        return "./run servers"
    return "sudo ./run servers" if shutil.which("apt-get") else "this system's package manager, then ./run servers"
