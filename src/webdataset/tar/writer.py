"""Writes tar archives: plain ustar where that is enough, PAX where it is not.

The same members are written as the same bytes: time, user and machine play no part.

>>> blocks = []
>>> writer = ArchiveWriter(blocks.append)
>>> writer.add(b"a.txt", b"hello")  # where its data begins
512
>>> writer.finish()
>>> len(b"".join(blocks))  # header, one block of data, two blocks of end marker
2048
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any
from zlib import adler32

from webdataset.errors import EncodingError, StorageError

from .large import LargeMember

BLOCK = 512
END = b"\0" * (2 * BLOCK)
FLUSH_BYTES = 1 << 20
FLUSH_PARTS = 3000
MAX_PARTS = 1000  # below IOV_MAX, the most parts one writev takes
JOIN_BELOW = 16 << 10  # mean part size below which copying into one buffer beats handing over many

MAX_NAME = 100
MAX_PREFIX = 155
MAX_OWNER = 31
MAX_SIZE = 8**11 - 1
MAX_ID = 8**7 - 1
MAX_SIZES = 4096  # sizes whose part of the header is remembered
CHECKSUM_AS_SPACES = 8 * 32  # how the checksum counts itself

_BLOCK = struct.Struct("100s48s8s356s")  # name; mode, owner, size, time; checksum; the rest
_REST = struct.Struct("1s100s8s32s32s8s8s155s12s")
_USTAR = b"ustar\x0000"
_GNU = b"ustar  \0"
_PADDINGS = [b"\0" * (-n % BLOCK) for n in range(BLOCK)]

Members = list[tuple[bytes, bytes]]  # names and data; a LargeMember is written in pieces
WriteFunction = Callable[[bytes], object]
WriteParts = Callable[[Sequence[bytes]], object]


def member_bytes(
    name: str,
    size: int,
    *,
    mode: int = 0o444,
    mtime: float = 0,
    user: str = "bigdata",
    group: str = "bigdata",
    uid: int = 0,
    gid: int = 0,
) -> bytes:
    """The header block or blocks of a regular member.

    >>> header = member_bytes("a.txt", 5)
    >>> len(header), header[:5], header[257:262]
    (512, b'a.txt', b'ustar')
    """
    headers = _headers(mode=mode, mtime=int(mtime), user=user, group=group, uid=uid, gid=gid)
    return headers.header(name_bytes(name), size)


def padding(size: int) -> bytes:
    """The zero bytes that fill the last block of a member of this size.

    >>> len(padding(5)), padding(512)
    (507, b'')
    """
    return _PADDINGS[size % BLOCK]


def name_bytes(name: str) -> bytes:
    """A member's name as it stands in the archive; surrogates become the bytes they were read from.

    >>> name_bytes("é.txt"), name_bytes("\\udce9.txt")
    (b'\\xc3\\xa9.txt', b'\\xe9.txt')
    """
    try:
        raw = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise EncodingError(
            "a member's name must be valid text", member=name, hint="lone surrogates have no bytes"
        ) from None
    if not raw or b"\0" in raw or raw.endswith(b"/"):
        raise EncodingError("a member's name must not be empty, hold a zero byte or end in a slash", member=name)
    return raw


class MemberHeaders:
    """Makes the headers of members that differ only in name and size; most of a header is made once.

    >>> headers = MemberHeaders(mtime=3)
    >>> headers.header(b"a.txt", 5) == member_bytes("a.txt", 5, mtime=3)
    True
    """

    def __init__(
        self,
        *,
        mode: int = 0o444,
        mtime: float = 0,
        user: str = "bigdata",
        group: str = "bigdata",
        uid: int = 0,
        gid: int = 0,
    ) -> None:
        self._records: dict[str, bytes] = {}  # what the plain header cannot hold, the same for every member
        ids = self._number("uid", uid, MAX_ID), self._number("gid", gid, MAX_ID)
        owners = self._owner("uname", user), self._owner("gname", group)
        self._ids = b"%07o\0%07o\0%07o\0" % (mode & 0o7777, *ids)
        self._mtime = b"%011o\0" % self._number("mtime", int(mtime), MAX_SIZE)
        self._owners = owners
        self._rest = self._tail()
        self._simple = not self._records
        self._sizes: dict[int, tuple[bytes, int]] = {}
        self._checksums: dict[int, bytes] = {}

    def header(self, name: bytes, size: int) -> bytes:
        """The header block or blocks of a regular member."""
        if not self._simple or len(name) > MAX_NAME or size > MAX_SIZE or not name.isascii():
            return self._extended(name, size)
        middle, total = self._sizes.get(size) or self._for_size(size)
        # adler32's low half is the sum of the bytes + 1, exact below 65,521 and 20 times faster than sum()
        total += adler32(name) & 0xFFFF
        return _BLOCK.pack(name, middle, self._checksums.get(total) or self._checksum(total), self._rest)

    def append(self, members: Iterable[tuple[bytes, bytes]], parts: list[bytes]) -> tuple[int, int]:
        """Append headers, data and padding of members to `parts`; the result is the size of the data, and of all."""
        sizes, checksums, rest, total, length = self._sizes, self._checksums, self._rest, 0, 0
        for name, data in members:
            size = len(data)
            known = sizes.get(size)
            if known and len(name) <= MAX_NAME and name.isascii() and self._simple:  # header(), without a call
                checksum = known[1] + (adler32(name) & 0xFFFF)
                header = _BLOCK.pack(name, known[0], checksums.get(checksum) or self._checksum(checksum), rest)
                length += BLOCK
            else:
                header = self.header(name, size)
                length += len(header)
            pad = _PADDINGS[size & 511]
            parts += (header, data, pad)
            total += size
            length += len(pad)
        return total, length + total

    def _for_size(self, size: int) -> tuple[bytes, int]:
        """The middle of a plain header, and its checksum but for the name."""
        if len(self._sizes) >= MAX_SIZES:
            self._sizes.clear()
        middle = b"%b%011o\0%b" % (self._ids, size, self._mtime)
        entry = self._sizes[size] = middle, sum(middle) + sum(self._rest) + CHECKSUM_AS_SPACES - 1
        return entry

    def _checksum(self, total: int) -> bytes:
        digits = self._checksums[total] = b"%06o\0 " % total
        return digits

    def _extended(self, name: bytes, size: int) -> bytes:
        records = dict(self._records)
        before = b""
        prefix, short = _split(name)
        if not name.isascii() and _is_utf8(name):
            records["path"] = name  # plain headers are ASCII by the standard; readers guess otherwise
        elif not short and name.isascii():
            records["path"] = name
        elif not short:
            before = self._gnu_long_name(name)
        if size > MAX_SIZE:
            records["size"] = b"%d" % size
            size = 0
        if records:
            before += self._pax(name, records)
        return before + self._block(short or _cut(name), size, self._tail(prefix=prefix))

    def _pax(self, name: bytes, records: dict[str, bytes]) -> bytes:
        body = b"".join(_record(key.encode(), value) for key, value in sorted(records.items()))
        title = _cut(b"PaxHeaders/" + name.rpartition(b"/")[2])
        return self._block(title, len(body), self._tail(b"x")) + body + padding(len(body))

    def _gnu_long_name(self, name: bytes) -> bytes:
        """PAX names are UTF-8 by definition; bytes that are not, and too long, travel GNU's way."""
        body = name + b"\0"
        header = self._block(b"././@LongLink", len(body), self._tail(b"L", magic=_GNU))
        return header + body + padding(len(body))

    def _block(self, name: bytes, size: int, rest: bytes) -> bytes:
        middle = b"%b%011o\0%b" % (self._ids, size, self._mtime)
        return _BLOCK.pack(name, middle, self._checksum(sum(name + middle + rest) + CHECKSUM_AS_SPACES), rest)

    def _tail(self, kind: bytes = b"0", *, magic: bytes = _USTAR, prefix: bytes = b"") -> bytes:
        user, group = self._owners
        return _REST.pack(kind, b"", magic, user, group, b"0000000", b"0000000", prefix, b"")

    def _number(self, key: str, value: int, most: int) -> int:
        if 0 <= value <= most:
            return value
        self._records[key] = b"%d" % value
        return 0

    def _owner(self, key: str, value: str) -> bytes:
        raw = value.encode("utf-8", "surrogateescape")
        if b"\0" in raw:
            raise ValueError(f"{key} must not hold a zero byte, got {value!r}")
        if len(raw) <= MAX_OWNER and raw.isascii():
            return raw
        self._records[key] = raw
        return _cut(raw, MAX_OWNER)


def packed(members: Iterable[tuple[bytes, bytes]], headers: MemberHeaders) -> bytes:
    """Members as the bytes that they are in an archive.

    >>> len(packed([(b"a.txt", b"hello")], MemberHeaders()))
    1024
    """
    parts: list[bytes] = []
    headers.append(members, parts)
    return b"".join(parts)


class ArchiveWriter:
    """Puts members one after another, in writes of about a megabyte.

    `write` takes bytes; `writev`, where given, takes many parts at once and spares copying large ones.
    """

    def __init__(
        self, write: WriteFunction, *, writev: WriteParts | None = None, headers: MemberHeaders | None = None
    ) -> None:
        self.headers = headers or MemberHeaders()
        self.offset = 0
        self._write = write
        self._writev = writev
        self._parts: list[bytes] = []
        self._pending = 0
        self._failed = False

    def add(self, name: bytes, data: bytes) -> int:
        """Append one member; the result is the offset of its data."""
        self.add_all(((name, data),))
        return self.offset - len(data) - len(padding(len(data)))

    def add_all(self, members: Iterable[tuple[bytes, bytes]]) -> int:
        """Append members; the result is the size of their data."""
        total, length = self.headers.append(members, self._parts)
        self.offset += length
        self._pending += length
        if self._pending >= FLUSH_BYTES or len(self._parts) >= FLUSH_PARTS:
            self.flush()
        return total

    def add_packed(self, packed: bytes) -> None:
        """Append members that `packed` has made."""
        self._parts.append(packed)
        self.offset += len(packed)
        self._pending += len(packed)
        if self._pending >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write everything that waits here; after a failure nothing more is written, as there would be a hole."""
        if self._failed:
            raise StorageError("an earlier write failed, so this archive is incomplete", hint="begin a new one")
        parts, self._parts = self._parts, []
        pending, self._pending = self._pending, 0
        self._failed = True
        if self._writev is not None and pending >= JOIN_BELOW * len(parts):
            for begin in range(0, len(parts), MAX_PARTS):
                self._hand_over(self._writev, parts[begin : begin + MAX_PARTS])
        elif parts:
            self._hand_over(self._join, parts)
        self._failed = False

    def _join(self, parts: Sequence[bytes]) -> None:
        self._write(b"".join(parts))

    def _hand_over(self, write: WriteParts, parts: Sequence[Any]) -> None:
        """Write all at once; large members, which `write` refuses before it writes anything, in pieces."""
        try:
            write(parts)
        except TypeError:
            if not any(isinstance(part, LargeMember) for part in parts):
                raise
            for part in parts:
                for piece in part.pieces() if isinstance(part, LargeMember) else (part,):
                    self._write(piece)

    def finish(self) -> None:
        """Write the end marker."""
        self._parts.append(END)
        self.offset += len(END)
        self._pending += len(END)
        self.flush()


@lru_cache(maxsize=64)
def _headers(**options: Any) -> MemberHeaders:
    return MemberHeaders(**options)


def _split(name: bytes) -> tuple[bytes, bytes]:
    """(prefix, name) of a ustar header, or two empty strings where it does not fit."""
    if len(name) <= MAX_NAME:
        return b"", name
    slash = name.find(b"/", max(len(name) - MAX_NAME - 1, 1), MAX_PREFIX + 1)
    return (name[:slash], name[slash + 1 :]) if slash > 0 else (b"", b"")


def _cut(raw: bytes, most: int = MAX_NAME) -> bytes:
    """The beginning of a name, for readers that know no PAX; no character is cut in half."""
    return raw if len(raw) <= most else raw[:most].decode("utf-8", "ignore").encode()


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _record(key: bytes, value: bytes) -> bytes:
    """`LENGTH key=value\\n`, where the length counts its own digits.

    >>> _record(b"path", b"a")
    b'9 path=a\\n'
    """
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %b=%b\n" % (length, key, value)
