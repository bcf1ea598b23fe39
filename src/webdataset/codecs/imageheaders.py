"""What the header of an image says: format, size and mode, without decoding it and without a package.

>>> import struct
>>> image_header(b"\\x89PNG\\r\\n\\x1a\\n" + struct.pack(">I4sIIBB", 13, b"IHDR", 640, 480, 8, 2))
ImageHeader(format='PNG', width=640, height=480, mode='RGB')
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from webdataset.errors import DecodingError

MOST_SCANS = 100
"""Of a JPEG: programs write about 10. Each takes a pass over all of the picture, and may be a few bytes."""
MOST_MARKERS = 1000
"""That are looked at before the scans are counted."""
BASELINE, EXTENDED, SCAN, END = 0xC0, 0xC1, 0xDA, 0xD9
EXIF, MPO = b"Exif\0\0", b"MPF\0"
"""How segments with tags begin."""
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")


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


def check_scans(data: bytes, *, in_pieces: bool = False) -> None:
    """Refuse a JPEG of so many scans that it would take minutes to decode.

    Most files have one scan, which their beginning says; the others are counted, first all that looks like a scan.
    Where a file has the pieces of a JPEG in any order, that is all that can be counted.
    """
    if in_pieces or not _is_one_scan(data):
        if _scans_at_most(data) <= MOST_SCANS or not (in_pieces or _has_many_scans(data)):
            return
        raise DecodingError(f"the JPEG has more than {MOST_SCANS} scans", hint="save it again, not progressive")


def tagged_parts(data: bytes) -> list[bytes]:
    """The parts of a JPEG that have tags like a TIFF: its Exif data, of all segments together, and that of MPO."""
    if data[:2] != b"\xff\xd8":
        return []
    exif, others = [], []
    for kind, at in _markers(data):
        if kind in (SCAN, END):
            break
        start, stop = at + 4, at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data.startswith(EXIF, start):
            exif.append(data[start + len(EXIF) : stop])
        elif data.startswith(MPO, start):
            others.append(data[start + len(MPO) : stop])
    whole = b"".join(exif)
    while whole.startswith(EXIF):  # Pillow leaves out all of them
        whole = whole[len(EXIF) :]
    return [whole, *others]


def _is_one_scan(data: bytes) -> bool:
    """Whether the first scan has all components of a sequential file: decoders read no other then."""
    at, components = 2, -1
    try:
        for _ in range(MOST_MARKERS):
            if data[at] != 0xFF:
                return False
            kind = data[at + 1]
            if kind == SCAN:
                return data[at + 4] == components
            if _is_frame(kind):
                if kind not in (BASELINE, EXTENDED) or components >= 0:
                    return False
                components = data[at + 9]
            at += 2 + (data[at + 2] << 8 | data[at + 3])
    except IndexError:
        pass
    return False


def _scans_at_most(data: bytes) -> int:
    """How often the marker of a scan is there, inside of segments, too; ten times as fast as `data.count`."""
    import numpy as np

    values = np.frombuffer(data, np.uint8)
    return int(np.count_nonzero((values[1:] == SCAN) & (values[:-1] == 0xFF)))


def _has_many_scans(data: bytes) -> bool:
    scans = 0
    for kind, _ in _markers(data):
        scans += kind == SCAN
        if scans > MOST_SCANS or kind == END:
            break
    return scans > MOST_SCANS


def _markers(data: bytes) -> Iterator[tuple[int, int]]:
    """The markers of a JPEG, each with its place; those inside segments are not among them."""
    at = 2
    while found := _MARKER.search(data, at):
        at = found.start()
        kind = data[at + 1]
        yield kind, at
        at += 2 if kind in (0x01, 0xD8, END) else 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def _is_frame(kind: int) -> bool:
    return 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC)


def _jpeg(data: bytes) -> ImageHeader | None:
    for kind, at in _markers(data):
        if _is_frame(kind):
            height, width, components = struct.unpack(">HHB", data[at + 5 : at + 10])
            return ImageHeader("JPEG", width, height, {1: "L", 3: "RGB", 4: "CMYK"}.get(components, ""))
        if kind in (SCAN, END):
            return None
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
