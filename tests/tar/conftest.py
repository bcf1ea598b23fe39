"""Archives built by hand, block by block, and the tools that judge how they must be read."""

from __future__ import annotations

import io
import subprocess
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from webdataset.base.reports import Report
from webdataset.errors import ShardError, ShardWarning
from webdataset.tar import Limits, read_members, scan_members

POSIX = b"ustar\x0000"
GNU = b"ustar  \0"
V7 = bytes(8)


class Fault(NamedTuple):
    """How reading ended: two ends are equal if their kinds, places and texts are."""

    kind: type[ShardError]
    offset: int | None
    member: str | None
    hint: str
    text: str


class Kit:
    """Makes headers, archives and streams; reads them with our reader and with GNU tar."""

    POSIX, GNU, V7 = POSIX, GNU, V7
    END = bytes(1024)

    def header(
        self,
        name: bytes,
        size: int | bytes = 0,
        type: bytes = b"0",
        *,
        magic: bytes = POSIX,
        link: bytes = b"",
        prefix: bytes = b"",
        put: dict[int, bytes] | None = None,
        signed: bool = False,
        checksum: bytes | None = None,
    ) -> bytes:
        """One header block; `put` overwrites bytes at offsets before the checksum is made."""
        block = bytearray(512)
        fields = {0: name, 100: b"0000644\0", 108: b"0000000\0", 116: b"0000000\0", 136: b"00000000000\0"}
        fields |= {124: b"%011o\0" % size if isinstance(size, int) else size, 148: b" " * 8, 156: type}
        fields |= {157: link, 257: magic, 345: prefix} | (put or {})
        for offset, value in fields.items():
            block[offset : offset + len(value)] = value
        total = sum(byte - 256 * (signed and byte > 127) for byte in block)
        block[148:156] = b"%06o\0 " % total if checksum is None else checksum
        return bytes(block)

    def padded(self, data: bytes) -> bytes:
        return data + bytes(-len(data) % 512)

    def member(self, name: bytes, data: bytes = b"", **options: Any) -> bytes:
        """A header, its data, the padding."""
        return self.header(name, options.pop("size", len(data)), **options) + self.padded(data)

    def records(self, *pairs: tuple[bytes, bytes]) -> bytes:
        """The content of an extended header."""
        return b"".join(self._record(keyword, value) for keyword, value in pairs)

    def _record(self, keyword: bytes, value: bytes) -> bytes:
        length = len(keyword) + len(value) + 3
        length += len(str(length + len(str(length))))
        return b"%d %s=%s\n" % (length, keyword, value)

    def pax(self, *pairs: tuple[bytes, bytes], type: bytes = b"x") -> bytes:
        """An extended header, with its own header block."""
        return self.member(b"pax", self.records(*pairs), type=type)

    def long(self, name: bytes, type: bytes = b"L") -> bytes:
        """A GNU long name."""
        return self.member(b"././@LongLink", name + b"\0", type=type, magic=GNU)

    def stream(self, data: bytes, sizes: Iterable[int] = ()) -> Chunked:
        return Chunked(data, sizes)

    def read(self, archive: bytes | Any, **options: Any) -> list[tuple[str, bytes]]:
        """Names and data as our reader gives them; a warning is an error, as in all tests."""
        stream = io.BytesIO(archive) if isinstance(archive, bytes) else archive
        return [(name, data) for members in read_members(stream, **options) for name, _, data in members]

    def outcome(self, archive: bytes | Any, **options: Any) -> tuple[list[tuple[str, int, bytes]], Fault | None, int]:
        """What a reader of this archive sees: the members, the error, the number of warnings."""
        stream = io.BytesIO(archive) if isinstance(archive, bytes) else archive
        report, got, error = Report(strict=False), [], None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShardWarning)
            try:
                for members in read_members(stream, report=report, **options):
                    got.extend(members)
            except ShardError as exn:
                error = Fault(type(exn), exn.offset, exn.member, exn.hint, str(exn))
        return got, error, report.as_dict()["warnings"]

    def scan(self, archive: bytes | Any, **options: Any) -> list[Any]:
        return list(scan_members(io.BytesIO(archive) if isinstance(archive, bytes) else archive, **options))

    def limits(self, **changes: int) -> Limits:
        return Limits(**({"max_member_bytes": 1 << 30} | changes))

    def gnu_names(self, archive: bytes, *options: str) -> list[bytes]:
        """What GNU tar lists."""
        command = ["tar", "-t", "--quoting-style=literal", "--null", *options]
        listed = subprocess.run(command, input=archive, capture_output=True, check=True)
        return listed.stdout.split(b"\n")[:-1]

    def gnu_files(self, archive: bytes, folder: Path, *options: str) -> dict[bytes, bytes]:
        """The regular files that GNU tar extracts."""
        folder.mkdir()
        subprocess.run(["tar", "-x", "-C", str(folder), *options], input=archive, capture_output=True, check=True)
        files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        return {bytes(path.relative_to(folder)): path.read_bytes() for path in files}


class Chunked:
    """A stream whose reads give as many bytes as it is told, over and over."""

    def __init__(self, data: bytes, sizes: Iterable[int] = ()) -> None:
        self._file = io.BytesIO(data)
        self._sizes = list(sizes)
        self._turns = self._cycle()

    def _cycle(self) -> Iterator[int]:
        while True:
            yield from self._sizes

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, next(self._turns)) if self._sizes else size)


@pytest.fixture(scope="session")
def kit() -> Kit:
    """Makes archives and reads them."""
    return Kit()
