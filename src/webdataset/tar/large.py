"""Members that are too large for memory: read in pieces, out of the archive or of a temporary file.

>>> import io
>>> content = LargeMember("a.bin", 6, lambda: io.BytesIO(b"abcdef"))
>>> len(content), list(content.pieces(4))
(6, [b'abcd', b'ef'])
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from typing import IO, Any, BinaryIO

from webdataset.base.settings import settings
from webdataset.errors import LimitError, ShardError, StorageError

from .archive import Member, ends_early
from .cursor import Cursor
from .limits import Limits
from .sparse import expand

PIECE = 1 << 20
WORTH_ASKING = 1 << 20
"""From this size on it pays to ask first whether a member is selected."""

Opened = Callable[[], BinaryIO]
Select = Callable[[str], Any]
"""Which members are read at all, by their names."""


class LargeMember:
    """A field's value for such a member: its name, its size, and its bytes in pieces."""

    __slots__ = ("_open", "name", "size")

    def __init__(self, name: str, size: int, opened: Opened | None = None) -> None:
        self.name = name
        self.size = size
        self._open = opened

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"LargeMember({self.name!r}, {self.size})"

    def pieces(self, size: int = PIECE) -> Iterator[bytes]:
        """All its bytes, at most `size` at a time; an error if they were passed over."""
        if self._open is None:
            raise too_large(self.name, self.size, settings.max_member_bytes)
        left = self.size
        with self._open() as file:
            while left and (data := file.read(min(size, left))):
                left -= len(data)
                yield data
        if left:
            raise ends_early("the member", self.size - left, self.size).at(member=self.name)

    def whole(self) -> bytes:
        """All its bytes at once, if that many are allowed."""
        if self.size > settings.max_member_bytes:
            raise too_large(self.name, self.size, settings.max_member_bytes)
        return b"".join(self.pieces())


class LargeMembers:
    """Keeps members that are too large for memory outside of it, and passes over those that are not wanted.

    `wanted(name)` says which they are; without it all are. A wanted member of a plain local file stays where it is;
    one of a stream or a compressed archive goes into a temporary file, for as long as somebody has it. `limit` is how
    large a member may be, if that is less than what is allowed anyway.
    """

    def __init__(self, wanted: Callable[[str], bool] | None = None, *, limit: int | None = None) -> None:
        self._wanted = wanted
        self._limit = limit

    def limits(self, stream: object, select: Select | None = None) -> Limits:
        """The limits for one archive; `stream` is where it lies, if that is a plain file.

        Members that `select` leaves out are passed over.
        """
        limits = Limits.default()
        most = limits.max_member_bytes if self._limit is None else min(self._limit, limits.max_member_bytes)
        return limits._replace(max_member_bytes=most, large=self._of_shard(_plain_file(stream), select))

    def _of_shard(
        self, file: io.BufferedReader | io.FileIO | None, select: Select | None
    ) -> Callable[[Member, Cursor], LargeMember]:
        def replacement(member: Member, cursor: Cursor) -> LargeMember:
            wanted = (select is None or select(member.name)) and (self._wanted is None or self._wanted(member.name))
            opened = None
            if wanted and file is not None and member.pieces is None:
                opened = _place(str(file.name), _here(file, cursor))
                _pass_over(file, member, cursor)
            elif wanted:
                opened = _spill(member, cursor)
            else:
                _pass_over(file, member, cursor)
            return LargeMember(member.name, member.size, opened)

        return replacement


def select_limits(select: Select, stream: object = None) -> Limits:
    """The default limits, for an archive of which `select` leaves out members: large ones of these are not read."""
    limits, file = Limits.default(), _plain_file(stream)
    most = limits.max_member_bytes

    def replacement(member: Member, cursor: Cursor) -> LargeMember | bytes:
        if not select(member.name):
            _pass_over(file, member, cursor)
            return LargeMember(member.name, member.size)
        if max(member.stored, member.size) > most:
            raise too_large(member.name, max(member.stored, member.size), most, member.offset)
        data = cursor.take(member.stored)
        _check_all(member, len(data))
        return data if member.pieces is None else expand(member.pieces, member.size, data)

    return limits._replace(max_member_bytes=min(most, WORTH_ASKING), large=replacement)


def too_large(name: str, size: int, limit: int, offset: int | None = None) -> LimitError:
    """The error for a member that does not fit into memory."""
    return LimitError(
        f"a member of {size} bytes, more than the {limit} allowed",
        offset=offset,
        member=name,
        hint=f"to read it, set WDS_MAX_MEMBER_BYTES={size} or max_member_bytes=",
    )


def _place(path: str, offset: int) -> Opened:
    def opened() -> BinaryIO:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - whoever reads it closes it
        file.seek(offset)
        return file

    return opened


def _plain_file(stream: object) -> io.BufferedReader | io.FileIO | None:
    """The stream, if it is a file that can be opened again."""
    if not isinstance(stream, (io.BufferedReader, io.FileIO)):
        return None
    path = getattr(stream, "name", None)
    return stream if isinstance(path, (str, bytes)) and os.path.isfile(path) else None


def _pass_over(file: io.BufferedReader | io.FileIO | None, member: Member, cursor: Cursor) -> None:
    """Go to the end of a member's data, in a file without reading them."""
    if file is None or member.stored <= cursor.left:
        _check_all(member, cursor.skip(member.stored))
        return
    _check_all(member, os.fstat(file.fileno()).st_size - _here(file, cursor))
    end = cursor.offset + member.stored
    file.seek(member.stored - cursor.left, os.SEEK_CUR)
    cursor.moved(end)


def _here(file: IO[bytes], cursor: Cursor) -> int:
    """Where in the file the cursor is; an archive need not begin where the file does."""
    return int(file.tell()) - cursor.left


def _check_all(member: Member, there: int) -> None:
    if there < member.stored:
        raise ends_early("the member", there, member.stored).at(offset=member.offset, member=member.name)


def _spill(member: Member, cursor: Cursor) -> Opened:
    """The member in a file that has no name and is removed with the last reference to it."""
    from tempfile import TemporaryFile

    pieces = member.pieces or [(0, member.stored)]
    try:
        with TemporaryFile(buffering=0) as file:
            for offset, length in pieces:
                file.seek(offset)
                left = length
                while left and (data := cursor.take(min(left, PIECE))):
                    _write(file, data)
                    left -= len(data)
                _check_all(member, member.stored - left)
            cursor.skip(member.stored - sum(length for _, length in pieces))
            file.truncate(member.size)
            return _TemporaryCopy(os.dup(file.fileno()))
    except OSError as error:
        if isinstance(error, (ShardError, StorageError)):
            raise
        hint = "TMPDIR names another folder for temporary files"
        raise StorageError(f"a large member cannot be kept: {error.strerror}", member=member.name, hint=hint) from error


def _write(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


class _TemporaryCopy:
    """A temporary file that can be read again and again."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self) -> BinaryIO:
        file = os.fdopen(os.dup(self._number), "rb", buffering=0)
        file.seek(0)
        return file

    def __del__(self) -> None:
        os.close(self._number)
