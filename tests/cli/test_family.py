"""The family of commands: help, use, exit codes, old names, completion, the page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from webdataset.cli import COMMANDS


def test_the_family_fits_on_one_screen(wl: Any) -> None:
    shown = wl("--help").out.decode().splitlines()
    assert len(shown) <= 32
    assert max(map(len, shown)) <= 80
    assert wl("").code == 2
    assert wl().out.decode().splitlines() == shown


def test_a_command_that_does_not_exist(wl: Any) -> None:
    ended = wl("conct")
    assert ended.code == 2
    assert "'concat'" in ended.err


def test_python_m_webdataset_is_wl(wl_process: Any) -> None:
    assert wl_process("--version").stdout.startswith(b"wl (webdataset) ")


@pytest.mark.parametrize("words", [["--help"], ["concat", "--help"], ["map", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys, io; sys.stdout = io.StringIO(); from webdataset.cli import main; main(sys.argv[1:]);"
        "print([m for m in ('torch', 'PIL', 'numpy', 'yaml', 'asyncio') if m in sys.modules], file=sys.stderr)"
    )
    told = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True).stderr
    assert told == "[]\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_only_what_describes_the_commands(name: str) -> None:
    program = (
        "import sys, io; sys.stdout = io.StringIO(); from webdataset.cli import main; main(sys.argv[1:]);"
        "print(*{m.split('.')[1] for m in sys.modules if m.startswith('webdataset.')}, file=sys.stderr)"
    )
    words = [sys.executable, "-c", program, name, "--help"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    assert set(told.split()) <= {"base", "cli", "names"}


def test_an_interrupt_is_exit_130(tmp_path: Path) -> None:
    import signal

    argv = [sys.executable, "-m", "webdataset", "concat", "-", "-o", str(tmp_path / "out.tar"), "-v"]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list(tmp_path.iterdir()):  # the output is open, so the command is waiting for input
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert told.count(b"\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_error_with_its_traceback(wl: Any) -> None:
    assert "Traceback" in wl("concat", "-v", "/nowhere.tar").err


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_onto_a_full_disk_and_into_a_closed_pipe(word: str) -> None:
    line = [sys.executable, "-m", "webdataset", word]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ("space" in ended.stderr, len(ended.stderr.splitlines())) == (True, 1)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(line, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
