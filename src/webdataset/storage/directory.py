"""A folder as a queue of shards, shared by many processes.

A process claims a shard by renaming it to `<name>._<pid>_`; only one rename can succeed. What becomes of a shard
after its use is its fate: `unlink`, `keep` (renamed to `<name>._done_`) or `resample` (back into the queue).
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from webdataset.iterables import TorchIterable

from .braces import braceexpand
from .local import allowed_path

MODES = ("resample", "unlink", "keep")
_CLAIMED = re.compile(r"\._(\d+)_$")


class DirectoryShardList(TorchIterable):
    """Shards of a folder as they come in, each used by one process at a time.

    `poll` is the number of seconds between two looks at an empty folder, None to stop there; `timeout` is how long to
    wait in all. `fate(path)` is called after a shard was used, instead of what `mode` says.
    """

    def __init__(  # noqa: PLR0917 - the order is the API's
        self,
        path: str | os.PathLike[str],
        pattern: str = "*.{tar,tgz,tar.gz,tar.tgz}",
        poll: float | None = 1,
        timeout: float = 1e12,
        mode: str = "resample",
        select: str = "random",
        fate: Callable[[str], Any] | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"the mode must be one of {', '.join(MODES)}, got {mode!r}")
        if select not in ("random", "oldest"):
            raise ValueError(f"select must be random or oldest, got {select!r}")
        self.path = os.fspath(path)
        if not os.path.isdir(self.path):
            raise ValueError(f"{self.path!r} is not a folder of shards")
        self.pattern = pattern
        self.poll = poll
        self.timeout = timeout
        self.mode = mode
        self.select = select
        self.fate = fate

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rng = random.Random(os.urandom(16))
        patience = time.monotonic() + self.timeout
        while True:
            self.cleanup_files_without_processes()
            claimed = self._claim(rng)
            if claimed is not None:
                try:
                    yield {"url": claimed}
                finally:
                    self.recycle(claimed)
                patience = time.monotonic() + self.timeout
            elif self.poll is None or time.monotonic() + self.poll > patience:
                return
            else:
                time.sleep(self.poll)

    def recycle(self, activename: str) -> None:
        """Let a claimed shard meet its fate."""
        with contextlib.suppress(FileNotFoundError):
            if self.fate is not None:
                self.fate(activename)
            elif self.mode == "unlink":
                os.unlink(activename)
            elif self.mode == "keep":
                os.rename(activename, without_last_extension(activename) + "._done_")
            else:
                os.rename(activename, without_last_extension(activename))

    def cleanup_files_without_processes(self) -> None:
        """Put back what a process claimed that is no more."""
        folder = allowed_path(self.path)
        for name in os.listdir(folder):
            pid = get_pid_from_filename(name)
            if pid is not None and not check_pid_is_running(pid):
                claimed = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    os.rename(claimed, without_last_extension(claimed))

    def _claim(self, rng: random.Random) -> str | None:
        """The path of a shard that is this process's alone from now on."""
        patterns = list(braceexpand(self.pattern))
        folder = allowed_path(self.path)
        found = [
            os.path.join(self.path, name)
            for name in os.listdir(folder)
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        ]
        found.sort(key=_changed if self.select == "oldest" else lambda _: rng.random())
        for shard in found:
            claimed = f"{shard}._{os.getpid()}_"
            try:
                os.rename(shard, claimed)
            except FileNotFoundError:
                continue  # another process was faster
            return claimed
        return None


def without_last_extension(fname: str) -> str:
    """
    >>> without_last_extension("a.tar._123_")
    'a.tar'
    """
    return os.path.splitext(fname)[0]


def get_pid_from_filename(fname: str) -> int | None:
    """
    >>> get_pid_from_filename("a.tar._123_")
    123
    """
    found = _CLAIMED.search(fname)
    return int(found.group(1)) if found else None


def check_pid_is_running(pid: int) -> bool:
    """Whether a process of this number exists on this machine."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0
