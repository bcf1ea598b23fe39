"""PNG files beyond what Pillow holds: 16 bits per channel in colour, gray of 2 or 4 bits."""

from __future__ import annotations

import io
import struct
import zlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from .compression import check_pixels

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6  # the colour types
LAYOUTS = {GRAY: "L", RGB: "RGB", PALETTE: "P", GRAY_ALPHA: "LA", RGBA: "RGBA"}
COLOURS = {1: GRAY, 2: GRAY_ALPHA, 3: RGB, 4: RGBA}  # by the number of channels

# (depth, colour) -> another kind whose pixels have as many bits, and so are filtered and packed alike: Pillow
# unpacks the file as that kind, which keeps every bit
TWINS = {(16, GRAY_ALPHA): (8, RGBA), (2, GRAY): (2, PALETTE), (4, GRAY): (4, PALETTE)}


class PngHeader(NamedTuple):
    """What a PNG says of its pixels."""

    depth: int
    colour: int
    size: tuple[int, int]
    """Width and height."""

    @property
    def channels(self) -> int:
        """How many numbers a pixel has."""
        return len(LAYOUTS.get(self.colour, "P"))


def header(data: bytes) -> PngHeader | None:
    """What a file says of its pixels, if it is a PNG."""
    if data[:8] != SIGNATURE or data[12:16] != b"IHDR" or len(data) < 33:
        return None
    return PngHeader(data[24], data[25], struct.unpack_from(">II", data, 16))


def has_key(data: bytes, kind: PngHeader) -> bool:
    """Whether one value or colour of a file without alpha stands for "transparent"."""
    return kind.colour in (GRAY, RGB) and b"tRNS" in data[: data.find(b"IDAT")]


def has_high_bytes(data: bytes, kind: PngHeader) -> bool:
    """Whether Pillow reads the high bytes of the values, and nothing else is lost or changed."""
    return kind.depth == 16 and kind.colour in (RGB, RGBA) and not has_key(data, kind)


def stored_pixels(data: bytes, kind: PngHeader, pil: ModuleType) -> Array | None:
    """The stored values where Pillow itself would change them, else None."""
    check_pixels((*kind.size, kind.channels), 2 if kind.depth == 16 else 1)
    if kind.depth == 16 and kind.colour in (RGB, RGBA):
        return _two_bytes(data, pil)
    twin = TWINS.get((kind.depth, kind.colour))
    if twin is None:
        return None
    pixels = _values(_described_as(data, *twin), pil)
    return pixels.view(">u2").astype("u2") if kind.depth == 16 else pixels.copy()


def encode_deep(pixels: Array) -> bytes:
    """A uint16 array of 1 to 4 channels (gray, with alpha, RGB, RGBA) as a PNG of 16 bits per channel.

    >>> import numpy as np
    >>> header(encode_deep(np.zeros((2, 3, 3), np.uint16)))
    PngHeader(depth=16, colour=2, size=(3, 2))
    """
    import numpy as np

    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    rows = pixels.astype(">u2").reshape(height, -1).view(np.uint8)
    # each row minus the one above: smooth pictures and depth maps become half as large as with no filter
    filtered = np.empty((height, rows.shape[1] + 1), np.uint8)
    filtered[:, 0] = 2
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    start = struct.pack(">IIBBBBB", width, height, 16, COLOURS[channels], 0, 0, 0)
    chunks = [(b"IHDR", start), (b"IDAT", zlib.compress(filtered.tobytes())), (b"IEND", b"")]
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def _two_bytes(data: bytes, pil: ModuleType) -> Array:
    """The upper bytes as Pillow reads them, the lower ones by exchanging their places."""
    import numpy as np

    pixels: Array = _values(data, pil).astype(np.uint16)
    pixels <<= 8
    with pil.open(io.BytesIO(data)) as image:
        image.tile = [(*tile[:3], tile[3].replace(";16B", ";16L")) for tile in image.tile]
        pixels |= np.asarray(image)
    return pixels


def _values(data: bytes, pil: ModuleType) -> Array:
    """What Pillow reads, not to be written to: that saves a copy."""
    import numpy as np

    with pil.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def _described_as(data: bytes, depth: int, colour: int) -> bytes:
    """The file with another depth and colour type in its header."""
    content = data[16:24] + bytes([depth, colour]) + data[26:29]
    return SIGNATURE + _chunk(b"IHDR", content) + data[33:]


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
