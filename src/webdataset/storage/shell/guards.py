"""Commands that end with the process that started them, however that ends.

A process that is killed can end nothing any more. So each process that runs commands has a guard: a shell, which reads
from a pipe what is running, and holds no end of that pipe but the one it reads. When the process is gone the pipe ends,
and the guard ends what is left: by SIGTERM, and a second later by SIGKILL. A shell starts in a millisecond, Python in
twenty.

The kernel's own help (PR_SET_PDEATHSIG) does not fit: it strikes when the thread that started the command ends, and
shards are opened in threads of their own; and it knows nothing of what the command has started itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from webdataset.base.logs import Log
from webdataset.base.stops import Thread

log = Log("webdataset.storage.shell.guards")

POLITE_SECONDS = 0.03
LOOK_SECONDS = 1.0
SHELL = "/bin/sh"

# It looks a second time for commands that were just being started when the pipe came to its end.
_GUARD = """
trap '' HUP INT TERM
groups=' '
note() {
    while read -r sign group; do
        case "$sign$groups" in
            +*" $group "*) ;;
            +*) groups="$groups$group " ;;
            -*" $group "*) groups="${groups%% "$group" *} ${groups#* "$group" }" ;;
        esac
    done
}
end() { for group in $groups; do kill -s "$1" -- "-$group"; done; }
note
end TERM
sleep 1
note
end KILL
"""
_REGISTERED = '{ echo "+ $$" >/dev/fd/%d; } 2>/dev/null; exec /bin/sh -c "$0"'
_INCOMPATIBLE = {"executable", "close_fds", "preexec_fn"}
"""Options of Popen with which a command does not register itself."""


class Guard:
    """Ends the commands that outlive this process; a forked process has a guard of its own."""

    def __init__(self) -> None:
        self._failed = False
        self._reset()
        os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._forked)

    def start(self, command: str | Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start a command, as Popen does, in a session of its own: it and all that it starts are one group."""
        with self._lock:
            self._make_ready()
            command, options = self._registering(command, options)
        process = subprocess.Popen(command, start_new_session=True, **options)  # noqa: S603
        self._note("+", process.pid)
        return process

    def forget(self, group: int) -> None:
        """Note that a command has ended: its process number may be reused."""
        self._note("-", group)

    # -- the guard's process ---------------------------------------------------------------------

    def _reset(self) -> None:
        self._lock = threading.RLock()  # the collector may end a stream under any of our own steps
        self._groups: set[int] = set()
        self._pid = 0
        self._pipe: tuple[int, int] | None = None
        self._parent: Thread | None = None

    def _make_ready(self) -> None:
        """Start a guard if there is none, or if it was killed, and send it what is running."""
        if self._pid and not has_ended(self._pid):
            return
        self._drop()
        reading, writing = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603 - a script of our own
                [SHELL, "-c", _GUARD],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # out of the reach of Ctrl-C, and of signals for our group
            )
        except OSError as error:
            os.close(reading)
            os.close(writing)
            if not self._failed:
                self._failed = True
                log.warning("commands may outlive this process: cannot start %s: %s", SHELL, error.strerror)
            return
        process.returncode = 0  # ours to look after: Popen warns of processes that are still running
        os.set_blocking(writing, False)
        self._pid, self._pipe = process.pid, (reading, writing)
        for group in self._groups:
            self._write("+", group)
        self._watch_parent()

    def _drop(self) -> None:
        if self._pipe is not None:
            for end in self._pipe:
                os.close(end)
        if self._pid:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, os.WNOHANG)
        self._pid, self._pipe = 0, None

    def _note(self, sign: str, group: int) -> None:
        with self._lock:
            (self._groups.add if sign == "+" else self._groups.discard)(group)
            self._write(sign, group)

    def _write(self, sign: str, group: int) -> None:
        if self._pipe is not None and not has_ended(self._pid):
            with contextlib.suppress(OSError):
                os.write(self._pipe[1], f"{sign} {group}\n".encode())

    def _registering(self, command: object, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """A shell command that registers itself with the guard before it begins.

        Otherwise a process that is killed before it can register a command would leave it. On Linux a pipe can be
        opened for writing through its other end; so that end is passed on, and no command keeps the guard waiting.
        """
        plain = isinstance(command, str) and options.get("shell") and not options.keys() & _INCOMPATIBLE
        if self._pipe is None or not plain or sys.platform != "linux":
            return command, options
        reading = self._pipe[0]
        pass_fds = (*options.get("pass_fds", ()), reading)
        return [SHELL, "-c", _REGISTERED % reading, command], {**options, "shell": False, "pass_fds": pass_fds}

    # -- processes that are forked ---------------------------------------------------------------

    def _before_fork(self) -> None:
        self._lock.acquire()  # no pipe is made meanwhile

    def _after_fork(self) -> None:
        self._lock.release()

    def _forked(self) -> None:
        """A copy of our end of the pipe would keep the guard waiting for as long as this process lives."""
        self._pid = 0
        self._drop()
        self._reset()

    def _watch_parent(self) -> None:
        """Watch a worker's loader: a worker that waits for a silent command would not notice that it is gone."""
        processes = sys.modules.get("multiprocessing.process")
        if self._parent is None and processes is not None and processes.current_process().daemon:
            arguments = os.getppid(), processes.parent_process().pid
            self._parent = Thread(target=self._follow, args=arguments, name="webdataset-guard", daemon=True)
            self._parent.start()

    def _follow(self, parent: int, main: int) -> None:
        while os.getppid() == parent and process_exists(main):
            time.sleep(LOOK_SECONDS)
        while True:
            for group in tuple(self._groups):
                end_group(group)
            time.sleep(LOOK_SECONDS)


guard = Guard()


def end_group(pid: int) -> None:
    """Ask a group of processes to end, give it a moment, then end it; the leader is left to be waited for.

    The leader is not reaped before the last signal: until then its group number cannot be given to strangers.
    """
    _signal_group(pid, signal.SIGTERM)
    deadline = time.monotonic() + POLITE_SECONDS
    while not has_ended(pid) and time.monotonic() < deadline:
        time.sleep(0.001)
    _signal_group(pid, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it is left to be waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def process_exists(pid: int) -> bool:
    """Whether there is a process of this number.

    >>> process_exists(os.getpid())
    True
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
