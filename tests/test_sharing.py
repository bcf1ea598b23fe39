"""Tests that are shared by processes have the outcomes that they have in one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import sharing
from waiting import soon

MANY = """
import os, warnings
import pytest

@pytest.fixture(scope="module")
def made(tmp_path_factory):
    yield tmp_path_factory.mktemp("made")
    with open(os.environ["NOTES"], "a") as notes:
        notes.write("module ended\\n")

@pytest.mark.parametrize("number", range(7))
def test_numbers(number, made, tmp_path):
    print("said by", number)
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{number} {os.getpid()} {made} {tmp_path}\\n")
    assert number != 3

def test_left_out():
    pytest.skip("there is a reason")

@pytest.mark.xfail(strict=False)
def test_expected():
    assert False

@pytest.fixture
def broken():
    yield
    raise RuntimeError("at the end")

def test_with_an_end(broken):
    pass
"""
TOGETHER = """
import os
import pytest

@pytest.fixture(scope="session")
def server():
    yield os.getpid()
    with open(os.environ["NOTES"], "a") as notes:
        notes.write("server ended\\n")

@pytest.mark.together("server")
@pytest.mark.parametrize("number", range(3))
def test_together(number, server):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"together {server}\\n")
    if os.environ.get("WAIT"):
        import time
        time.sleep(600)
"""
DYING = """
import os, signal

def test_before():
    pass

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after():
    pass
"""


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command that runs the tests of the folder."""
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setenv("PYTHONPATH", str(Path(sharing.__file__).parent))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    cache = f"cache_dir={tmp_path}/kept"
    return [sys.executable, "-m", "pytest", "-p", "sharing", f"--rootdir={tmp_path}", "-c", os.devnull, "-o", cache]


def run(words: list[str], folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    files_given = [str(folder / f"test_{name}.py") for name in files]
    return subprocess.run([*words, *files_given], capture_output=True, text=True, check=False, cwd=folder).stdout


def outcomes(shown: str) -> list[str]:
    return sorted(re.findall(r"^(?:PASSED|FAILED|ERROR|SKIPPED|XFAIL).*", shown, re.MULTILINE))


def test_outcomes_are_those_of_one_process_and_modules_are_not_torn_apart(words: list[str], tmp_path: Path) -> None:
    alone = run([*words, "-rA"], tmp_path, many=MANY, together=TOGETHER)
    (tmp_path / "notes").unlink()
    shared = run([*words, "-rA", "--share", "3"], tmp_path, many=MANY, together=TOGETHER)
    assert outcomes(shared) == outcomes(alone)
    assert len(outcomes(shared)) == 14
    assert "said by 3" in shared
    assert json.loads((tmp_path / "kept/v/cache/lastfailed").read_text()) == dict.fromkeys(
        ("test_many.py::test_numbers[3]", "test_many.py::test_with_an_end"), True
    )
    notes = (tmp_path / "notes").read_text().splitlines()
    numbers = [line.split() for line in notes if line[0].isdigit()]
    assert [line[0] for line in numbers] == list("0123456")
    assert len({tuple(line[1:3]) for line in numbers}) == 1  # one process, one fixture
    assert len({line[3] for line in numbers}) == 7
    assert notes.count("module ended") == notes.count("server ended") == 1
    assert len({line for line in notes if line.startswith("together")}) == 1


def test_the_test_of_a_process_that_dies_has_failed_and_the_others_run(words: list[str], tmp_path: Path) -> None:
    shown = run([*words, "-rA", "--share", "1"], tmp_path, dying=DYING)
    assert "test_dying.py::test_dies: the process of this test ended with status -9" in shown
    assert "1 failed, 2 passed" in shown


def test_a_fixture_that_fails_at_the_very_end_fails_the_run_and_no_test(words: list[str], tmp_path: Path) -> None:
    fixture = (
        "import pytest\n@pytest.fixture(scope='session')\ndef server():\n    yield 1\n    raise OSError('no end')\n"
    )
    shown = run([*words, "--share", "2"], tmp_path, end=f"{fixture}def test_it(server): pass\n", other=DYING)
    assert "1 failed, 3 passed" in shown
    assert "ended between two tests, with status 1" in shown


def test_nothing_more_is_begun_after_the_first_failure_if_that_is_asked_for(words: list[str], tmp_path: Path) -> None:
    shown = run([*words, "-x", "--share", "1"], tmp_path, many=MANY, together=TOGETHER)
    assert "stopping after 1 failures" in shown
    assert "1 failed, 3 passed" in shown
    assert "together" not in (tmp_path / "notes").read_text()


def test_an_interrupt_ends_the_servers(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAIT", "1")
    path, notes = tmp_path / "test_together.py", tmp_path / "notes"
    path.write_text(TOGETHER)
    started = [*words, "--share", "2", path]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        assert soon(notes.exists)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, shown
    assert notes.read_text().splitlines()[-1] == "server ended"


def test_a_process_with_threads_is_not_forked(words: list[str], tmp_path: Path) -> None:
    module = "import threading, time\nthreading.Thread(target=time.sleep, args=[9], daemon=True).start()\n"
    shown = run([*words, "--share", "2"], tmp_path, threads=f"{module}\ndef test_nothing(): pass\n")
    assert "a module of the tests starts threads when it is imported" in shown
    assert "passed" not in shown


def test_many_tests_of_a_module_are_several_units(request: pytest.FixtureRequest) -> None:
    items = [request.node] * 100
    assert [len(unit) for unit in sharing.units(items)] == [40, 40, 20]
    assert [number for unit in sharing.units(items) for number in unit] == list(range(100))
