"""Keep samples in temporary files."""

from __future__ import annotations

import errno
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from webdataset.errors import StorageError

FRAME_BYTES = 1 << 18
ENTRY_BYTES = 120
"""The overhead of a dict entry with a str and a bytes object."""

Entry = tuple[Any, dict[str, Any]]


def size_of(sample: dict[str, Any]) -> int:
    """Estimate the memory that a sample takes."""
    size = 0
    for value in sample.values():
        size += len(value)
    return size + ENTRY_BYTES * (len(sample) + 2)


@contextmanager
def temporary_folder(folder: str | None) -> Iterator[str]:
    """Make a folder that is deleted afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix="wl-", dir=folder) as path:
            yield path
    except OSError as error:
        if error.errno == errno.ENOSPC and not isinstance(error, StorageError):
            place = folder or tempfile.gettempdir()
            hint = "--tmpdir names a folder with more space"
            raise StorageError(
                "the disk is full: temporary files take as much space as the data", url=place, hint=hint
            ) from error
        raise


def write_entries(path: str, entries: Iterable[Entry], mode: str = "wb") -> None:
    """Write entries, or append them with mode "ab", a frame at a time."""
    write_frames(path, _framed(entries), mode)


def _framed(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    frame: list[Entry] = []
    size = 0
    for entry in entries:
        frame.append(entry)
        size += size_of(entry[1])
        if size > FRAME_BYTES:
            yield frame
            frame, size = [], 0
    if frame:
        yield frame


def write_frames(path: str, frames: Iterable[list[Any]], mode: str = "wb") -> None:
    """Write lists, to be read again one at a time."""
    with open(path, mode) as file:
        for frame in frames:
            pickle.dump(frame, file, 5)


def read_entries(path: str) -> Iterator[Entry]:
    """Read the entries of a file, in order; one frame is in memory."""
    for frame in read_frames(path):
        yield from frame


def read_frames(path: str) -> Iterator[list[Any]]:
    """Read the lists of a file, in order."""
    with open(path, "rb") as file:
        while True:
            try:
                # we wrote this file ourselves, in a folder that nobody else can write to
                frame = pickle.load(file)  # noqa: S301
            except EOFError:
                return
            yield frame
