"""What the header of an image says: format, size and mode, without decoding it and without a package.

>>> import struct
>>> image_header(b"\\x89PNG\\r\\n\\x1a\\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 640, 480, 8, 2))
ImageHeader(format='PNG', width=640, height=480, mode='RGB')
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class ImageHeader(NamedTuple):
    """What an image's header says."""

    format: str
    width: int
    height: int
    mode: str
    """L, RGB, RGBA and so on as Pillow calls them; empty if the header does not say."""

    def __str__(self) -> str:
        return f"{self.format} {self.width}x{self.height}{f' {self.mode}' if self.mode else ''}"


def image_header(data: bytes) -> ImageHeader | None:
    """The header of a JPEG, PNG, GIF, WebP, BMP or PNM; None for anything else, and for what is cut short."""
    for start, read in _READERS.items():
        if data[: len(start)] == start:
            try:
                return read(data)
            except (struct.error, IndexError, ValueError):
                return None
    return None


def _jpeg(data: bytes) -> ImageHeader | None:
    at = 2
    while at + 9 < len(data):
        if data[at] != 0xFF:
            return None
        kind = data[at + 1]
        if kind == 0xFF:  # padding
            at += 1
            continue
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width, components = struct.unpack(">HHB", data[at + 5 : at + 10])
            return ImageHeader("JPEG", width, height, {1: "L", 3: "RGB", 4: "CMYK"}.get(components, ""))
        at += 2 if kind == 0x01 or 0xD0 <= kind <= 0xD8 else 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return None


def _png(data: bytes) -> ImageHeader:
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    mode = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}.get(colour, "")
    special = {(1, "L"): "1", (16, "L"): "I;16", (16, "RGB"): "RGB;16", (16, "RGBA"): "RGBA;16"}
    return ImageHeader("PNG", width, height, special.get((depth, mode), mode))


def _gif(data: bytes) -> ImageHeader:
    width, height = struct.unpack("<HH", data[6:10])
    return ImageHeader("GIF", width, height, "P")


def _bmp(data: bytes) -> ImageHeader:
    width, height = struct.unpack("<ii", data[18:26])
    bits = struct.unpack("<H", data[28:30])[0]
    return ImageHeader("BMP", width, abs(height), "RGB" if bits == 24 else "")  # with fewer, it depends on the palette


def _webp(data: bytes) -> ImageHeader | None:
    if data[8:12] != b"WEBP":
        return None
    kind = data[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return ImageHeader("WEBP", width & 0x3FFF, height & 0x3FFF, "RGB")
    if kind == b"VP8L":
        bits = struct.unpack("<I", data[21:25])[0]
        return ImageHeader("WEBP", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, "RGBA" if bits >> 28 & 1 else "RGB")
    width, height = int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    return ImageHeader("WEBP", width, height, "RGBA" if data[20] & 0x10 else "RGB")


def _pnm(data: bytes) -> ImageHeader:
    lines = (line.partition(b"#")[0] for line in data[:4096].split(b"\n"))
    words = b" ".join(lines).split(maxsplit=3)
    return ImageHeader("PPM", int(words[1]), int(words[2]), {b"P4": "1", b"P5": "L", b"P6": "RGB"}[words[0]])


_READERS = {
    b"\xff\xd8": _jpeg,
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF8": _gif,
    b"BM": _bmp,
    b"RIFF": _webp,
    **dict.fromkeys((b"P4", b"P5", b"P6"), _pnm),
}
