"""A process that begins as a copy of this one, with pipes as a subprocess has."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import IO

from webdataset.loading.forks import leaving_garbage

STEP = 0.01
TERMINATED = 128 + signal.SIGTERM
"""The exit code of a process that was asked to end."""


def can_fork() -> bool:
    """Whether a copy of this process is safe: no other thread holds a lock that would never be released in it."""
    return hasattr(os, "fork") and threading.active_count() == 1


class ForkedProcess:
    """Calls a function in a copy of this process; has the attributes of a Popen that are used here."""

    def __init__(self, call: Callable[[], int], stderr: int, close: Iterable[int] = ()) -> None:
        reading, self_writing = os.pipe()
        self_reading, writing = os.pipe()
        self.returncode: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        with leaving_garbage():
            self.pid = os.fork()
        if self.pid == 0:
            _become(call, (reading, writing, stderr), [self_reading, self_writing, *close])
        os.close(reading)
        os.close(writing)
        self.stdin: IO[bytes] = os.fdopen(self_writing, "wb")
        self.stdout: IO[bytes] = os.fdopen(self_reading, "rb", buffering=0)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""
        if timeout is None:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return self.returncode
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a copy of this process", timeout)
            time.sleep(STEP)
        assert self.returncode is not None
        return self.returncode


def _exit(*_: object) -> None:
    raise SystemExit(TERMINATED)


def _become(call: Callable[[], int], streams: tuple[int, int, int], close: Iterable[int]) -> None:
    """Be the copy, and never return."""
    code = 1
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        for stream in {*streams, *close} - {0, 1, 2}:
            os.close(stream)
        for number in (signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, _exit)  # what is not finished is removed on the way
        code = call()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
