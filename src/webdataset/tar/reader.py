"""Regular members out of a tar stream, whole and in order."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType

from webdataset.base.reports import Report, current_report
from webdataset.errors import WebDatasetError

from .archive import Archive, Member, ends_early
from .cursor import Cursor, Readable
from .header import BLOCK, padding
from .large import too_large
from .limits import Limits
from .plain import MemberTuple, PlainMembers
from .scan import MemberEntry, scan_members
from .sparse import expand
from .vector import ENOUGH, numpy_or_none, read_at_once

__all__ = [
    "Limits",
    "MemberEntry",
    "MemberTuple",
    "PlainMembers",
    "expect_big_blocks",
    "read_members",
    "read_piece",
    "scan_members",
]

WINDOW = 1 << 20
SMALL = 16 << 10
"""Up to this mean size of members, headers and all, it pays to read many at once."""
MAX_PAUSE = 1023
FREED = 8 << 20
BIG = 256 << 10
"""From this size on a member is read straight into its own bytes, if a window does not already hold it.

Two reads take longer than the second copy of smaller ones: about a tenth of the CPU time for photographs of 90 KB.
"""


def read_members(
    stream: Readable,
    *,
    url: str | None = None,
    limits: Limits | None = None,
    report: Report | None = None,
    concatenated: bool = False,
    on_end: Callable[[int], None] | None = None,
) -> Iterator[list[MemberTuple]]:
    """Yield the regular members `(name, header offset, data)` of an uncompressed tar stream, in lists.

    A stream that is not a whole, well formed archive ends in a ShardError, after all members before the
    fault; one without an end marker, or with a header behind it, in a warning of the report. `concatenated` reads
    archives that follow each other as one. `on_end` is called with the number of bytes read when the stream has
    ended and every member was yielded.

    >>> import io, tarfile
    >>> file = io.BytesIO()
    >>> with tarfile.open(fileobj=file, mode="w") as tar:
    ...     info = tarfile.TarInfo("a.txt")
    ...     info.size = 5
    ...     tar.addfile(info, io.BytesIO(b"hello"))
    >>> list(read_members(io.BytesIO(file.getvalue())))
    [[('a.txt', 0, b'hello')]]
    """
    limits = Limits.default() if limits is None else limits
    report = current_report() if report is None else report
    return _lists(_Reader(stream, url, limits, report, concatenated=concatenated), url, on_end)


def read_piece(
    stream: Readable,
    offset: int,
    size: int,
    *,
    small: bool,
    plain: PlainMembers,
    url: str | None = None,
    limits: Limits | None = None,
    report: Report | None = None,
) -> list[MemberTuple]:
    """The regular members of a piece of an archive: `size` bytes from `offset` on, without an end marker.

    `small` says whether to expect many small members, and `plain` remembers what the headers of other pieces had in
    them: both only change how fast members are found.
    """
    limits = Limits.default() if limits is None else limits
    report = current_report() if report is None else report
    # whoever found the piece knows what is in it, end markers too
    window = min(size, WINDOW)
    reader = _Reader(stream, url, limits, report, concatenated=True, plain=plain, window=window, small=small)
    reader.cursor.moved(offset)
    members: list[MemberTuple] = []
    try:
        while reader.window(members):
            pass
    except WebDatasetError as error:
        raise error.at(url=url) from None
    return members


def _lists(reader: _Reader, url: str | None, on_end: Callable[[int], None] | None) -> Iterator[list[MemberTuple]]:
    more = True
    while more:
        members: list[MemberTuple] = []
        failure: Exception | None = None
        try:
            more = reader.window(members)
        except Exception as error:
            failure = error.at(url=url) if isinstance(error, WebDatasetError) else error
        if members:
            yield members
        if failure is not None:
            raise failure
    if on_end is not None:
        on_end(reader.cursor.offset)
    reader.archive.finish()


class _Reader:
    """Reads window after window, choosing the next one's size by what the last one held."""

    def __init__(
        self,
        stream: Readable,
        url: str | None,
        limits: Limits,
        report: Report,
        *,
        concatenated: bool,
        plain: PlainMembers | None = None,
        window: int = WINDOW,
        small: bool | None = None,
    ) -> None:
        expect_big_blocks()
        self.cursor = Cursor(stream)
        self.archive = Archive(self.cursor, limits, report, url, concatenated=concatenated)
        self._limits = limits
        self._plain = PlainMembers(limits) if plain is None else plain
        self._window = window
        self._numpy: ModuleType | None = None
        self._many = "numpy" in sys.modules if small is None else small
        """Whether to expect many small members: importing numpy costs as much as reading 100 MB of big ones."""
        self._pause = self._pauses = 0
        """For how many windows not to try many members at once; and how many it was last time."""
        self._big_end = 0
        """Where the last big member's padding ended."""

    def window(self, out: list[MemberTuple]) -> bool:
        """Read one window and the member that it cuts, more if windows are small; False at the end."""
        cursor = self.cursor
        start = cursor.offset
        enough = start + WINDOW
        while cursor.fill(self._window):
            self._window = min(4 * self._window, WINDOW)
            while cursor.place < len(cursor.buffer):
                self._members(out)
            if self._window == WINDOW or cursor.offset > enough:
                read = cursor.offset - start
                self._many = len(out) * SMALL > read if read >= ENOUGH else self._many
                return True
        return False

    def _members(self, out: list[MemberTuple]) -> None:
        """Read members off the window, until it is used up or after one that is not plain."""
        cursor, archive = self.cursor, self.archive
        if archive.at_plain_members:
            if self._many and len(cursor.buffer) - cursor.place >= ENOUGH and self._try_at_once():
                self._read_at_once(out)
            cut = self._plain.members(cursor, out)
            if cut is not None:
                self._take(*cut, out)
                return
            if cursor.place == len(cursor.buffer):
                return
        member = archive.step()
        if member is not None:
            self._data(member, out)

    def _read_at_once(self, out: list[MemberTuple]) -> None:
        """Try many members at once; if that did not pay, pause for a while, and longer each time."""
        ahead, before = self.cursor.left, len(out)
        assert self._numpy is not None
        read_at_once(self._numpy, self.cursor, out, self._limits.max_member_bytes)
        if self.cursor.left > ahead // 2 or (len(out) - before) * SMALL < ahead:
            self._pauses = min(2 * self._pauses + 1, MAX_PAUSE)
            self._pause = self._pauses
        else:
            self._pauses = 0

    def _try_at_once(self) -> bool:
        """Whether to look for many small members; after a failure, not for a growing number of windows."""
        if self._pause:
            self._pause -= 1
            return False
        if self._numpy is None:
            self._numpy = numpy_or_none()
            if self._numpy is None:
                self._pause = sys.maxsize
        return self._numpy is not None

    def _data(self, member: Member, out: list[MemberTuple]) -> None:
        """Take a member's data, or pass over it if it is no regular one."""
        if not member.is_regular:
            self._pass_over(member)
            return
        most = max(member.stored, member.size)
        limit = self._limits.max_member_bytes
        if most > limit:
            if self._limits.large is None:
                raise too_large(member.name, most, limit, member.offset)
            out.append((member.name, member.offset, self._limits.large(member, self.cursor)))
            self._pass_over_padding(padding(member.stored))
            return
        self._take(member.name, member.offset, member.stored, out)
        if member.pieces is not None:
            name, offset, data = out.pop()
            out.append((name, offset, expand(member.pieces, member.size, data)))

    def _take(self, name: str, offset: int, size: int, out: list[MemberTuple]) -> None:
        """Take a regular member's data at the cursor."""
        cursor = self.cursor
        data_offset = cursor.offset
        data = cursor.take(size)
        if len(data) < size:
            raise ends_early("the member", len(data), size).at(offset=offset, member=name)
        out.append((name, offset, data))
        pad = -size % BLOCK
        if size >= BIG:
            if not cursor.buffer:
                # Shards repeat themselves: read next what stood between the last two big members, so that
                # the data of the following one begin with a read of their own and need no second copy.
                gap = data_offset - self._big_end
                self._window = gap if gap < BIG else BLOCK
            self._big_end = data_offset + size + pad
        self._pass_over_padding(pad)

    def _pass_over_padding(self, pad: int) -> None:
        cursor = self.cursor
        if not cursor.buffer:
            cursor.pad = pad
            return
        passed = min(pad, cursor.left)
        cursor.place += passed
        cursor.pad = pad - passed

    def _pass_over(self, member: Member) -> None:
        passed = self.cursor.skip(member.stored)
        if passed < member.stored:
            raise ends_early("the member", passed, member.stored).at(offset=member.offset, member=member.name)
        self._pass_over_padding(padding(member.stored))


@cache
def expect_big_blocks() -> None:
    """Let malloc keep the memory of windows and big members for the next ones; once in a process is enough.

    glibc returns freed blocks to the system beyond a threshold, and each member then faults its pages in again.
    The threshold follows the largest block freed, so one that is never touched raises it at no cost. For
    members of about 1 MB this was 135 instead of 340 us of CPU each.
    """
    bytes(FREED)
