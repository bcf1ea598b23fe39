"""The records of PAX extended headers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import SimpleNamespace

from .header import MAX_NUMBER, until_nul

Records = list[tuple[bytes, bytes]]

# as in GNU tar, a number may have any number of leading zeros
_LENGTH = re.compile(rb"[ \t]*0*([0-9]{1,20})([ \t]*)")
_DIGITS = re.compile(rb"0*([0-9]{1,20})")
_SPARSE = b"GNU.sparse."
_PIECES = re.compile(rb" GNU\.sparse\.numblocks=0*([0-9]{1,20})\n")


class Extended(SimpleNamespace):
    """What extended headers say about one member; None and empty where they say nothing."""

    path: bytes | None = None
    linkpath: bytes | None = None
    size: int | None = None
    real_size: int | None = None
    sparse_major: int = 0
    sparse_minor: int = 0
    sparse_blocks: int | None = None
    sparse_map: list[int]
    """Offsets and lengths of the pieces of a sparse file, by turns."""

    @property
    def is_sparse(self) -> bool:
        """Whether the member's data are pieces of a larger file."""
        return bool(self.sparse_map) or self.sparse_major > 0


def parse_records(data: bytes) -> Records:
    """The keyword/value pairs of an extended header, in order; ValueError says what is malformed.

    >>> parse_records(b"12 path=abc\\n10 size=7\\n")
    [(b'path', b'abc'), (b'size', b'7')]
    """
    records: Records = []
    start = 0
    # As GNU tar does, take a NUL for the end: some writers count their padding.
    while start < len(data) and data[start]:
        match = _LENGTH.match(data, start)
        if match is None:
            raise ValueError(f"malformed extended header: no record length at its byte {start}")
        end = start + int(match[1])
        if end > len(data):
            raise ValueError(f"malformed extended header: the record at its byte {start} is longer than the header")
        if not match[2]:
            raise ValueError(f"malformed extended header: no blank after the record length at its byte {start}")
        equals = data.find(b"=", match.end(), end)
        if equals < 0 or b"\0" in data[match.end() : equals]:
            raise ValueError(f"malformed extended header: no equal sign in the record at its byte {start}")
        if data[end - 1] != 0x0A:
            raise ValueError(f"malformed extended header: no newline after the record at its byte {start}")
        records.append((data[match.end() : equals], data[equals + 1 : end - 1]))
        start = end
    return records


def interpret(records: Iterable[tuple[bytes, bytes]]) -> Extended:
    """What the records mean for a member; later ones win, ValueError says what is malformed.

    >>> interpret([(b"size", b"1"), (b"path", b"x"), (b"size", b"2")]).size
    2
    """
    extended = Extended(sparse_map=[])
    sparse_name: bytes | None = None
    for keyword, value in records:
        if keyword == b"path":
            extended.path = until_nul(value)
        elif keyword == b"linkpath":
            extended.linkpath = until_nul(value)
        elif keyword == b"size":
            extended.size = _count(keyword, value)
        elif keyword == _SPARSE + b"name":
            sparse_name = until_nul(value)
        elif keyword.startswith(_SPARSE):
            _sparse_record(extended, keyword, value)
    if sparse_name is not None:
        extended.path = sparse_name
    return extended


def changes_members(records: Records) -> bool:
    """Whether any record changes a member's name, size or content.

    >>> changes_members([(b"mtime", b"1.5"), (b"comment", b"hello")])
    False
    """
    return any(keyword in (b"path", b"linkpath", b"size") or keyword.startswith(_SPARSE) for keyword, _ in records)


def announced_pieces(data: bytes) -> int:
    """How many pieces of a sparse file an extended header announces, by its beginning.

    >>> announced_pieces(b"21 GNU.sparse.size=9\\n26 GNU.sparse.numblocks=3\\n")
    3
    """
    found = _PIECES.search(data)
    return int(found[1]) if found else 0


def _sparse_record(extended: Extended, keyword: bytes, value: bytes) -> None:
    match keyword.removeprefix(_SPARSE):
        case b"size" | b"realsize":
            extended.real_size = _count(keyword, value)
        case b"major":
            extended.sparse_major = _count(keyword, value)
        case b"minor":
            extended.sparse_minor = _count(keyword, value)
        case b"numblocks":
            extended.sparse_blocks = _count(keyword, value)
            extended.sparse_map = []
        case b"offset" | b"numbytes" as half:
            if len(extended.sparse_map) % 2 != (half == b"numbytes"):
                raise ValueError("malformed extended header: sparse offsets and lengths do not alternate")
            extended.sparse_map.append(_count(keyword, value))
        case b"map":
            extended.sparse_map = [_count(keyword, part) for part in value.split(b",")]


def _count(keyword: bytes, value: bytes) -> int:
    digits = _DIGITS.fullmatch(value)
    if digits is None or int(digits[1]) > MAX_NUMBER:
        raise ValueError(f"malformed extended header: {keyword.decode('ascii', 'replace')}={value[:40]!r}")
    return int(digits[1])
