"""Copies of this process: their pipes and exit codes, and when they are not safe."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from garbage import left_to_this_process
from webdataset.runs.forks import ForkedProcess

PROGRAM = """
import os, signal
from webdataset.runs.forks import ForkedProcess

process = ForkedProcess(lambda: os.write(1, os.read(0, 100).upper()), 2)
process.stdin.write(b"hello")
process.stdin.close()
print(process.stdout.read(), process.wait(), process.poll())

killed = ForkedProcess(lambda: signal.pause() or 0, 2)
print(killed.poll())
os.kill(killed.pid, signal.SIGKILL)
print(killed.wait(60))
print(ForkedProcess(lambda: 1 // 0, 2).wait(60))
"""
THREADS = """
import threading
from webdataset.runs.forks import can_fork

end = threading.Event()
print(can_fork())
threading.Thread(target=end.wait).start()
print(can_fork())
end.set()
"""


def told_by(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)


def test_pipes_exit_codes_and_signals() -> None:
    told = told_by(PROGRAM)
    assert told.stdout == "b'HELLO' 5 5\nNone\n-9\n1\n"
    assert "ZeroDivisionError" in told.stderr


def test_with_other_threads_a_copy_is_not_safe() -> None:
    assert told_by(THREADS).stdout == "True\nFalse\n"


def test_a_copy_does_not_collect_the_garbage_of_the_program(tmp_path: Path) -> None:
    with left_to_this_process(tmp_path):
        process = ForkedProcess(lambda: 0 * gc.collect(), 2)
        assert process.wait(60) == 0
        process.stdin.close()
        process.stdout.close()
