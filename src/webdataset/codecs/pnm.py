"""PGM and PPM files whose white is not 255, and which Pillow therefore rescales."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"
_HEADER = re.compile(rb"P([2356])" + (_GAP + rb"([0-9]{1,9})") * 3 + rb"\s")
_COMMENT = re.compile(rb"#[^\r\n]*")


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
    found = _HEADER.match(data)
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

    count = int(np.prod(kind.shape, dtype=np.int64))
    if kind.plain:
        numbers = _COMMENT.sub(b"", data[kind.end :]).split()[:count]
        values = np.array([int(number) for number in numbers], np.int64)
    else:
        dtype = np.dtype(">u2" if kind.maximum > 255 else "u1")
        values = np.frombuffer(data[kind.end : kind.end + count * dtype.itemsize], dtype)
    if len(values) < count:
        raise OSError(f"image file is truncated: {len(values)} of {count} values")
    if values.min() < 0 or values.max() > kind.maximum:
        raise OSError(f"the image says that {kind.maximum} is white, but has a value of {values.max()}")
    return values.reshape(kind.shape).astype(np.uint16 if kind.maximum > 255 else np.uint8)


def encode_deep(pixels: Array) -> bytes:
    """A uint16 array of 1 or 3 channels as PGM or PPM with 16 bits.

    >>> import numpy as np
    >>> encode_deep(np.array([[1, 258]], np.uint16))
    b'P5\\n2 1\\n65535\\n\\x00\\x01\\x01\\x02'
    """
    height, width = pixels.shape[:2]
    kind = 6 if pixels.ndim == 3 else 5
    return b"P%d\n%d %d\n65535\n" % (kind, width, height) + pixels.astype(">u2").tobytes()
