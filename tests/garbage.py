"""Garbage of this process, and who collects it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Ring:
    """Garbage that only the collector finds; it tells who has collected it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.me = folder, self

    def __del__(self) -> None:
        (self.folder / str(os.getpid())).touch()


@contextmanager
def left_to_this_process(folder: Path) -> Iterator[None]:
    """There is garbage in this block, and no process that is forked in it may collect that."""
    told = folder / "collected"
    told.mkdir()
    gc.disable()
    try:
        Ring(told)
        yield
        assert os.listdir(told) == []
    finally:
        gc.enable()
    gc.collect()
    assert os.listdir(told) == [str(os.getpid())]
