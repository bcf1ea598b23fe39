"""PGM and PPM files whose white is not 255, and which Pillow therefore rescales."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .compression import check_pixels

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"
MOST_HEADER = 1 << 16
"""Bytes up to the pixels, most of which may be a comment."""
BLOCK = 1 << 20
"""Characters of which numbers are made at once: as Python's, they take 30 times as much."""
_HEADER = re.compile(rb"P([2356])" + (_GAP + rb"([0-9]{1,9})") * 3 + rb"\s")
_COMMENT = re.compile(rb"#[^\r\n]*")
_SPACE = re.compile(rb"\s")
_LINE_END = re.compile(rb"[\r\n]")


class PnmHeader(NamedTuple):
    """What a PGM or PPM says of its pixels."""

    shape: tuple[int, ...]
    maximum: int
    plain: bool  # numbers as text
    end: int


def header(data: bytes) -> PnmHeader | None:
    """What a file says of its pixels, if it is a PGM or PPM.

    >>> header(b"P5 3 2 65535 ...")
    PnmHeader(shape=(2, 3), maximum=65535, plain=False, end=13)
    """
    found = _HEADER.match(data[:MOST_HEADER])
    if found is None:
        return None
    kind, width, height, maximum = map(int, found.groups())
    if not (width and height and 0 < maximum < 65536):
        return None
    shape = (height, width, 3) if kind in (3, 6) else (height, width)
    return PnmHeader(shape, maximum, kind < 4, found.end())


def stored_pixels(data: bytes, kind: PnmHeader) -> Array:
    """The numbers in the file."""
    import numpy as np

    count = math.prod(kind.shape)
    dtype = np.dtype(np.uint16 if kind.maximum > 255 else np.uint8)
    width = 2 if kind.plain else dtype.itemsize  # at least, the last number may end the file
    if (there := (len(data) - kind.end + kind.plain) // width) < count:
        raise OSError(f"image file is truncated: {there} of {count} values")
    check_pixels(kind.shape, dtype.itemsize)
    if kind.plain:
        values = _plain_values(data, kind, np.empty(count, dtype))
    else:
        values = np.frombuffer(data, dtype.newbyteorder(">"), count, kind.end).astype(dtype)
    _check_range(values.min(), values.max(), kind.maximum)
    return values.reshape(kind.shape)


def _plain_values(data: bytes, kind: PnmHeader, values: Array) -> Array:
    """The array, filled with the numbers in a text."""
    import numpy as np

    filled = 0
    for block in _blocks(data, kind.end):
        numbers = np.array([int(number) for number in block.split(None, len(values))[: len(values) - filled]], np.int64)
        if numbers.size:
            _check_range(numbers.min(), numbers.max(), kind.maximum)
        values[filled : filled + len(numbers)] = numbers
        filled += len(numbers)
        if filled == len(values):
            return values
    raise OSError(f"image file is truncated: {filled} of {len(values)} values")


def _blocks(data: bytes, start: int) -> Iterator[bytes]:
    """A text in pieces of whole numbers, without its comments."""
    is_comment = False
    while start < len(data):
        end = _SPACE.search(data, start + BLOCK)
        stop = end.start() if end else len(data)
        block = b"#" * is_comment + data[start:stop]
        is_comment = _LINE_END.search(block, block.rfind(b"#") + 1) is None and b"#" in block
        yield _COMMENT.sub(b"", block)
        start = stop


def _check_range(least: int, most: int, maximum: int) -> None:
    if least < 0 or most > maximum:
        raise OSError(f"the image says that {maximum} is white, but has a value of {least if least < 0 else most}")


def encode_deep(pixels: Array) -> bytes:
    """A uint16 array of 1 or 3 channels as PGM or PPM with 16 bits.

    >>> import numpy as np
    >>> encode_deep(np.array([[1, 258]], np.uint16))
    b'P5\\n2 1\\n65535\\n\\x00\\x01\\x01\\x02'
    """
    height, width = pixels.shape[:2]
    kind = 6 if pixels.ndim == 3 else 5
    return b"P%d\n%d %d\n65535\n" % (kind, width, height) + pixels.astype(">u2").tobytes()
