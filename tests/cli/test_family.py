"""The family of commands: help, use, exit codes, old names, completion, the page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webdataset.cli import COMMANDS
from webdataset.cli.commands.completion import bash, fish, zsh
from webdataset.cli.old.programs import PROGRAMS
from webdataset.cli.pages import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_family_fits_on_one_screen(wl: Any) -> None:
    shown = wl("--help").out.decode().splitlines()
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 80
    assert wl("").code == 2
    assert wl().out.decode().splitlines() == shown


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_two_examples(wl: Any, name: str) -> None:
    ended = wl(name, "--help")
    assert ended.code == 0
    text = ended.out.decode()
    assert text.startswith("examples:\n  # ")
    assert text.split("usage:")[0].count("wl ") >= 2
    assert wl("help", name).out == ended.out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_common_options_mean_the_same(name: str) -> None:
    from webdataset.cli.running import parser_of

    flags = {flag: action.dest for action in parser_of(name)._actions for flag in action.option_strings}
    for flag, dest in {"-S": "select", "-s": "skip", "-f": "fields", "-q": "quiet", "-v": "verbose"}.items():
        assert flags.get(flag, dest) == dest
    assert flags.get("-c", "count") in ("count", "count_or_code")
    assert flags.get("-P", "processes") == flags.get("-p", "processes") == "processes"


@pytest.mark.parametrize("program", PROGRAMS)
def test_old_programs_have_help(wl: Any, program: str) -> None:
    assert wl.old(*program.split(), "--help").code == 0
    assert wl.old(*program.split(), "--no-such-flag").code == 2


def test_every_name_is_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"wl", "widsindex", *(program.split()[0] for program in PROGRAMS)}


def test_a_command_that_does_not_exist(wl: Any) -> None:
    ended = wl("conct")
    assert ended.code == 2
    assert "did you mean 'concat'?" in ended.err


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
    assert told == b"wl concat: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_progress_and_summary_as_json(wl: Any, make_shard: Callable[..., str]) -> None:
    ended = wl("concat", "--json", make_shard(samples=7))
    facts = json.loads(ended.err.splitlines()[-1])
    assert (facts["done"], facts["samples"], facts["reasons"]) == (True, 7, {})


def test_quiet_is_quiet(wl: Any, make_shard: Callable[..., str]) -> None:
    shard = make_shard(files=[("README", b""), ("a.x", b"1")])
    assert wl("concat", "-q", shard).err == ""
    assert "1 samples in" in wl("concat", "-v", shard).err


def test_an_error_with_its_traceback(wl: Any) -> None:
    assert "Traceback" in wl("concat", "-v", "/nowhere.tar").err


def test_the_completion_scripts_are_whole(wl: Any, tmp_path: Path) -> None:
    for shell, script in {"bash": bash(), "zsh": zsh(), "fish": fish()}.items():
        assert wl("completion", shell).out.decode() == script
        assert all(name in script for name in COMMANDS)
        if shutil.which(shell):
            (tmp_path / shell).write_text(script)
            subprocess.run([shell, "-n", str(tmp_path / shell)], check=True)
    assert wl("completion", "tcsh").code == 2


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    (tmp_path / "wl.bash").write_text(bash())
    ask = "COMP_WORDS=({words}); COMP_CWORD={n}; _wl; echo ${{COMPREPLY[*]}}"
    for words, n, expected in (("wl sh", 1, "shuffle show"), ("wl sort --re", 2, "--reverse --rekey")):
        line = f"source {tmp_path}/wl.bash; " + ask.format(words=words, n=n)
        told = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout
        assert told.strip() == expected


def test_the_page_of_the_commands_is_current() -> None:
    hint = "run: python -m webdataset.cli.pages docs/commands.md"
    assert (ROOT / "docs/commands.md").read_text() == page(), hint


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_onto_a_full_disk_and_into_a_closed_pipe(word: str) -> None:
    line = [sys.executable, "-m", "webdataset", word]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert "No space left on device" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        ended = subprocess.run(line, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
