"""Every member of an archive, without its data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from webdataset.base.reports import Report, current_report
from webdataset.errors import ShardError

from .archive import Archive, Member, ends_early
from .cursor import Cursor, Readable
from .header import decoded, padding
from .limits import Limits
from .plain import MemberPlace, PlainMembers

WINDOW = 4096
LARGE_WINDOW = 128 << 10
MEMBERS_TOGETHER = 1000
JUMP = 64 << 10
BIG = 16 << 10
"""From this size on it is cheaper to jump over data than to read them."""


class MemberEntry(NamedTuple):
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
        """Whether `read_members` yields this member."""
        return self.type in "0S"


def scan_members(
    stream: Readable,
    *,
    url: str | None = None,
    limits: Limits | None = None,
    report: Report | None = None,
    concatenated: bool = False,
) -> Iterator[MemberEntry]:
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
    return _entries(Archive(Cursor(stream), limits, report, url, concatenated=concatenated), stream)


Found = list[tuple[str, int, MemberPlace]]


class PlaceScan:
    """The places of all regular members, found by the headers alone; several times as fast as `scan_members`.

    `windows()` yields them in lists of `(name, offset, place)`, as a reader yields `(name, offset, data)`.

    >>> import io, tarfile
    >>> file = io.BytesIO()
    >>> with tarfile.open(fileobj=file, mode="w") as tar:
    ...     tar.addfile(tarfile.TarInfo("a.txt"))
    >>> scan = PlaceScan(io.BytesIO(file.getvalue()))
    >>> [place for window in scan.windows() for _, _, place in window]
    [MemberPlace(name='a.txt', offset=0, data_offset=512, size=0, end=512, whole=True)]
    """

    def __init__(
        self,
        stream: Any,
        *,
        url: str | None = None,
        limits: Limits | None = None,
        report: Report | None = None,
        concatenated: bool = False,
    ) -> None:
        limits = Limits.default() if limits is None else limits
        report = current_report() if report is None else report
        self.self_contained = True
        """Whether each member can be read without what stands before it: no global header has a say in it."""
        self._cursor = Cursor(stream)
        self._archive = Archive(self._cursor, limits, report, url, concatenated=concatenated)
        self._archive.jump = self._jump = _jumper(stream, self._cursor, BIG)
        self._plain = PlainMembers(limits)
        self._window = WINDOW

    @property
    def archives(self) -> int:
        """How many archives were read, one after the other."""
        return self._archive.archives

    @property
    def left_out(self) -> int | None:
        """Where a member's header stands behind the end marker, if there is one and it was not read."""
        return self._archive.left_out

    def windows(self) -> Iterator[Found]:
        """The regular members, in the archive's order."""
        cursor, archive = self._cursor, self._archive
        found: Found = []
        try:
            while cursor.place < len(cursor.buffer) or cursor.fill(self._window):
                self._members(found)
                if len(found) >= MEMBERS_TOGETHER:
                    yield found
                    found = []
        except ShardError as error:
            raise error.at(url=archive.url) from None
        if found:
            yield found
        archive.finish()

    def _members(self, found: Found) -> None:
        """Take members off the window: plain ones up to its end, or one that is not."""
        cursor, archive = self._cursor, self._archive
        if archive.at_plain_members:
            places = self._plain.places(cursor)
            if places:
                found += places
                self._pass_over(places[-1][2])
                return
        member = archive.step()
        self.self_contained = self.self_contained and archive.plain
        if member is not None:
            end = member.data_offset + member.stored + padding(member.stored)
            place = MemberPlace(member.name, member.offset, member.data_offset, member.size, end, member.pieces is None)
            if member.is_regular:
                found.append((place.name, place.offset, place))
            self._pass_over(place)

    def _pass_over(self, place: MemberPlace) -> None:
        """Go to the end of a member, with a window for what may come there: more of the same kind."""
        cursor = self._cursor
        ahead = place.end - cursor.offset
        if not ahead:
            return
        self._window = WINDOW if ahead >= BIG else LARGE_WINDOW
        passed = self._jump(ahead)
        if passed < ahead:
            there = place.size - (ahead - passed) + padding(place.size)
            expected = place.end - place.data_offset
            raise ends_early("the member", there, expected).at(offset=place.offset, member=place.name)


def _entries(archive: Archive, stream: object) -> Iterator[MemberEntry]:
    cursor = archive.cursor
    archive.jump = jump = _jumper(stream, cursor, JUMP)
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


def _entry(member: Member) -> MemberEntry:
    pax = {decoded(keyword): decoded(value) for keyword, value in member.records}
    return MemberEntry(
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


def _jumper(stream: Any, cursor: Cursor, least: int) -> Callable[[int], int]:
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
        if size < least or size < cursor.left:
            return cursor.skip(size)
        size = min(size, length - cursor.offset)
        target = cursor.offset + size
        stream.seek(here + target)
        cursor.moved(target)
        return size

    return jump
