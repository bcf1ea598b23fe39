"""Claims: which process uses a shard of a folder.

A claimed shard is called `NAME._PID_`, as in webdataset 1.x. Process numbers are reused, and machines that share a
folder have the same ones, so an empty file beside it, which is hidden, tells the time of the process's start and its
machine. It is there before the shard has its new name: a claim without one is of another program. Whoever renames the
shard again removes the file after that.

>>> claim = Claim.of_this_process()
>>> Claim.of_note(claim.note("a.tar")) == ("a.tar" + claim.ending, claim), claim.is_of_this_machine, claim.is_held
(True, True, True)
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_ENDING = re.compile(r"\._(\d+)_$")
_NOTE = re.compile(r"\.(.+\._(\d+)_)\.claim-(\d+)-([0-9A-Za-z-]+)$")
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z]+")


class Claim(NamedTuple):
    """A process that has claimed something."""

    pid: int
    started: int = 0
    """When it was started, in clock ticks since boot; 0 where that is not known."""
    machine: str = ""
    """Where it runs; empty in claims of other programs."""

    @classmethod
    def of_this_process(cls) -> Claim:
        """The claim of this process."""
        return cls(os.getpid(), _started(os.getpid()) or 0, _machine())

    @classmethod
    def of_name(cls, name: str) -> Claim | None:
        """The claim that a shard's name ends with, None if it is not claimed.

        >>> Claim.of_name("a.tar._123_"), Claim.of_name("a.tar")
        (Claim(pid=123, started=0, machine=''), None)
        """
        found = _ENDING.search(name)
        return found and cls(int(found[1]))

    @classmethod
    def of_note(cls, name: str) -> tuple[str, Claim] | None:
        """The name of a claimed shard and its claim, of the name of the file beside it; None for other files.

        >>> Claim.of_note(".a.tar._123_.claim-4567-node1")
        ('a.tar._123_', Claim(pid=123, started=4567, machine='node1'))
        """
        found = _NOTE.fullmatch(name)
        return found and (found[1], cls(int(found[2]), int(found[3]), found[4]))

    @property
    def ending(self) -> str:
        """The ending for a shard's name.

        >>> Claim(123, 4567, "node1").ending
        '._123_'
        """
        return f"._{self.pid}_"

    def note(self, name: str) -> str:
        """The name of the file beside a shard that has this claim.

        >>> Claim(123, 4567, "node1").note("a.tar")
        '.a.tar._123_.claim-4567-node1'
        """
        return f".{name}{self.ending}.claim-{self.started}-{self.machine}"

    @property
    def is_of_this_machine(self) -> bool:
        """Whether the process is on this machine, so that it can be known if it still runs."""
        return self.machine in ("", _machine())

    @property
    def is_held(self) -> bool:
        """Whether the process still runs, and its number was not reused."""
        if not check_pid_is_running(self.pid):
            return False
        started = _started(self.pid)
        return started is not None and (self.started in (0, started) or not started)


def check_pid_is_running(pid: int) -> bool:
    """Whether a process of this number exists on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> int | None:
    """When a process was started, 0 if that cannot be known; None for one that has ended, but is not yet waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name, in parentheses, may hold anything
            state, *rest = file.read().rpartition(b")")[2].split()
        return None if state in (b"Z", b"X") else int(rest[18])
    except (OSError, ValueError, IndexError):  # another system, or one that hides the processes of other users
        return 0


def _machine() -> str:
    """This machine's name; containers that share one have numbers of their own for processes."""
    name = _NOT_IN_NAMES.sub("-", os.uname().nodename)[:40]
    try:
        return f"{name}-{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:
        return name or "here"
