"""Copies of this process: their pipes and exit codes, and when they are not safe."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

from garbage import left_to_this_process
from webdataset.runs.forks import ForkedProcess, can_fork

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


def test_pipes_exit_codes_and_signals() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "b'HELLO' 5 5\nNone\n-9\n1\n"
    assert "ZeroDivisionError" in told.stderr


def test_with_other_threads_a_copy_is_not_safe() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        end.set()
        thread.join()
    assert hasattr(os, "fork")


def test_a_copy_does_not_collect_the_garbage_of_the_program(tmp_path: Path) -> None:
    with left_to_this_process(tmp_path):
        process = ForkedProcess(lambda: 0 * gc.collect(), 2)
        assert process.wait(60) == 0
        process.stdin.close()
        process.stdout.close()
