"""Tests that belong together run in one process: pytest 9.2 and pytest-xdist 3.8 part them without a word."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests_support import python

MODULE = """
import pytest
@pytest.mark.parametrize("number", range(20))
def test_of_the_file(number): assert number != 7
@pytest.mark.xdist_group("store")
@pytest.mark.parametrize("number", range(20))
def test_of_the_group(number): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two modules of tests under this project's own conftest.py."""
    here = Path(__file__).parent
    shutil.copytree(here / "servers", tmp_path / "tests/servers")
    for path in [here.parent / "pyproject.toml", *here.glob("*.py")]:
        if not path.name.startswith("test_"):
            shutil.copy(path, tmp_path / path.relative_to(here.parent))
    for name in ("one", "two"):
        (tmp_path / "tests" / f"test_{name}.py").write_text(MODULE)
    return tmp_path


def test_groups_hold_and_what_failed_is_found_again(folder: Path) -> None:
    done = python("-m", "pytest", "-v", "-n", "2", "--dist", "loadgroup", cwd=folder)
    ran = set(re.findall(r"^\[(gw\d)\].*tests/(test_\w+)\.py::(test_\w+)\[", done.stdout, re.MULTILINE))
    assert len(ran) == 4, done.stdout[-3000:]
    assert len({worker for worker, _, name in ran if name == "test_of_the_group"}) == 1
    again = python("-m", "pytest", "-v", "--lf", cwd=folder)
    assert "collected 2 items" in again.stdout
