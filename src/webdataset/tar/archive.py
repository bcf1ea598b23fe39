"""An archive as a sequence of members, each behind one or more header blocks; here every variant is known.

What decides in doubt is GNU tar. Where it lists and extracts differently, or complains and goes on, we raise:

- An archive ends with one zero block or more. A header behind them is not read, but warned of (strict mode: raise);
  with `concatenated` it begins another archive (GNU tar: --ignore-zeros).
- Bytes after two zero blocks that are no header are passed over. After a lone zero block GNU tar warns and stops;
  we warn (strict mode: raise), since a header that was zeroed out looks the same.
- Hard and symbolic links, devices, FIFOs and directories have no data, whatever their size field says.
- A regular name that ends in a slash is a directory, as tars older than POSIX wrote them. Whether the data that its
  size states are there, GNU tar's listing and its extraction do not agree; we look. A type that nobody knows is a
  regular file.
- An extended header replaces one before it; a global one holds until the next or until the archive ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeVar

from webdataset.base.reports import Report
from webdataset.errors import LimitError, NotATarError, ShardError

from .cursor import Cursor
from .header import BLOCK, Header, decoded, is_header, padding, parse_header, until_nul
from .limits import Limits
from .pax import Extended, Records, announced_pieces, changes_members, interpret, parse_records
from .sniff import looks_like
from .sparse import PIECE_BYTES, Piece, check_map, extended_map, leading_map, old_gnu_map

NO_DATA = "123456"
DIRECTORY = "5"
REGULAR = "0\0" + "7"
GNU_SPARSE = "S"
DUMP_DIRECTORY, VOLUME, CONTINUATION = "D", "V", "M"
LONG_NAME, LONG_LINK = "L", "K"
EXTENDED = "xX"
GLOBAL = "g"
DRAIN = 1 << 20
LOOK = 64 << 10
"""How far to look ahead: for what follows the data of a directory, and for the number of pieces of a sparse file."""

NO_END = "the archive has no end marker: it may have been cut between two members"
BEHIND_END = (
    "a member's header behind the archive's end marker: nothing from there on is read; if archives were put together"
    " with `cat`, concatenated=True reads them all (commands: --concatenated)"
)

T = TypeVar("T")


class Member(SimpleNamespace):
    """A member whose headers were read and whose data come next."""

    name: str
    type: str
    offset: int
    """Where its first header starts."""
    data_offset: int
    stored: int
    """How many bytes of data the archive holds, without padding."""
    size: int
    """How long the file is; more than stored for a sparse one."""
    header: Header
    linkname: str
    records: Records
    pieces: list[Piece] | None = None

    @property
    def is_regular(self) -> bool:
        """Whether this is a file with content, rather than a directory, a link, a device."""
        return self.type == "0"


class Archive:
    """Reads header after header off a cursor; the caller takes or skips the data in between."""

    def __init__(
        self, cursor: Cursor, limits: Limits, report: Report, url: str | None, *, concatenated: bool = False
    ) -> None:
        self.cursor = cursor
        self.limits = limits
        self.report = report
        self.url = url
        self.globals: Records = []
        self.plain = True
        """Whether no global header has a say in the members' names and sizes."""
        self.zeros = 0
        """How many zero blocks there were since the last header."""
        self.concatenated = concatenated
        """Whether archives that follow are read too."""
        self.archives = 1
        """How many there were."""
        self.left_out: int | None = None
        """Where the first header is that stands behind the end and is not read."""
        self.jump: Callable[[int], int] = cursor.skip
        """How to pass over bytes."""

    @property
    def at_plain_members(self) -> bool:
        """Whether headers may be read by rules for plain ones: nothing that came before has a say in them."""
        return self.plain and not self.zeros

    def step(self) -> Member | None:
        """Read the next member's headers; None if there was something else, such as an end marker."""
        start = self.cursor.offset
        block = self.cursor.take(BLOCK)
        if not block.strip(b"\0"):
            self._zero_block(block, start)
            return None
        try:
            header = self._header(block, start)
        except ShardError:
            if not self.zeros:
                raise
            self._pass_over_garbage(start, block)
            return None
        if self.zeros and not self._begin_another(start):
            return None
        if header.type == GLOBAL:
            self._global(header, start)
            return None
        return self._member(header, start)

    def finish(self) -> None:
        """Say what there is to say where the stream has ended."""
        offset = self.cursor.offset
        if not offset:
            raise ShardError("the shard is empty: it has 0 bytes", url=self.url)
        if not self.zeros:
            self.report.warn(NO_END, url=self.url, offset=offset)

    # -- headers ---------------------------------------------------------------------------------

    def _header(self, block: bytes, offset: int) -> Header:
        if len(block) == BLOCK:
            try:
                return parse_header(block)
            except ValueError as error:
                reason = str(error)
        else:
            reason = ends_early("a header", len(block), BLOCK).message
        if offset == 0 and (format := looks_like(block)):
            raise NotATarError(f"not a tar archive: it looks like {format}", format=format, offset=0)
        if offset == 0 and len(block) == BLOCK:
            reason = f"not a tar archive: {reason}"
        raise ShardError(reason, offset=offset)

    def _member(self, header: Header, start: int) -> Member:
        """Follow a chain of extended headers to the member they belong to."""
        records: Records = []
        long_name: bytes | None = None
        long_link: bytes | None = None
        offset, chain = start, 0
        while header.type in "LKxXg":
            chain += 1
            if chain > self.limits.max_chain:
                raise LimitError(
                    f"more than {self.limits.max_chain} extended headers before one member",
                    offset=start,
                    hint="the archive is probably damaged or hostile; to read it, raise max_chain=",
                )
            if header.type == GLOBAL:
                self._global(header, offset)
            elif header.type == LONG_NAME:
                long_name = self._long_name(header, offset)
            elif header.type == LONG_LINK:
                long_link = self._long_name(header, offset)
            else:
                records = self._records(header, offset)
            offset = self.cursor.offset
            block = self.cursor.take(BLOCK)
            if not block.strip(b"\0"):
                raise ShardError("the archive ends early: an extended header without its member", offset=start)
            header = self._header(block, offset)
        return self._assemble(header, start, long_name, long_link, records)

    def _long_name(self, header: Header, offset: int) -> bytes:
        data = self._header_data(header, offset, limit=self.limits.max_name_bytes)
        return until_nul(data)

    def _records(self, header: Header, offset: int) -> Records:
        data = self._header_data(header, offset, limit=self._most_bytes(header))
        try:
            return parse_records(data[: header.size])
        except ValueError as error:
            raise ShardError(str(error), offset=offset) from None

    def _most_bytes(self, header: Header) -> int:
        """How long an extended header may be: longer than others if it is the map of a sparse file."""
        most = self.limits.max_header_bytes
        if header.size <= most or header.type == GLOBAL:
            return most
        pieces = announced_pieces(self.cursor.peek(LOOK))
        return most + min(pieces, self.limits.max_sparse_pieces) * PIECE_BYTES

    def _global(self, header: Header, offset: int) -> None:
        # Of two records with one keyword in a global header GNU tar takes the first; in others, the last.
        self.globals = self._records(header, offset)[::-1]
        self.plain = not changes_members(self.globals)

    def _header_data(self, header: Header, offset: int, limit: int) -> bytes:
        if header.size > limit:
            name = "max_name_bytes" if header.type in "LK" else "max_header_bytes"
            raise LimitError(
                f"an extended header of {header.size} bytes, more than the {limit} allowed",
                offset=offset,
                hint=f"the archive is probably damaged or hostile; to read it, raise {name}=",
            )
        expected = header.size + padding(header.size)
        data = self.cursor.take(expected)
        if len(data) < expected:
            raise ends_early("an extended header", len(data), expected).at(offset=offset)
        return data

    # -- members ---------------------------------------------------------------------------------

    def _assemble(
        self, header: Header, start: int, long_name: bytes | None, long_link: bytes | None, records: Records
    ) -> Member:
        every = self.globals + records
        try:
            extended = interpret(every)
        except ValueError as error:
            raise ShardError(str(error), offset=start) from None
        name = _first(extended.path, long_name, header.name)
        self._check_name(name, start)
        member = Member(
            name=decoded(name),
            type=header.type,
            offset=start,
            data_offset=self.cursor.offset,
            stored=_first(extended.size, header.size),
            size=0,
            header=header,
            linkname=decoded(_first(extended.linkpath, long_link, header.linkname)),
            records=every,
        )
        try:
            _settle_type(member)
            if member.type == DIRECTORY and member.stored and not self._has_data(member):
                member.stored = 0
            member.size = member.stored
            if member.is_regular:
                self._settle_sparse(member, extended)
        except ShardError as error:
            raise error.at(offset=start, member=member.name) from None
        except ValueError as error:
            raise ShardError(str(error), offset=start, member=member.name) from None
        return member

    def _has_data(self, directory: Member) -> bool:
        """Whether the data that a directory's size states are there, rather than the next header or the end."""
        size = directory.stored + padding(directory.stored)
        ahead = self.cursor.peek(min(size, LOOK) + BLOCK)
        behind = ahead[size : size + BLOCK]
        return not is_header(ahead[:BLOCK]) and (bool(ahead[:BLOCK].strip(b"\0")) or is_header(behind))

    def _settle_sparse(self, member: Member, extended: Extended) -> None:
        """Read the map of a sparse member, which may stand before its data, and check it."""
        header = member.header
        if header.type == GNU_SPARSE and header.gnu:
            pieces, real_size = old_gnu_map(header, self._map_block, self.limits.max_sparse_pieces)
        elif not extended.is_sparse and extended.real_size is None:
            return
        elif not header.posix:
            raise ValueError("sparse records on a member that is not in the PAX format")
        else:
            pieces, real_size = self._pax_map(member, extended), _first(extended.real_size, -1)
        member.data_offset = self.cursor.offset
        check_map(pieces, real_size, member.stored)
        member.pieces, member.size = pieces, real_size

    def _pax_map(self, member: Member, extended: Extended) -> list[Piece]:
        if extended.sparse_major == 0:
            return extended_map(extended, self.limits.max_sparse_pieces)
        if (extended.sparse_major, extended.sparse_minor) != (1, 0):
            raise ValueError(f"sparse format {extended.sparse_major}.{extended.sparse_minor} is not known")
        pieces = leading_map(self._map_block, self.limits.max_sparse_pieces)
        map_bytes = self.cursor.offset - member.data_offset
        if map_bytes > member.stored:
            raise ValueError("the sparse map is longer than its member")
        member.stored -= map_bytes
        return pieces

    def _map_block(self) -> bytes:
        """The next block of a sparse map."""
        block = self.cursor.take(BLOCK)
        if len(block) < BLOCK:
            raise ends_early("a sparse map", len(block), BLOCK)
        return block

    def _check_name(self, name: bytes, start: int) -> None:
        if len(name) > self.limits.max_name_bytes:
            raise LimitError(
                f"a name of {len(name)} bytes, more than the {self.limits.max_name_bytes} allowed",
                offset=start,
                member=decoded(name),
                hint="to read it, raise max_name_bytes=",
            )

    # -- the end ---------------------------------------------------------------------------------

    def _begin_another(self, start: int) -> bool:
        """Whether to read on at a header behind zero blocks; else say so, once, and go to the stream's end."""
        if self.concatenated:
            self.archives += 1
            self.globals, self.plain, self.zeros = [], True, 0
            return True
        self.left_out = start
        self.report.warn(BEHIND_END, url=self.url, offset=start)
        self.jump(sys.maxsize)
        return False

    def _zero_block(self, block: bytes, start: int) -> None:
        if len(block) == BLOCK:
            self.zeros += 1
            self._skip_zero_blocks()
        elif start == 0:
            raise ends_early("a header", len(block), BLOCK).at(offset=0)

    def _skip_zero_blocks(self) -> None:
        """Pass over all zero blocks of the window at once: there can be gigabytes."""
        cursor = self.cursor
        ahead = cursor.buffer[cursor.place :]
        blocks = (len(ahead) - len(ahead.lstrip(b"\0"))) // BLOCK
        self.zeros += blocks
        cursor.place += blocks * BLOCK

    def _pass_over_garbage(self, start: int, block: bytes) -> None:
        """Read the stream to its end, and say so if more than harmless garbage may be lost."""
        if self.zeros == 1:
            self.report.warn(
                "a lone zero block, and after it no header: the rest of the archive is not read",
                url=self.url,
                offset=start,
            )
        cursor = self.cursor
        window, offset = block, start
        warned = self.zeros == 1
        while window:
            if not warned and (found := _header_in(window)) is not None:
                warned = True
                self.report.warn(
                    "a member's header in the bytes after the archive's end: members may be lost",
                    url=self.url,
                    offset=offset + found,
                )
            offset += len(window)
            window = cursor.take(min(cursor.left, DRAIN) if cursor.left else DRAIN)


def ends_early(what: str, got: int, expected: int) -> ShardError:
    """The error for a stream that stops where more was announced."""
    return ShardError(f"the archive ends early: {got} of {expected} bytes of {what} are there")


def _settle_type(member: Member) -> None:
    """Turn the type byte into what GNU tar makes of it: '0' for everything with content."""
    kind = member.type
    if kind in REGULAR:
        member.type = DIRECTORY if member.name.endswith("/") else "0"
    elif kind in NO_DATA:
        member.stored = 0
    elif kind == DUMP_DIRECTORY:
        member.type = DIRECTORY
    elif kind == CONTINUATION:
        raise ValueError("the member is continued from another volume")
    elif kind != VOLUME:
        member.type = "0"
        member.name = member.name.rstrip("/")


def _header_in(window: bytes) -> int | None:
    """Where in bytes that should mean nothing a header stands, if any does."""
    found = window.find(b"ustar")
    while found >= 0:
        start = found - 257
        if start >= 0 and start % BLOCK == 0 and is_header(window[start : start + BLOCK]):
            return start
        found = window.find(b"ustar", found + 1)
    return None


def _first(*values: T | None) -> T:
    """The first value that is not None."""
    return next(value for value in values if value is not None)
