"""Every member of an archive, without its data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from webdataset.errors import ShardError
from webdataset.reports import Report, current_report

from .archive import Archive, Member, ends_early
from .cursor import Cursor, Readable
from .header import decoded, padding
from .limits import Limits

WINDOW = 4096
JUMP = 64 << 10


class Entry(NamedTuple):
    """A member as its headers describe it."""

    name: str
    type: str
    """'0' regular, '1' hard link, '2' symbolic link, '3' and '4' devices, '5' directory, '6' FIFO, 'S' sparse."""
    size: int
    """How many bytes its content has; for a sparse file more than the archive holds."""
    offset: int
    data_offset: int
    mode: int
    mtime: float
    linkname: str
    pax: dict[str, str]

    @property
    def is_regular(self) -> bool:
        """Whether `read_members` gives this member out."""
        return self.type in "0S"


def scan_members(
    stream: Readable, *, url: str | None = None, limits: Limits | None = None, report: Report | None = None
) -> Iterator[Entry]:
    """Yield an entry for every member of whatever type; data are jumped over where the stream can seek.

    >>> import io, tarfile
    >>> file = io.BytesIO()
    >>> with tarfile.open(fileobj=file, mode="w") as tar:
    ...     tar.addfile(tarfile.TarInfo("a.txt"))
    >>> [(entry.name, entry.size, entry.data_offset) for entry in scan_members(io.BytesIO(file.getvalue()))]
    [('a.txt', 0, 512)]
    """
    limits = Limits.default() if limits is None else limits
    report = current_report() if report is None else report
    return _entries(Archive(Cursor(stream), limits, report, url), stream)


def _entries(archive: Archive, stream: Any) -> Iterator[Entry]:
    cursor = archive.cursor
    jump = _jumper(stream, cursor)
    try:
        while cursor.left or cursor.fill(WINDOW):
            member = archive.step()
            if member is None:
                continue
            yield _entry(member)
            size = member.stored + padding(member.stored)
            passed = jump(size)
            if passed < size:
                raise ends_early("the member", passed, size).at(offset=member.offset, member=member.name)
    except ShardError as error:
        raise error.at(url=archive.url) from None
    archive.finish()


def _entry(member: Member) -> Entry:
    pax = {decoded(keyword): decoded(value) for keyword, value in member.records}
    return Entry(
        name=member.name,
        type="S" if member.pieces is not None else member.type,
        size=member.size,
        offset=member.offset,
        data_offset=member.data_offset,
        mode=member.header.mode,
        mtime=_mtime(pax, member),
        linkname=member.linkname,
        pax=pax,
    )


def _mtime(pax: dict[str, str], member: Member) -> float:
    try:
        return float(pax["mtime"])
    except (KeyError, ValueError):
        return member.header.mtime


def _jumper(stream: Any, cursor: Cursor) -> Callable[[int], int]:
    """How to pass over data: by seeking where that is possible and the stream's length is known."""
    try:
        here = stream.tell()
        end = stream.seek(0, os.SEEK_END)
        stream.seek(here)
    except (AttributeError, OSError, ValueError):
        return cursor.skip
    length = end - here

    def jump(size: int) -> int:
        # A small jump is cheaper by reading, through the file's own buffer or ours.
        if size < JUMP:
            return cursor.skip(size)
        size = min(size, length - cursor.offset)
        target = cursor.offset + size
        stream.seek(here + target)
        cursor.moved(target)
        return size

    return jump
