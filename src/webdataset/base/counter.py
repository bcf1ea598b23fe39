"""How often a dataset has been read, agreed on by all worker processes that read it.

Shard order is a function of (seed, epoch), so every worker has to know the epoch. Each worker counts its own
passes, in memory that all processes share: forked workers inherit it, spawned ones attach to it. So the count
also goes on when a loader starts new worker processes for every epoch.

>>> counter = PassCounter()
>>> counter.begin(), counter.begin()
(0, 1)
>>> counter.set(7)
>>> counter.begin()
7
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import weakref
from typing import Any

from .workers import pytorch_worker_info

SLOTS = 512
_SLOT = struct.Struct("=q")


class PassCounter:
    """One count per worker; `begin()` gives the number of the pass that starts now."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._memory = _shared_memory(path)

    def begin(self) -> int:
        """The epoch of a pass that starts now in this process."""
        at = _slot() * _SLOT.size
        (epoch,) = _SLOT.unpack_from(self._memory, at)
        _SLOT.pack_into(self._memory, at, epoch + 1)
        return int(epoch)

    def next(self, who: tuple[int, int, int, int] | None = None) -> int:
        """The epoch of the next pass of this process, or of another worker."""
        return int(_SLOT.unpack_from(self._memory, _slot(who) * _SLOT.size)[0])

    def latest(self) -> int:
        """The epoch of the next pass, whoever reads it: this process, or worker processes."""
        return max(int(_SLOT.unpack_from(self._memory, slot * _SLOT.size)[0]) for slot in range(SLOTS))

    def seek(self, epoch: int) -> None:
        """The next pass of this process is this epoch, whatever other workers do."""
        _SLOT.pack_into(self._memory, _slot() * _SLOT.size, epoch)

    def set(self, epoch: int) -> None:
        """The next pass of every worker is this epoch."""
        for slot in range(SLOTS):
            _SLOT.pack_into(self._memory, slot * _SLOT.size, epoch)

    def __reduce__(self) -> tuple[Any, ...]:
        """To a worker being started goes the shared memory, to any other copy the counts as they are."""
        if not _starting_a_process():
            return _restored, (bytes(self._memory),)
        if self._path is None:
            self._move_to_file()
        return PassCounter, (self._path,)

    def _move_to_file(self) -> None:
        import tempfile

        handle, path = tempfile.mkstemp(prefix="webdataset-passes-")
        os.write(handle, bytes(self._memory))
        os.close(handle)
        weakref.finalize(self, _remove, path, os.getpid())
        self._path, self._memory = path, _shared_memory(path)


def _starting_a_process() -> bool:
    """Is this thread pickling for a worker process that is being spawned?"""
    context = sys.modules.get("multiprocessing.context")
    return context is not None and context.get_spawning_popen() is not None


def _slot(who: tuple[int, int, int, int] | None = None) -> int:
    """Slot 0 is for a process that is no worker, then one for each worker of each rank on this machine."""
    rank, _, worker, workers = who or pytorch_worker_info()
    return 0 if workers <= 1 and worker == 0 and rank == 0 else 1 + (rank * workers + worker) % (SLOTS - 1)


def _shared_memory(path: str | None) -> mmap.mmap:
    if path is None:
        return mmap.mmap(-1, SLOTS * _SLOT.size)
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), SLOTS * _SLOT.size)


def _restored(counts: bytes) -> PassCounter:
    counter = PassCounter()
    counter._memory[:] = counts
    return counter


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        with contextlib.suppress(OSError):
            os.unlink(path)
