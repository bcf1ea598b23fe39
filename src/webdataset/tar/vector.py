"""Many small plain members at once, with numpy."""

from __future__ import annotations

import re
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.packages import imported

from .cursor import Cursor
from .header import BLOCK
from .plain import EXTENDED, OLD_REGULAR, REGULAR, MemberTuple

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

ENOUGH = 32 << 10
"""A window smaller than this is not worth the constant cost."""

_USTAR = int.from_bytes(b"ustar", "little")
_MTIMES = re.compile(rb"(?:[0-9][0-9] mtime=[0-9]+(?:\.[0-9]+)?\n)*")


def numpy_or_none() -> ModuleType | None:
    """numpy, if it is installed."""
    try:
        return imported("numpy")
    except ImportError:
        return None


def read_at_once(np: ModuleType, cursor: Cursor, out: list[MemberTuple], limit: int) -> None:
    """Read the plain members at the cursor, as far as they are complete in the window.

    What is not read here, for whatever reason, is left at the cursor.
    """
    row = _row(np, cursor, limit)
    if row is not None:
        starts = row.places + BLOCK
        data = map(cursor.buffer.__getitem__, map(slice, starts.tolist(), (starts + row.sizes).tolist()))
        out.extend(zip(row.names, (row.firsts + cursor.base).tolist(), data, strict=True))


class _Row(NamedTuple):
    """Members that follow each other."""

    names: list[str]
    firsts: Array
    """Where in the window each one's first header is."""
    places: Array
    """Where in the window each one's own header is."""
    sizes: Array


def _row(np: ModuleType, cursor: Cursor, limit: int) -> _Row | None:
    """Take the complete members at the cursor.

    Headers are found by their magic, which data may hold too, say an archive inside the archive. So one is
    believed only if it stands where the one before it says, back to the first, and if its checksum holds.
    """
    blocks = cursor.left // BLOCK
    words = np.frombuffer(cursor.buffer, "<u8", blocks * 64, cursor.place).reshape(blocks, 64)
    # Bytes 256 to 263 of each block; the magic is at 257.
    at = np.flatnonzero((words[:, 32] >> 8) & 0xFFFFFFFFFF == _USTAR)
    if not len(at) or at[0]:
        return None
    octets = words.take(at, axis=0).view(np.uint8)
    good, sizes = plain_headers(np, octets)
    following = at + 1 + (sizes + 511 >> 9)
    good &= (following <= blocks) & (sizes <= limit)
    good[1:] &= following[:-1] == at[1:]
    count = len(good) if good.all() else int(good.argmin())
    places = at[:count] * BLOCK + cursor.place
    used, row = _members(np, cursor, octets[:count], places=places, sizes=sizes[:count])
    if used:
        cursor.place += int(following[used - 1]) * BLOCK
    return row


def plain_headers(np: ModuleType, octets: Array) -> tuple[Array, Array]:
    """Which of the headers are plain and have the right checksum; and the sizes they state."""
    size_digits = octets[:, 124:135] - 48
    sum_digits = octets[:, 148:154] - 48
    sizes = size_digits @ (8 ** np.arange(10, -1, -1))
    claimed = sum_digits @ (8 ** np.arange(5, -1, -1))
    # The sum with the checksum field taken for blanks. 16 bits are the fastest; what they cannot hold is left
    # to the slow path.
    total = octets.sum(axis=1, dtype=np.uint16) - octets[:, 148:156].sum(axis=1, dtype=np.uint16) + np.uint16(256)
    types, version = octets[:, 156], octets[:, 262]
    good = (total == claimed) & _all_octal(size_digits) & _all_octal(sum_digits)
    good &= (types == REGULAR) | (types == OLD_REGULAR) | (types == EXTENDED)
    good &= (octets[:, 135] == 0) | (octets[:, 135] == 32)
    good &= (octets[:, 154] == 0) | (octets[:, 154] == 32)
    # POSIX headers are plain without a prefix; in GNU's the prefix has no meaning.
    good &= (version == 32) | (version == 0) & (octets[:, 345] == 0)
    return good, sizes


def _all_octal(digits: Array) -> bool | numpy.bool | Array:
    octal = digits <= 7
    return True if octal.all() else octal.all(axis=1)


def _members(np: ModuleType, cursor: Cursor, octets: Array, *, places: Array, sizes: Array) -> tuple[int, _Row | None]:
    """The members of a proven run of headers, and how many of the headers they use."""
    extended = octets[:, 156] == EXTENDED
    firsts = places
    used = len(places)
    if extended.any():
        used = _usable(np, cursor, extended, places=places, sizes=sizes)
        member = ~extended[:used]
        firsts = np.where(np.roll(extended[:used], 1), np.roll(places[:used], 1), places[:used])[member]
        octets, places, sizes = octets[:used][member], places[:used][member], sizes[:used][member]
    names = plain_names(octets)
    return (0, None) if names is None else (used, _Row(names.split("\0")[:-1], firsts, places, sizes))


def plain_names(octets: Array) -> str | None:
    """The headers' names, each followed by a NUL; None if one is not a plain file's."""
    # numpy takes off trailing NULs; one that is left would end a name early.
    names = octets[:, :100].copy().view("S100").ravel().tolist()
    joined = b"\0".join([*names, b""])
    if b"/\0" in joined or b"\0\0" in joined or joined[:1] == b"\0" or joined.count(b"\0") != len(names):
        return None
    return joined.decode("utf-8", "surrogateescape")


def _usable(np: ModuleType, cursor: Cursor, extended: Array, *, places: Array, sizes: Array) -> int:
    """How many of the headers can be used: all, if each extended one has a member's mtime and no more."""
    used = len(extended)
    if extended[-1]:
        used -= 1
    at = np.flatnonzero(extended[:used])
    if (np.diff(at) == 1).any():
        return 0
    return used if has_only_mtimes(np, cursor.buffer, places[at] + BLOCK, sizes[at]) else 0


def has_only_mtimes(np: ModuleType, buffer: bytes, starts: Array, lengths: Array) -> bool:
    """Whether extended headers, whose data are at these places, have nothing but a modification time each."""
    if not ((lengths >= 10) & (lengths <= 99)).all():
        return False
    octets = np.frombuffer(buffer, np.uint8)
    claimed = (octets[starts] - 48) * 10 + octets[starts + 1] - 48
    if not (claimed == lengths).all() or not (octets[starts + lengths - 1] == ord("\n")).all():
        return False
    slices = map(slice, starts.tolist(), (starts + lengths).tolist())
    joined = b"".join(map(buffer.__getitem__, slices))
    return joined.count(b"\n") == len(starts) and _MTIMES.fullmatch(joined) is not None
