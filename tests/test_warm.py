"""Programs that are forked from a process with torch in it do what they would do by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import warm
from waiting import soon

PROGRAMS = {
    "prints": ("-c", "import sys; print('out', sys.argv); print('err', file=sys.stderr)", "a", "b"),
    "exits with a number": ("-c", "import sys; sys.exit(300)"),
    "exits with a line": ("-c", "raise SystemExit('what is wrong')"),
    "exits with nothing": ("-c", "raise SystemExit"),
    "has no more to say": ("-c", "import os; os._exit(7)"),
    "is killed": ("-c", "import os; os.kill(os.getpid(), 11)"),
    "says something at its end": ("-c", "import atexit; atexit.register(print, 'the end')"),
    "has a thread": ("-c", "import threading, time; threading.Timer(0.05, print, ['later']).start()"),
    "is a module": ("-m", "json.tool", "--help"),
    "is a file": ("program.py", "word"),
    "pickles its own": ("pickles.py",),
    "has a main module": ("-c", "import __main__; x = 1; print(__main__.x, __name__)"),
    "reads nothing": ("-c", "import sys; print(repr(sys.stdin.read()))"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    (tmp_path / "program.py").write_text(
        "import os, sys, beside\nprint(__name__, sys.argv, beside.NAME, os.getcwd(), os.environ['COLOUR'])\n"
    )
    (tmp_path / "pickles.py").write_text(
        "import multiprocessing\ndef double(n): return 2 * n\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(double, [1, 2]))\n"
    )
    return tmp_path


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_what_it_does_by_itself(folder: Path, name: str) -> None:
    words, environment = PROGRAMS[name], os.environ | {"COLOUR": "blue"}
    told = {"capture_output": True, "text": True, "check": False, "stdin": subprocess.DEVNULL}
    alone = subprocess.run([sys.executable, *words], cwd=folder, env=environment, **told)
    done = warm.run(*words, cwd=folder, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_an_error_is_shown_with_its_place() -> None:
    done = warm.run("-c", "import json\njson.loads('{')")
    assert done.returncode == 1
    assert done.stderr.rstrip().splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")


def test_torch_is_there_and_the_tests_environment_is_not_touched() -> None:
    done = warm.run("-c", "import os, sys; print('torch' in sys.modules); os.environ['COLOUR'] = 'red'")
    assert done.stdout == "True\n"
    assert "COLOUR" not in os.environ
    assert warm.run("-c", "import os; print(os.environ.get('COLOUR'))").stdout == "None\n"


def test_what_the_interpreter_reads_at_its_start_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="PYTHONHASHSEED needs an interpreter of its own"):
        warm.run("-c", "pass", env=os.environ | {"PYTHONHASHSEED": "7"})


def test_limits_are_those_of_the_program() -> None:
    done = warm.run("-c", "while True: pass", limits={"RLIMIT_CPU": 1})
    assert done.returncode in (-9, -24)


def test_a_program_that_hangs_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        warm.run("-c", "import time; time.sleep(600)", timeout=0.2)


def test_the_server_ends_with_the_last_that_used_it() -> None:
    program = "import sys, warm; print(warm.run('-c', 'import os; print(os.getppid())', preload='json').stdout)"
    path = {"PYTHONPATH": str(Path(warm.__file__).parent), warm.RUN: f"of its own {os.getpid()}"}
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | path, capture_output=True, check=True)
    server = int(done.stdout)
    assert soon(lambda: not Path(f"/proc/{server}").exists())


def test_a_command_has_the_streams_and_the_status_of_its_program(folder: Path) -> None:
    warm.install(folder / "add", "import sys\nprint(sum(map(int, sys.stdin)), sys.argv[1:])\nsys.exit(3)\n", "json")
    line = "printf '1\\n2\\n' | ./add a 'b c' | tr 3 4; echo ${PIPESTATUS[1]}"
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.replace("['a', 'b c']", "...") == "4 ...\n3\n"


def test_a_command_passes_signals_on_and_ends_by_one(folder: Path) -> None:
    waits = (
        "import signal, time\n"
        "try:\n    print('here', flush=True)\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    signal.raise_signal(9)\n"
    )
    warm.install(folder / "wait", waits, "json")
    with subprocess.Popen([folder / "wait"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGKILL


def test_a_program_ends_with_the_command_that_was_killed(folder: Path) -> None:
    warm.install(folder / "wait", "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n", "json")
    with subprocess.Popen([folder / "wait"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        program = Path("/proc", process.stdout.readline().strip())
        assert program.exists()
        process.kill()
    assert soon(lambda: not program.exists())
