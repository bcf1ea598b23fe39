"""TIFF files beyond what Pillow holds: 16-bit colour, other number types, any number of channels.

Their strips and tiles are compressed by many methods, which Pillow (libtiff) undoes: it is given each plane of the
file under a description that says "bytes of gray", and the bytes are put together to numbers here.
"""

from __future__ import annotations

import io
import struct
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER = 256, 257, 258, 259, 262, 266
ORIENTATION = 274
STRIP_OFFSETS, CHANNELS, ROWS_PER_STRIP, STRIP_SIZES, PLANAR, PREDICTOR = 273, 277, 278, 279, 284, 317
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_SIZES, EXTRA, FORMAT = 322, 323, 324, 325, 338, 339

KEPT = {HEIGHT, COMPRESSION, ROWS_PER_STRIP, TILE_HEIGHT}
# of numbers as they are: none, LZW, deflate, its older number, PackBits, LZMA, Zstandard
COMPRESSIONS = {1, 5, 8, 32946, 32773, 34925, 50000}
PREDICTED = COMPRESSIONS - {1, 32773}
SIZES = {1: "B", 3: "H", 4: "I", 16: "Q"}  # field types of whole numbers
KINDS = {1: "u", 2: "i", 3: "f"}  # sample formats
COLOURS = {0: "L", 1: "L", 2: "RGB", 3: "P", 5: "CMYK"}  # photometric interpretations
MOST_TAGS, MOST_VALUES = 4096, 1 << 22
BYTES_PER_PIXEL = 4  # in Pillow, whose limit on pixels is thereby a limit on memory


class Widths(NamedTuple):
    """The numbers in a directory, as `struct` calls them."""

    offset: str
    size: int  # of an offset, and of the values inside an entry
    number: str


WIDTHS = {42: Widths("I", 4, "H"), 43: Widths("Q", 8, "Q")}  # TIFF and BigTIFF


class TiffHeader(NamedTuple):
    """What a TIFF says of its pixels."""

    order: str
    tags: dict[int, tuple[int, ...]]

    def value(self, tag: int, default: int = 1) -> int:
        """A tag of a single number."""
        return self.tags.get(tag, (default,))[0]

    @property
    def bits(self) -> int:
        """Bits of each number."""
        return self.value(BITS)

    @property
    def dtype(self) -> str | None:
        """How numpy calls the numbers, if they are whole bytes and all alike."""
        bits, kinds = self.tags.get(BITS, (1,)), self.tags.get(FORMAT, (1,))
        if len(set(bits)) > 1 or len(set(kinds)) > 1 or kinds[0] not in KINDS or bits[0] not in (8, 16, 32, 64):
            return None
        return None if (kinds[0], bits[0]) == (3, 8) else f"{KINDS[kinds[0]]}{bits[0] // 8}"

    @property
    def planes(self) -> int:
        """How many channels are stored one after the other, or 1 if all are stored pixel by pixel."""
        return self.value(CHANNELS) if self.value(PLANAR) == 2 else 1

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The strips or tiles, plane by plane: (offset, size)."""
        tiled = TILE_WIDTH in self.tags
        offsets = self.tags.get(TILE_OFFSETS if tiled else STRIP_OFFSETS, ())
        sizes = self.tags.get(TILE_SIZES if tiled else STRIP_SIZES, ())
        return list(zip(offsets, sizes, strict=True)) if len(offsets) == len(sizes) else []

    @property
    def is_plain(self) -> bool:
        """Whether the file consists of whole numbers of bytes, which can be read here."""
        if self.dtype is None or self.value(COMPRESSION) not in COMPRESSIONS or self.value(FILL_ORDER) != 1:
            return False
        sizes = (self.value(CHANNELS), self.value(HEIGHT, 0), self.value(WIDTH, 0), self.value(TILE_WIDTH))
        return all(sizes) and len(self.parts) > 0 and len(self.parts) % self.planes == 0

    @property
    def layout(self) -> str:
        """The meaning of the channels, as in `stored.Stored`."""
        base = COLOURS.get(self.value(PHOTOMETRIC, 0), "")
        beyond = self.value(CHANNELS) - len(base)
        alpha = {1: "a", 2: "A"}.get(self.value(EXTRA, 2), "") if beyond > 0 and base != "CMYK" else ""
        return base + alpha + "X" * (beyond - len(alpha))


def header(data: bytes) -> TiffHeader | None:
    """What a file says of the pixels of its first image, if it is a TIFF; big ones included."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        return None
    try:
        (version,) = struct.unpack_from(order + "H", data, 2)
        widths = WIDTHS.get(version)
        return None if widths is None else TiffHeader(order, _tags(data, order, widths))
    except struct.error:  # ends early: Pillow has the words for it
        return None


def stored_pixels(data: bytes, kind: TiffHeader, pil: ModuleType) -> Array:
    """The stored values of a file that is plain, H x W or H x W x C."""
    import numpy as np

    dtype = np.dtype(f"{kind.order}{kind.dtype}")
    _check_size(kind, dtype, pil)
    channels, parts = kind.value(CHANNELS), kind.parts
    each = len(parts) // kind.planes
    planes = [
        _plane(data, kind, parts[first : first + each], dtype, channels // kind.planes)
        for first in range(0, len(parts), each)
    ]
    pixels = np.concatenate(planes, axis=2)
    if kind.value(PHOTOMETRIC, 0) == 0 and dtype.kind == "u":  # counts from white to black
        pixels = np.iinfo(pixels.dtype).max - pixels
    pixels = _upright(pixels, kind.value(ORIENTATION))
    return np.ascontiguousarray(pixels[:, :, 0] if channels == 1 else pixels)


def _check_size(kind: TiffHeader, dtype: np.dtype[Any], pil: ModuleType) -> None:
    width, height, channels = kind.value(WIDTH), kind.value(HEIGHT), kind.value(CHANNELS)
    limit = pil.MAX_IMAGE_PIXELS
    if limit and height * width * channels * dtype.itemsize > 2 * limit * BYTES_PER_PIXEL:
        raise pil.DecompressionBombError(
            f"an image of {width} x {height} pixels, {channels} x {dtype.itemsize} bytes each, exceeds the limit"
        )


def _plane(data: bytes, kind: TiffHeader, parts: list[tuple[int, int]], dtype: np.dtype[Any], channels: int) -> Array:
    """The numbers of some channels that are stored together, H x W x channels."""
    height, width = kind.value(HEIGHT), kind.value(WIDTH)
    tile = kind.value(TILE_WIDTH, width)
    across, wide = -(-width // tile), tile * channels * dtype.itemsize
    tags = {tag: values for tag, values in kind.tags.items() if tag in KEPT}
    tags |= {WIDTH: (across * wide,), BITS: (8,), PHOTOMETRIC: (1,), CHANNELS: (1,)}
    offsets, sizes = zip(*parts, strict=True)
    if TILE_WIDTH in kind.tags:
        tags |= {TILE_WIDTH: (wide,), TILE_OFFSETS: offsets, TILE_SIZES: sizes}
    else:
        tags |= {STRIP_OFFSETS: offsets, STRIP_SIZES: sizes}
    rows = _bytes_of_gray(_described_as(data, kind.order, tags)).reshape(height, across, wide)
    predictor = kind.value(PREDICTOR) if kind.value(COMPRESSION) in PREDICTED else 1
    numbers = _without_predictor(rows, predictor, channels, dtype)
    return numbers.reshape(height, across * tile, channels)[:, :width].astype(dtype.newbyteorder("="))


def _described_as(data: bytes, order: str, tags: dict[int, tuple[int, ...]]) -> bytes:
    """The file with other tags, which lie behind it."""
    start = len(data) + len(data) % 2
    beyond = start + 2 + 12 * len(tags) + 4
    entries, values = [], b""
    for tag, numbers in sorted(tags.items()):
        packed = struct.pack(f"{order}{len(numbers)}I", *numbers)
        if len(packed) > 4:
            values, packed = values + packed, struct.pack(order + "I", beyond + len(values))
        entries.append(struct.pack(order + "HHI", tag, 4, len(numbers)) + packed)
    directory = struct.pack(order + "H", len(tags)) + b"".join(entries) + bytes(4) + values
    return data[:2] + struct.pack(order + "HI", 42, start) + data[8:] + bytes(len(data) % 2) + directory


def _bytes_of_gray(data: bytes) -> Array:
    import numpy as np
    from PIL.TiffImagePlugin import TiffImageFile

    # not by Image.open, which would count bytes as pixels and warn of large images
    with TiffImageFile(io.BytesIO(data)) as image:
        return np.array(image)


def _without_predictor(rows: Array, predictor: int, channels: int, dtype: np.dtype[Any]) -> Array:
    """Numbers from bytes, rows x tiles x bytes; a predictor stores the differences of neighbours in a row."""
    import numpy as np

    if predictor == 3:  # the first bytes of all numbers of a row, then the second ones, as differences
        planes = _sums(rows, channels, np.dtype("u1")).reshape(*rows.shape[:2], dtype.itemsize, -1)
        return np.ascontiguousarray(np.swapaxes(planes, 2, 3)).view(dtype.newbyteorder(">"))
    if predictor == 2:
        return _sums(rows, channels, np.dtype(f"{dtype.byteorder}u{dtype.itemsize}")).view(dtype.newbyteorder("="))
    return np.ascontiguousarray(rows).view(dtype)


def _sums(rows: Array, channels: int, dtype: np.dtype[Any]) -> Array:
    import numpy as np

    native = dtype.newbyteorder("=")
    numbers = np.ascontiguousarray(rows).view(dtype).astype(native).reshape(*rows.shape[:2], -1, channels)
    return np.cumsum(numbers, axis=2, dtype=native).reshape(*rows.shape[:2], -1)


def _upright(pixels: Array, orientation: int) -> Array:
    """As Pillow turns TIFF files, though no others."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return pixels[::rows, ::columns]


def _tags(data: bytes, order: str, widths: Widths) -> dict[int, tuple[int, ...]]:
    """The tags of the first directory that are whole numbers."""
    (place,) = struct.unpack_from(order + widths.offset, data, widths.size)
    (number,) = struct.unpack_from(order + widths.number, data, place)
    place += struct.calcsize(order + widths.number)
    length = 4 + 2 * widths.size
    entries = range(place, place + min(number, MOST_TAGS) * length, length)
    return dict(tag for tag in (_tag(data, entry, order, widths) for entry in entries) if tag)


def _tag(data: bytes, entry: int, order: str, widths: Widths) -> tuple[int, tuple[int, ...]] | None:
    tag, kind, length = struct.unpack_from(order + "HH" + widths.offset, data, entry)
    if kind not in SIZES or not 0 < length <= MOST_VALUES:
        return None
    form, where = f"{order}{length}{SIZES[kind]}", entry + 4 + widths.size
    if struct.calcsize(form) > widths.size:
        (where,) = struct.unpack_from(order + widths.offset, data, where)
    return tag, struct.unpack_from(form, data, where)
