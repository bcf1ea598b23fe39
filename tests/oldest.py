"""Runs with the oldest releases: the tests of frameworks, which need newer packages, are left out, and counted."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from servers.programs import leave_out

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def pytest_addoption(parser: pytest.Parser) -> None:
    help_line = "the packages here are the oldest allowed: leave out the tests of frameworks, which need newer ones"
    parser.addoption("--oldest", action="store_true", help=help_line)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "framework(*names): needs these packages, of the group `frameworks`")


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
    packages = tomllib.loads(PROJECT.read_text())["dependency-groups"]["frameworks"]
    return frozenset(re.match(r"[\w-]+", package)[0] for package in packages)  # type: ignore[index]
