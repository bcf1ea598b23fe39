"""TIFF files beyond what Pillow holds: 16-bit colour, other number types, any number of channels.

Their strips and tiles are compressed by many methods, which Pillow (libtiff) undoes: it is given the file under a
description that says "bytes of gray", and the bytes are put together to numbers here.

A tag is a view of the file, whatever length it claims; a file whose tags share bytes, and so together claim more than
it has, is refused, since Pillow and libtiff keep a copy for each.
"""

from __future__ import annotations

import io
import struct
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.errors import DecodingError

from .compression import check_pixels

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER = 256, 257, 258, 259, 262, 266
ORIENTATION = 274
STRIP_OFFSETS, CHANNELS, ROWS_PER_STRIP, STRIP_SIZES, PLANAR, PREDICTOR = 273, 277, 278, 279, 284, 317
TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_SIZES, EXTRA, FORMAT = 322, 323, 324, 325, 338, 339

READ = {
    WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, FILL_ORDER, ORIENTATION, STRIP_OFFSETS, CHANNELS, ROWS_PER_STRIP,
    STRIP_SIZES, PLANAR, PREDICTOR, TILE_WIDTH, TILE_HEIGHT, TILE_OFFSETS, TILE_SIZES, EXTRA, FORMAT,
}  # fmt: skip
# of numbers as they are: none, LZW, deflate, its older number, PackBits, LZMA, Zstandard
NOT_COMPRESSED = 1
COMPRESSIONS = {NOT_COMPRESSED, 5, 8, 32946, 32773, 34925, 50000}
PREDICTED = COMPRESSIONS - {NOT_COMPRESSED, 32773}
WHOLE = {1: "u1", 3: "u2", 4: "u4", 16: "u8"}  # field types of whole numbers
SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)  # bytes, by field type
KINDS = {1: "u", 2: "i", 3: "f"}  # sample formats
COLOURS = {0: "L", 1: "L", 2: "RGB", 3: "P", 5: "CMYK"}  # photometric interpretations
INNER = (34665, 34853, 40965)  # tags that say where further directories are: Exif, GPS, Interoperability
MOST_TAGS = 4096
MOST_DIRECTORIES = 16
ALLOWED = 1 << 20
"""Bytes that tags may claim in any file: damaged ones claim what others have, too."""
BYTES_PER_PIXEL = 4  # in Pillow, whose limit on pixels is thereby a limit on memory


class Widths(NamedTuple):
    """The numbers in a directory, as numpy calls them."""

    offset: str
    size: int  # of an offset, and of the values inside an entry
    number: str


WIDTHS = {42: Widths("u4", 4, "u2"), 43: Widths("u8", 8, "u8")}  # TIFF and BigTIFF


class TiffHeader(NamedTuple):
    """What a TIFF says of its pixels."""

    order: str
    tags: dict[int, Array]

    def value(self, tag: int, default: int = 1) -> int:
        """A tag of a single number."""
        return int(self.tags[tag][0]) if tag in self.tags else default

    @property
    def bits(self) -> int:
        """Bits of each number."""
        return self.value(BITS)

    @property
    def dtype(self) -> str | None:
        """How numpy calls the numbers, if they are whole bytes and all alike."""
        bits, kind = self.bits, self.value(FORMAT)
        mixed = any(tag in self.tags and (self.tags[tag] != self.tags[tag][0]).any() for tag in (BITS, FORMAT))
        if mixed or kind not in KINDS or bits not in (8, 16, 32, 64) or (kind, bits) == (3, 8):
            return None
        return f"{KINDS[kind]}{bits // 8}"

    @property
    def planes(self) -> int:
        """How many channels are stored one after the other, or 1 if all are stored pixel by pixel."""
        return self.value(CHANNELS) if self.value(PLANAR) == 2 else 1

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile; a strip is a tile as wide as the picture."""
        if TILE_WIDTH in self.tags:
            return self.value(TILE_HEIGHT, 0), self.value(TILE_WIDTH)
        return min(self.value(ROWS_PER_STRIP, 1 << 32), self.value(HEIGHT, 0)), self.value(WIDTH, 0)

    @property
    def grid(self) -> tuple[int, int, int]:
        """How many planes, rows and columns of strips or tiles there are."""
        (rows, columns), height, width = self.tile, self.value(HEIGHT, 0), self.value(WIDTH, 0)
        return self.planes, -(-height // rows), -(-width // columns)

    @property
    def parts(self) -> tuple[Array, Array] | None:
        """Where the strips or tiles begin and how long they are, plane by plane."""
        tiled = TILE_WIDTH in self.tags
        offsets = self.tags.get(TILE_OFFSETS if tiled else STRIP_OFFSETS)
        sizes = self.tags.get(TILE_SIZES if tiled else STRIP_SIZES)
        return None if offsets is None or sizes is None or len(offsets) != len(sizes) else (offsets, sizes)

    @property
    def is_plain(self) -> bool:
        """Whether the file consists of whole numbers of bytes, which can be read here."""
        if self.dtype is None or self.value(COMPRESSION) not in COMPRESSIONS or self.value(FILL_ORDER) != 1:
            return False
        sizes = (self.value(CHANNELS), self.value(HEIGHT, 0), self.value(WIDTH, 0), *self.tile)
        return all(sizes) and self.parts is not None

    @property
    def layout(self) -> str:
        """The meaning of the channels, as in `stored.Stored`."""
        base = COLOURS.get(self.value(PHOTOMETRIC, 0), "")
        beyond = self.value(CHANNELS) - len(base)
        alpha = {1: "a", 2: "A"}.get(self.value(EXTRA, 2), "") if beyond > 0 and base != "CMYK" else ""
        return base + alpha + "X" * (beyond - len(alpha))


def header(data: bytes) -> TiffHeader | None:
    """What a file says of the pixels of its first image, if it is a TIFF; big ones included."""
    check_tags(data)
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None or len(data) < 16:
        return None
    widths = WIDTHS.get(struct.unpack_from(order + "H", data, 2)[0])
    return None if widths is None else _header(data, order, widths)


def stored_pixels(data: bytes, kind: TiffHeader, pil: ModuleType) -> Array:
    """The stored values of a file that is plain, H x W or H x W x C."""
    import numpy as np

    dtype = np.dtype(f"{kind.order}{kind.dtype}")
    _check_size(kind, dtype, pil)
    height, width, channels = kind.value(HEIGHT), kind.value(WIDTH), kind.value(CHANNELS)
    (rows, columns), (planes, down, across) = kind.tile, kind.grid
    together = channels // planes
    numbers = _without_predictor(_rows(data, kind, columns * together * dtype.itemsize), kind, together, dtype)
    high = down * rows if TILE_WIDTH in kind.tags else height
    pixels = numbers.reshape(planes, high, across * columns, together)[:, :height, :width]
    pixels = np.moveaxis(pixels, 0, 2).reshape(height, width, channels)
    if kind.value(PHOTOMETRIC, 0) == 0 and dtype.kind == "u":  # counts from white to black
        pixels = np.iinfo(pixels.dtype).max - pixels
    pixels = _upright(pixels, kind.value(ORIENTATION))
    pixels = np.ascontiguousarray(pixels[:, :, 0] if channels == 1 else pixels, dtype.newbyteorder("="))
    return pixels if pixels.flags.writeable else pixels.copy()


def check_tags(data: bytes) -> None:
    """Refuse a file, or the Exif data of one, whose tags share bytes: each is read into memory of its own.

    All forms of a header that versions of Pillow take are looked at; `header` knows those that say what they are.
    """
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    magics = set(data[2:4]) - {0}
    if order is None or not magics <= set(WIDTHS):
        return
    # Pillow 10 to 12 read MM files of 64 bits as those of 32, if they read them at all
    for widths in {WIDTHS[magic] for magic in magics} | {WIDTHS[42]}:
        _check_directories(data, order, widths)


def _check_size(kind: TiffHeader, dtype: np.dtype[Any], pil: ModuleType) -> None:
    """Refuse what is too large; tiles are decoded whole, however little of them is in the picture."""
    (rows, columns), (_, down, across) = kind.tile, kind.grid
    width, height, channels = across * columns, down * rows, kind.value(CHANNELS)
    limit = pil.MAX_IMAGE_PIXELS
    if limit and height * width * channels * dtype.itemsize > 2 * limit * BYTES_PER_PIXEL:
        raise pil.DecompressionBombError(
            f"an image of {width} x {height} pixels, {channels} x {dtype.itemsize} bytes each, exceeds the limit"
        )
    check_pixels((height, width, channels), dtype.itemsize)


def _rows(data: bytes, kind: TiffHeader, wide: int) -> Array:
    """The bytes of all planes, one below the other: rows x tiles x bytes."""
    import numpy as np

    assert kind.parts is not None
    (rows, _), (planes, down, across) = kind.tile, kind.grid
    each = down * across
    if len(kind.parts[0]) < planes * each:
        raise OSError(f"image file is truncated: {len(kind.parts[0])} of {planes * each} strips or tiles")
    offsets, sizes = (values[: planes * each].reshape(planes, each) for values in kind.parts)
    if (offsets > len(data)).any():
        raise OSError("image file is truncated: a strip or tile lies behind its end")
    height = down * rows if TILE_WIDTH in kind.tags else kind.value(HEIGHT)
    rest = height % rows
    if planes == 1 or not rest:
        return _decoded(data, kind, (offsets, sizes), (planes * height, across, wide), rows)
    # the last strip of each plane is shorter, which only the last strip of a file may be
    ends = _decoded(data, kind, (offsets[:, -1:], sizes[:, -1:]), (planes * rest, 1, wide), rest)
    if down == 1:
        return ends
    whole = _decoded(data, kind, (offsets[:, :-1], sizes[:, :-1]), (planes * (height - rest), 1, wide), rows)
    return np.concatenate([whole.reshape(planes, -1, 1, wide), ends.reshape(planes, -1, 1, wide)], 1)


def _decoded(
    data: bytes, kind: TiffHeader, parts: tuple[Array, Array], shape: tuple[int, int, int], rows: int
) -> Array:
    """The bytes of some strips or tiles, rows x tiles x bytes."""
    import numpy as np

    height, across, wide = shape
    offsets, sizes = parts[0].reshape(-1), np.minimum(parts[1], len(data)).reshape(-1)
    if kind.value(COMPRESSION) == NOT_COMPRESSED:
        return _copied(data, offsets, shape, rows)
    tiled = TILE_WIDTH in kind.tags
    tags: dict[int, int | Array] = {WIDTH: across * wide, HEIGHT: height, BITS: 8, COMPRESSION: kind.value(COMPRESSION)}
    tags |= {PHOTOMETRIC: 1, CHANNELS: 1}
    if tiled:
        tags |= {
            TILE_WIDTH: wide,
            TILE_HEIGHT: rows,
            TILE_OFFSETS: offsets,
            TILE_SIZES: sizes,
        }
    else:
        tags |= {
            ROWS_PER_STRIP: rows,
            STRIP_OFFSETS: offsets,
            STRIP_SIZES: sizes,
        }
    return _bytes_of_gray(_described_as(data, kind.order, tags)).reshape(shape)


def _copied(data: bytes, offsets: Array, shape: tuple[int, int, int], rows: int) -> Array:
    """The bytes of strips or tiles that are not compressed."""
    import numpy as np

    height, across, wide = shape
    found = np.empty(shape, np.uint8)
    for number, offset in enumerate(map(int, offsets)):
        row, column = number // across * rows, number % across
        some = min(rows, height - row)
        if offset + some * wide > len(data):
            raise OSError(f"image file is truncated: strip or tile {number} ends behind it")
        found[row : row + some, column] = np.frombuffer(data, np.uint8, some * wide, offset).reshape(some, wide)
    return found


def _described_as(data: bytes, order: str, tags: dict[int, int | Array]) -> bytes:
    """The file with other tags, which lie behind it."""
    import numpy as np

    start = len(data) + len(data) % 2
    beyond = start + 2 + 12 * len(tags) + 4
    entries, values = [], b""
    for tag, numbers in sorted(tags.items()):
        packed = np.asarray(numbers, order + "u4").tobytes()
        count = len(packed) // 4
        if count > 1:
            values, packed = values + packed, struct.pack(order + "I", beyond + len(values))
        entries.append(struct.pack(order + "HHI", tag, 4, count) + packed)
    directory = struct.pack(order + "H", len(tags)) + b"".join(entries) + bytes(4) + values
    return b"".join(
        [data[:2], struct.pack(order + "HI", 42, start), memoryview(data)[8:], bytes(len(data) % 2), directory]
    )


def _bytes_of_gray(data: bytes) -> Array:
    import numpy as np
    from PIL.TiffImagePlugin import TiffImageFile

    # not by Image.open, which would count bytes as pixels and warn of large images
    with TiffImageFile(io.BytesIO(data)) as image:
        return np.asarray(image)


def _without_predictor(rows: Array, kind: TiffHeader, channels: int, dtype: np.dtype[Any]) -> Array:
    """Numbers from bytes, rows x tiles x bytes; a predictor stores the differences of neighbours in a row."""
    import numpy as np

    predictor = kind.value(PREDICTOR) if kind.value(COMPRESSION) in PREDICTED else 1
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


def _header(data: bytes, order: str, widths: Widths) -> TiffHeader | None:
    """The tags that are used here, views of the file; what ends early is None: Pillow has the words for it."""
    import numpy as np

    (place,) = np.frombuffer(data, order + widths.offset, 1, widths.size).tolist()
    entries, is_whole = _entries(data, order, widths, place)
    if not is_whole:
        return None
    found = {}
    begin = place + int(widths.number[1:])
    for at, (tag, kind, length) in enumerate(entries[["tag", "kind", "length"]][:MOST_TAGS].tolist()):
        if tag not in READ or kind not in WHOLE or not length:
            continue
        dtype = np.dtype(order + WHOLE[kind])
        where = begin + (at + 1) * entries.itemsize - widths.size
        if length * dtype.itemsize > widths.size:
            where = int(entries["value"][at])
        if where + length * dtype.itemsize > len(data):
            return None
        found[tag] = np.frombuffer(data, dtype, length, where)
    return TiffHeader(order, found)


def _entries(data: bytes, order: str, widths: Widths, place: int) -> tuple[Array, bool]:
    """The entries of a directory as far as they are there, and whether they all are."""
    import numpy as np

    entry = _entry(order, widths)
    begin = place + int(widths.number[1:])
    if begin > len(data):
        return np.empty(0, entry), False
    (number,) = np.frombuffer(data, order + widths.number, 1, place).tolist()
    there = min(number, (len(data) - begin) // entry.itemsize)
    return np.frombuffer(data, entry, there, begin), there == number


@cache
def _entry(order: str, widths: Widths) -> np.dtype[Any]:
    """An entry of a directory."""
    import numpy as np

    wide = order + widths.offset
    return np.dtype([("tag", order + "u2"), ("kind", order + "u2"), ("length", wide), ("value", wide)])


def _check_directories(data: bytes, order: str, widths: Widths) -> None:
    """The first directory and those inside of it, which Pillow reads, too."""
    import numpy as np

    if len(data) < 2 * widths.size:
        return
    places = np.frombuffer(data, order + widths.offset, 1, widths.size).tolist()
    claimed, looked_at = 0.0, 0
    while places:
        looked_at += 1
        entries, _ = _entries(data, order, widths, places.pop())
        claimed += _claimed(entries, widths, len(data))
        if claimed > max(len(data), ALLOWED) or looked_at > MOST_DIRECTORIES:
            raise DecodingError(f"its tags claim {claimed:.0f} bytes or more, the whole file has {len(data)}")
        places += np.unique(entries["value"][np.isin(entries["tag"], INNER)]).tolist()


def _claimed(entries: Array, widths: Widths, size: int) -> float:
    """How many bytes are read for these entries: those that lie in the file, and not in the entries themselves."""
    import numpy as np

    kinds = np.minimum(entries["kind"], len(SIZES) - 1).astype(np.intp)
    lengths = entries["length"].astype(np.float64) * np.array(SIZES)[kinds]
    return float(lengths[(lengths > widths.size) & (entries["value"] + lengths <= size)].sum())
