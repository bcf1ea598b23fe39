"""Samples kept in temporary files while memory is for others."""

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
"""What a dict entry, a str and a bytes object take beside their contents."""

Entry = tuple[Any, dict[str, Any]]


def size_of(sample: dict[str, Any]) -> int:
    """About how many bytes of memory a sample takes."""
    size = 0
    for value in sample.values():
        size += len(value)
    return size + ENTRY_BYTES * (len(sample) + 2)


@contextmanager
def temporary_folder(folder: str | None) -> Iterator[str]:
    """A folder for ourselves that is gone afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix="wl-", dir=folder) as path:
            yield path
    except OSError as error:
        if error.errno == errno.ENOSPC and not isinstance(error, StorageError):
            place = folder or tempfile.gettempdir()
            hint = "--tmpdir names a folder with more room"
            raise StorageError(
                "the disk is full: temporary files need the size of the data", url=place, hint=hint
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
    """Write lists, which are read again one at a time."""
    with open(path, mode) as file:
        for frame in frames:
            pickle.dump(frame, file, 5)


def read_entries(path: str) -> Iterator[Entry]:
    """The entries of a file, in order; one frame is in memory."""
    for frame in read_frames(path):
        yield from frame


def read_frames(path: str) -> Iterator[list[Any]]:
    """The lists of a file, in order."""
    with open(path, "rb") as file:
        while True:
            try:
                # we wrote this file a moment ago, into a folder that nobody else can write to
                frame = pickle.load(file)  # noqa: S301
            except EOFError:
                return
            yield frame
