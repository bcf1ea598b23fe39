"""One 512-byte header block of a tar archive: its checksum and its fields."""

from __future__ import annotations

import re
from typing import NamedTuple

BLOCK = 512
POSIX_MAGIC = b"ustar\0"
GNU_MAGIC = b"ustar  \0"
BLANKS = b" \t\n\v\f\r"
MAX_NUMBER = 2**63 - 1
CHECKSUM = slice(148, 156)
SIZE = slice(124, 136)
MODE = slice(100, 108)
MTIME = slice(136, 148)

_OCTAL = re.compile(rb"([0-7]+)(?:[\0 \t\n\v\f\r]|\Z)", re.DOTALL)


class Header(NamedTuple):
    """What a header block says, before any extended header changes it."""

    name: bytes
    type: str
    size: int
    linkname: bytes
    posix: bool
    gnu: bool
    block: bytes

    @property
    def mode(self) -> int:
        """The permission bits, 0 where the field is no number."""
        return _number_or_zero(self.block[MODE])

    @property
    def mtime(self) -> int:
        """The time of the last change, 0 where the field is no number."""
        return _number_or_zero(self.block[MTIME])


def parse_header(block: bytes) -> Header:
    """Take a header block apart as GNU tar does; ValueError says what is wrong with it."""
    check_checksum(block)
    try:
        size = number(block[SIZE])
    except ValueError as error:
        raise ValueError(f"the size field holds {error}") from None
    if size < 0:
        raise ValueError(f"the size is negative: {size}")
    posix = block.startswith(POSIX_MAGIC, 257)
    name = until_nul(block[:100])
    if posix and block[345]:
        name = until_nul(block[345:500]) + b"/" + name
    return Header(
        name=name,
        type=chr(block[156]),
        size=size,
        linkname=until_nul(block[157:257]),
        posix=posix,
        gnu=block.startswith(GNU_MAGIC, 257),
        block=block,
    )


def check_checksum(block: bytes) -> None:
    """Raise ValueError unless the sum of the bytes, unsigned or signed, is the one in the header."""
    try:
        claimed = octal(block[CHECKSUM])
    except ValueError:
        raise ValueError("the header's checksum is not a number") from None
    unsigned = sum(block) - sum(block[CHECKSUM]) + 8 * 32
    if claimed == unsigned:
        return
    # Some old tars summed up signed chars.
    high = sum(byte > 127 for byte in block) - sum(byte > 127 for byte in block[CHECKSUM])
    if claimed != unsigned - 256 * high:
        raise ValueError(f"the header's checksum is wrong: it says {claimed}, the bytes give {unsigned}")


def is_header(block: bytes) -> bool:
    """Whether these bytes can be read as a header.

    >>> is_header(bytes(512))
    False
    """
    try:
        parse_header(block)
    except ValueError:
        return False
    return True


def number(field: bytes) -> int:
    """The value of a numeric field: octal digits, or base-256 for what these cannot say.

    >>> number(b"00000000644 "), number(b" 17\\0junk!!!"), number(b"\\x80" + bytes(9) + b"\\x01\\x00")
    (420, 15, 256)
    """
    # GNU tar forgives one leading NUL (a field before it that ran over) and leading blanks.
    text = field.removeprefix(b"\0").lstrip(BLANKS)
    if text[:1] in (b"\x80", b"\xff") and len(text) >= 2:
        value = int.from_bytes(text, "big", signed=True) if text[0] == 0xFF else int.from_bytes(text[1:], "big")
        if not -MAX_NUMBER <= value <= MAX_NUMBER:
            raise ValueError("a number out of range")
        return value
    return octal(field)


def octal(field: bytes) -> int:
    """The value of a field of octal digits.

    >>> octal(b"0000644\\0")
    420
    """
    text = field.removeprefix(b"\0").lstrip(BLANKS)
    if not text:
        raise ValueError("blanks instead of a number")
    if text[0] == 0:
        return 0
    match = _OCTAL.match(text)
    if match is None:
        raise ValueError(f"{field!r} instead of a number")
    return int(match[1], 8)


def until_nul(field: bytes) -> bytes:
    """A text field's content, which ends at the first NUL or with the field.

    >>> until_nul(b"name\\0rest")
    b'name'
    """
    return field.partition(b"\0")[0]


def decoded(name: bytes) -> str:
    """A name as text; bytes that are not UTF-8 survive as surrogates, as in file names.

    >>> decoded(b"caf\\xe9")
    'caf\\udce9'
    """
    return name.decode("utf-8", "surrogateescape")


def padding(size: int) -> int:
    """How many bytes follow a member of this size up to the next block.

    >>> padding(0), padding(1), padding(512)
    (0, 511, 0)
    """
    return -size % BLOCK


def _number_or_zero(field: bytes) -> int:
    try:
        return number(field)
    except ValueError:
        return 0
