"""Every image spec of every kind of image file: the values are computed here, and many of the files made here."""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from webdataset.autodecode import ALIASES, imagehandler, imagespecs
from webdataset.codecs import stored, tiff
from webdataset.codecs.images import STORED, WIDER
from webdataset.errors import DecodingError


def decoded(data: bytes, spec: str) -> object:
    return imagehandler(spec)(".png", data)


def saved(image: Image.Image | np.ndarray, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(stream, kind, **options)
    return stream.getvalue()


# -- a PNG writer of its own ---------------------------------------------------------------------------------

GRAY, RGB, PALETTE, GRAY_ALPHA, RGBA = 0, 2, 3, 4, 6
CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, GRAY_ALPHA: 2, RGBA: 4}
ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def packed(row: np.ndarray, depth: int) -> bytes:
    values = row.reshape(-1).tolist()
    if depth == 16:
        return struct.pack(f">{len(values)}H", *values)
    bits = "".join(f"{int(value):0{depth}b}" for value in values)
    return bytes(int(bits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(bits), 8))


def paeth(a: int, b: int, c: int) -> int:
    distances = [(abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c)]
    return min(distances)[2]


def filtered(row: bytes, above: bytes, step: int, kind: int) -> bytes:
    out = bytearray([kind])
    for i, value in enumerate(row):
        left, up, corner = row[i - step] if i >= step else 0, above[i], above[i - step] if i >= step else 0
        out.append((value - (0, left, up, (left + up) // 2, paeth(left, up, corner))[kind]) & 255)
    return bytes(out)


def scanlines(pixels: np.ndarray, depth: int, channels: int, filters: Iterator[int]) -> bytes:
    step, above, lines = max(1, depth * channels // 8), None, b""
    for row in pixels:
        line = packed(row, depth)
        lines += filtered(line, above or bytes(len(line)), step, next(filters))
        above = line
    return lines


def png(
    values: object, depth: int, colour: int, *, extra: bytes = b"", filters: tuple[int, ...] = (0,), interlaced=False
) -> bytes:
    """A PNG as its specification describes it, without Pillow."""
    pixels = np.array(values)
    kinds = itertools.cycle(filters)
    parts = [pixels[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [pixels]
    lines = b"".join(scanlines(part, depth, CHANNELS[colour], kinds) for part in parts if part.size)
    start = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], depth, colour, 0, 0, interlaced)
    chunks = chunk(b"IHDR", start) + extra + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


# -- a TIFF writer of its own --------------------------------------------------------------------------------


def raw_tiff(
    array: np.ndarray,
    photometric: int,
    *,
    order: str = "<",
    extra: int | None = None,
    planar: bool = False,
    rows: int = 0,
    tile: tuple[int, int] | None = None,
    deflate: bool = False,
    predictor: bool = False,
    big: bool = False,
    more: dict[int, tuple[int, ...]] | None = None,
) -> bytes:
    """A TIFF as its specification describes it, without Pillow."""
    pixels = array if array.ndim == 3 else array[:, :, None]
    height, width, channels = pixels.shape
    parts = []
    for plane in np.split(pixels, channels, axis=2) if planar else [pixels]:
        if tile:
            for y, x in itertools.product(range(0, height, tile[0]), range(0, width, tile[1])):
                whole = np.zeros((*tile, plane.shape[2]), plane.dtype)
                piece = plane[y : y + tile[0], x : x + tile[1]]
                whole[: piece.shape[0], : piece.shape[1]] = piece
                parts.append(whole)
        else:
            parts += [plane[y : y + (rows or height)] for y in range(0, height, rows or height)]
    if predictor:
        parts = [np.diff(part, axis=1, prepend=part.dtype.type(0)) for part in parts]
    data = [part.astype(part.dtype.newbyteorder(order)).tobytes() for part in parts]
    data = [zlib.compress(part) for part in data] if deflate else data
    start = 16 if big else 8
    offsets = [start + sum(map(len, data[:n])) for n in range(len(data))]
    kind = {"u": 1, "i": 2, "f": 3}[array.dtype.kind]
    places, sizes = (324, 325) if tile else (273, 279)
    tags = {
        256: (width,), 257: (height,), 258: (array.dtype.itemsize * 8,) * channels, 259: (8 if deflate else 1,),
        262: (photometric,), places: tuple(offsets), 277: (channels,), sizes: tuple(map(len, data)),
        284: (2 if planar else 1,), 339: (kind,) * channels,
    }  # fmt: skip
    tags |= {322: (tile[1],), 323: (tile[0],)} if tile else {278: (rows or height,)}
    tags |= {338: (extra,)} if extra is not None else {}
    tags |= {317: (2,)} if predictor else {}
    tags = {tag: numbers for tag, numbers in (tags | (more or {})).items() if numbers}
    body = b"".join(data)
    place = start + len(body)
    size, letter, number, code = (8, "Q", "Q", 16) if big else (4, "I", "H", 4)
    beyond = place + struct.calcsize(order + number) + len(tags) * (4 + 2 * size) + size
    entries, values = b"", b""
    for tag, numbers in sorted(tags.items()):
        content = struct.pack(f"{order}{len(numbers)}{letter}", *numbers)
        if len(content) > size:
            values, content = values + content, struct.pack(order + letter, beyond + len(values))
        entries += struct.pack(order + "HH" + letter, tag, code, len(numbers)) + content
    directory = struct.pack(order + number, len(tags)) + entries + bytes(size) + values
    head = {"<": b"II", ">": b"MM"}[order] + struct.pack(order + "H", 43 if big else 42)
    head += struct.pack(order + "HHQ", 8, 0, place) if big else struct.pack(order + "I", place)
    return head + body + directory


# -- the table -----------------------------------------------------------------------------------------------


class Case(NamedTuple):
    data: bytes
    pixels: np.ndarray
    white: int
    colours: list  # a gray value or (r, g, b) for each pixel of the one row
    alpha: list | None


def row(values: object, dtype: str) -> np.ndarray:
    return np.array([values], dtype=dtype)


def case(
    data: bytes,
    values: list,
    dtype: str = "u1",
    white: int = 255,
    colours: list | None = None,
    *,
    alpha: list | None = None,
) -> Case:
    """A file of one row; the colours are its values if nothing else is said."""
    return Case(data, row(values, dtype), white, values if colours is None else colours, alpha)


def coloured(pixels: list) -> list:
    return [pixel[:3] for pixel in pixels]


def last(pixels: list) -> list:
    return [pixel[-1] for pixel in pixels]


PALETTE_COLOURS = [(0, 0, 0), (128, 0, 0), (0, 128, 0), (255, 254, 253)]
VOC = Image.fromarray(row([0, 1, 2, 255], "u1"))
VOC.putpalette([*PALETTE_COLOURS[0], *PALETTE_COLOURS[1], *PALETTE_COLOURS[2], *[7] * (252 * 3), *PALETTE_COLOURS[3]])
PALETTE_ALPHA = Image.frombytes("PA", (2, 1), bytes([1, 0, 2, 200]))
PALETTE_ALPHA.putpalette([0, 0, 0, 10, 20, 30, 40, 50, 60])

DEEP = [0, 0x0102, 0x80FF, 0xFFFF]
DEEP_RGB = [(0x0102, 0x8090, 0xFFFE), (0x0300, 1, 0xFFFF)]
DEEP_RGBA = [(0x0102, 0x8090, 0xFFFE, 0x1234), (0x0300, 1, 0xFFFF, 0xFEDC)]
DEEP_LA = [(0x0102, 0x8090), (0x0300, 0xFFFF)]

PLTE = chunk(b"PLTE", bytes(itertools.chain(*PALETTE_COLOURS)))
SHALLOW_RGB = [(1, 2, 3), (250, 0, 9)]
SHALLOW_RGBA = [(1, 2, 3, 4), (250, 0, 9, 77)]
SHALLOW_LA = [(9, 0), (255, 128)]
INKS = [(0, 0, 0, 0), (255, 0, 0, 0), (0, 0, 0, 255)]
DEEP_INKS = [tuple(257 * ink for ink in inks) for inks in INKS]
OF_INKS = [(255, 255, 255), (0, 255, 255), (0, 0, 0)]
TIMES_ALPHA = [(0x1000, 0x2000, 0, 0x8000), (0, 0, 0, 0)]
BY_ALPHA = [(0x1000 * 65535 // 0x8000, 0x2000 * 65535 // 0x8000, 0), (0, 0, 0)]


def key(*values: int) -> bytes:
    return chunk(b"tRNS", struct.pack(f">{len(values)}H", *values))


def tiff_of(mode: str, pixels: list) -> bytes:
    return saved(Image.frombytes(mode, (len(pixels), 1), bytes(itertools.chain(*pixels))), "TIFF")


CASES: dict[str, Callable[[], Case]] = {
    "1": lambda: case(png([[0, 1, 1]], 1, GRAY), [0, 1, 1], "?", colours=[0, 255, 255]),
    "1 tiff": lambda: case(saved(row([0, 1], "?"), "TIFF"), [0, 1], "?", colours=[0, 255]),
    "1 with a key": lambda: case(png([[0, 1]], 1, GRAY, extra=key(1)), [0, 1], "?", 255, [0, 255], alpha=[255, 0]),
    "L": lambda: case(png([[0, 7, 255]], 8, GRAY), [0, 7, 255]),
    "L of 2 bits": lambda: case(png([[0, 1, 2, 3]], 2, GRAY), [0, 1, 2, 3], colours=[0, 85, 170, 255]),
    "L of 4 bits": lambda: case(png([[0, 1, 15]], 4, GRAY), [0, 1, 15], colours=[0, 17, 255]),
    "L with a key": lambda: case(png([[0, 7, 255]], 8, GRAY, extra=key(7)), [0, 7, 255], alpha=[255, 0, 255]),
    "L of 4 bits with a key": lambda: case(
        png([[0, 1, 15]], 4, GRAY, extra=key(15)), [0, 1, 15], colours=[0, 17, 255], alpha=[255, 255, 0]
    ),
    "LA": lambda: case(png([SHALLOW_LA], 8, GRAY_ALPHA), SHALLOW_LA, colours=[9, 255], alpha=[0, 128]),
    "LA tiff": lambda: case(tiff_of("LA", SHALLOW_LA), SHALLOW_LA, colours=[9, 255], alpha=[0, 128]),
    "P": lambda: case(saved(VOC, "PNG"), [0, 1, 2, 255], colours=PALETTE_COLOURS),
    "P of 2 bits": lambda: case(png([[0, 1, 2, 3]], 2, PALETTE, extra=PLTE), [0, 1, 2, 3], colours=PALETTE_COLOURS),
    "P with alpha": lambda: case(
        png([[0, 1, 2, 3]], 8, PALETTE, extra=PLTE + chunk(b"tRNS", bytes([0, 100]))),
        [0, 1, 2, 3],
        colours=PALETTE_COLOURS,
        alpha=[0, 100, 255, 255],
    ),
    "P gif": lambda: case(saved(VOC, "GIF", optimize=False), [0, 1, 2, 255], colours=PALETTE_COLOURS),
    "P tiff": lambda: case(saved(VOC, "TIFF"), [0, 1, 2, 255], colours=PALETTE_COLOURS),
    "P bmp": lambda: case(saved(VOC, "BMP"), [0, 1, 2, 255], colours=PALETTE_COLOURS),
    "PA": lambda: case(
        saved(PALETTE_ALPHA, "TIFF"), [(1, 0), (2, 200)], colours=[(10, 20, 30), (40, 50, 60)], alpha=[0, 200]
    ),
    "RGB": lambda: case(png([SHALLOW_RGB], 8, RGB), SHALLOW_RGB),
    "RGB with a key": lambda: case(png([SHALLOW_RGB], 8, RGB, extra=key(1, 2, 3)), SHALLOW_RGB, alpha=[0, 255]),
    "RGBA": lambda: case(png([SHALLOW_RGBA], 8, RGBA), SHALLOW_RGBA, colours=SHALLOW_RGB, alpha=[4, 77]),
    "RGBA webp": lambda: case(
        saved(row(SHALLOW_RGBA, "u1"), "WEBP", lossless=True, exact=True),
        SHALLOW_RGBA,
        colours=SHALLOW_RGB,
        alpha=[4, 77],
    ),
    "CMYK tiff": lambda: case(tiff_of("CMYK", INKS), INKS, colours=OF_INKS),
    # Adobe's JPEGs hold 255 minus the ink, which Pillow knows by their marker
    "CMYK jpeg": lambda: case(
        saved(Image.new("CMYK", (1, 1), INKS[1]), "JPEG", quality=100), [INKS[1]], colours=[OF_INKS[1]]
    ),
    "LAB": lambda: case(tiff_of("LAB", [(80, 129, 144)]), [(80, 129, 144)]),
    "I;16 png": lambda: case(png([DEEP], 16, GRAY), DEEP, "u2", 65535),
    "I;16 png by Pillow": lambda: case(saved(row(DEEP, "u2"), "PNG"), DEEP, "u2", 65535),
    "I;16 png with a key": lambda: case(
        png([DEEP], 16, GRAY, extra=key(0x80FF)), DEEP, "u2", 65535, alpha=[65535, 65535, 0, 65535]
    ),
    "I;16 tiff": lambda: case(saved(row(DEEP, "u2"), "TIFF"), DEEP, "u2", 65535),
    "I;16B tiff": lambda: case(saved(row(DEEP, ">u2"), "TIFF"), DEEP, "u2", 65535),
    "I;16 tiff from white to black": lambda: case(raw_tiff(65535 - row(DEEP, "u2"), 0), DEEP, "u2", 65535),
    "I;16 pgm": lambda: case(b"P5 # no\n4 1 65535\n" + row(DEEP, ">u2").tobytes(), DEEP, "u2", 65535),
    "I;16 jpeg 2000": lambda: case(saved(row(DEEP, "u2"), "JPEG2000", num_resolutions=1), DEEP, "u2", 65535),
    "pgm of 10 bits": lambda: case(b"P5 3 1 1023\n\0\0\2\0\3\xff", [0, 512, 1023], "u2", 1023),
    "pgm of 4 bits": lambda: case(b"P5 3 1 15\n\0\1\x0f", [0, 1, 15], colours=[0, 17, 255]),
    "plain pgm": lambda: case(b"P2\n3 1\n1023\n0 512 # the middle\n1023\n", [0, 512, 1023], "u2", 1023),
    "ppm of 16 bits": lambda: case(b"P6 2 1 65535\n" + row(DEEP_RGB, ">u2").tobytes(), DEEP_RGB, "u2", 65535),
    "I": lambda: case(saved(row(DEEP, "i4"), "TIFF"), DEEP, "i4", 65535),
    "I of 16 bits with a sign": lambda: case(raw_tiff(row([0, 32767], "i2"), 1), [0, 32767], "i2", 65535),
    "I without a sign": lambda: case(raw_tiff(row(DEEP, "u4"), 1), DEEP, "u4", 65535),
    "F": lambda: case(saved(row([0.0, 0.25, 1.0], "f4"), "TIFF"), [0.0, 0.25, 1.0], "f4", 1),
    "F of 64 bits": lambda: case(raw_tiff(row([0.0, 0.1, 1.0], "f8"), 1), [0.0, 0.1, 1.0], "f8", 1),
    "F in colour": lambda: case(raw_tiff(row([(0.0, 0.5, 1.0)], "f4"), 2), [(0.0, 0.5, 1.0)], "f4", 1),
    "LA of 16 bits": lambda: case(
        png([DEEP_LA], 16, GRAY_ALPHA), DEEP_LA, "u2", 65535, [first for first, _ in DEEP_LA], alpha=last(DEEP_LA)
    ),
    "LA tiff of 16 bits": lambda: case(
        raw_tiff(row(DEEP_LA, "u2"), 1, extra=2),
        DEEP_LA,
        "u2",
        65535,
        [first for first, _ in DEEP_LA],
        alpha=last(DEEP_LA),
    ),
    "RGB of 16 bits": lambda: case(png([DEEP_RGB], 16, RGB), DEEP_RGB, "u2", 65535),
    "RGB of 16 bits with a key": lambda: case(
        png([DEEP_RGB], 16, RGB, extra=key(*DEEP_RGB[1])), DEEP_RGB, "u2", 65535, alpha=[65535, 0]
    ),
    "RGBA of 16 bits": lambda: case(
        png([DEEP_RGBA], 16, RGBA), DEEP_RGBA, "u2", 65535, coloured(DEEP_RGBA), alpha=last(DEEP_RGBA)
    ),
    "RGB tiff of 16 bits": lambda: case(raw_tiff(row(DEEP_RGB, "u2"), 2), DEEP_RGB, "u2", 65535),
    "RGBA tiff of 16 bits": lambda: case(
        raw_tiff(row(DEEP_RGBA, "u2"), 2, extra=2, order=">"),
        DEEP_RGBA,
        "u2",
        65535,
        coloured(DEEP_RGBA),
        alpha=last(DEEP_RGBA),
    ),
    "RGB tiff of 16 bits and a channel without meaning": lambda: case(
        raw_tiff(row(DEEP_RGBA, "u2"), 2, extra=0), DEEP_RGBA, "u2", 65535, coloured(DEEP_RGBA)
    ),
    "RGBa tiff of 16 bits": lambda: case(
        raw_tiff(row(TIMES_ALPHA, "u2"), 2, extra=1), TIMES_ALPHA, "u2", 65535, BY_ALPHA, alpha=last(TIMES_ALPHA)
    ),
    "CMYK tiff of 16 bits": lambda: case(
        raw_tiff(row(DEEP_INKS, "u2"), 5), DEEP_INKS, "u2", 65535, [tuple(257 * c for c in rgb) for rgb in OF_INKS]
    ),
}

EIGHT = ("l8", "rgb8", "rgba8", "torchl8", "torchrgb8", "torchrgba8", "pil", "pilrgb", "pill", "pilrgba")
FLOATS = ("l", "rgb", "rgba", "torchl", "torchrgb", "torch", "rgbtorch", "torchrgba")


def high_byte(values: np.ndarray, white: int) -> np.ndarray:
    if values.dtype.kind == "f":
        return (values * 255).astype(np.uint8)
    return (values.astype(np.int64) * 65535 // white >> 8).astype(np.uint8)


def luma(colours: np.ndarray) -> np.ndarray:
    r, g, b = (colours[:, :, n].astype(np.int64) for n in range(3))
    return (r * 19595 + g * 38470 + b * 7471 + 0x8000 >> 16).astype(np.uint8)


def expected(case: Case, spec: str) -> np.ndarray:
    """What a spec gives, from the colours of a case."""
    mode = {**imagespecs, **STORED}[ALIASES.get(spec, spec)][2]
    colours = np.atleast_2d(np.array(case.colours))
    colours = colours[None] if case.pixels.shape[0] == 1 and np.ndim(case.colours) == 2 else colours
    is_gray = colours.ndim == 2
    height, width = case.pixels.shape[:2]
    alpha = np.full((height, width), case.white) if case.alpha is None else np.array(case.alpha).reshape(height, width)
    rgb = np.repeat(colours[:, :, None], 3, axis=2) if is_gray else colours
    if spec in EIGHT:
        eight = high_byte(rgb, case.white)
        channels = {"l": eight[:, :, 0] if is_gray else luma(eight), "rgb": eight}
        channels["rgba"] = np.dstack([eight, high_byte(alpha, case.white)])
        return channels[mode]
    unit = rgb / case.white
    gray = unit[:, :, 0] if is_gray else unit @ [0.299, 0.587, 0.114]
    if not is_gray and case.white == 255:  # Pillow's gray, of whole numbers
        gray = luma(rgb) / 255
    return {"l": gray, "rgb": unit, "rgba": np.dstack([unit, alpha / case.white])}[mode]


def as_array(value: object) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        assert value.is_contiguous()
        return value.numpy().transpose(1, 2, 0) if value.ndim == 3 else value.numpy()
    return np.asarray(value)


@pytest.mark.parametrize("name", [name for name in CASES if name != "LAB"])
def test_every_spec_of_every_kind_of_image(name):
    case = CASES[name]()
    for spec in EIGHT:
        found, wanted = as_array(decoded(case.data, spec)), expected(case, spec)
        assert (spec, found.dtype, found.tolist()) == (spec, np.uint8, wanted.tolist())
    for spec in FLOATS:
        found, wanted = as_array(decoded(case.data, spec)), expected(case, spec)
        assert (spec, found.dtype, found.shape) == (spec, np.float32, wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=3e-7, atol=1e-9, err_msg=spec)


def test_programs_that_iterate_over_the_specs_find_those_of_version_1_alone():
    kinds = {("numpy", "uint8"), ("numpy", "float"), ("torch", "uint8"), ("torch", "float"), ("pil", None)}
    assert {(container, values) for container, values, _ in imagespecs.values()} == kinds
    assert {mode for _, _, mode in imagespecs.values()} == {"l", "rgb", "rgba"}
    with pytest.raises(ValueError, match="torchpixels"):  # which is one, all the same
        imagehandler("pixel")


@pytest.mark.parametrize("name", CASES)
def test_pixels_are_the_stored_values(name):
    case = CASES[name]()
    found = decoded(case.data, "pixels")
    assert (found.dtype, found.shape) == (case.pixels.dtype, case.pixels.shape)
    assert found.tolist() == case.pixels.tolist()
    assert found.flags.c_contiguous
    found[0, 0] = 0  # it is the caller's own


@pytest.mark.parametrize("name", CASES)
def test_torchpixels_are_the_same_as_tensors_with_channels_first(name):
    case = CASES[name]()
    tensor = decoded(case.data, "torchpixels")
    assert isinstance(tensor, torch.Tensor)
    kind = case.pixels.dtype.name
    assert str(tensor.dtype) == f"torch.{kind if hasattr(torch, kind) else WIDER[kind]}"  # torch before 2.3 lacks some
    assert as_array(tensor).tolist() == case.pixels.tolist()


def test_a_float_of_a_16_bit_image_is_its_value_by_65535():
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    for data in (png(values, 16, GRAY), saved(values, "TIFF")):
        assert np.array_equal(decoded(data, "l"), values.astype("f4") / np.float32(65535))
        assert np.array_equal(decoded(data, "l8"), values >> 8)


def test_a_class_mask_with_a_palette_keeps_its_class_ids():
    data = saved(VOC, "PNG")
    assert decoded(data, "l8").tolist() == [[0, 38, 75, 254]]
    assert decoded(data, "pixels").tolist() == [[0, 1, 2, 255]]


@pytest.mark.parametrize(("channels", "colour"), [(1, GRAY), (2, GRAY_ALPHA), (3, RGB), (4, RGBA)])
@pytest.mark.parametrize("interlaced", [False, True])
def test_every_filter_of_png_in_16_bits(channels, colour, interlaced):
    rng = np.random.default_rng(channels)
    values = rng.integers(0, 65536, (11, 13, channels), dtype=np.uint16)
    values = values[:, :, 0] if channels == 1 else values
    data = png(values, 16, colour, filters=(0, 1, 2, 3, 4), interlaced=interlaced)
    assert np.array_equal(decoded(data, "pixels"), values)


@pytest.mark.parametrize("depth", [2, 4])
@pytest.mark.parametrize("interlaced", [False, True])
def test_every_filter_of_png_in_less_than_8_bits(depth, interlaced):
    values = np.random.default_rng(depth).integers(0, 1 << depth, (11, 13), dtype=np.uint8)
    data = png(values, depth, GRAY, filters=(0, 1, 2, 3, 4), interlaced=interlaced)
    assert np.array_equal(decoded(data, "pixels"), values)


arrays = st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8"])


@settings(max_examples=150, deadline=None)
@given(arrays, st.integers(1, 5), st.integers(1, 40), st.integers(1, 40), st.data())
def test_a_tiff_of_any_number_type_and_layout_gives_its_values(dtype, channels, height, width, data):
    rng = np.random.default_rng(height * 41 + width)
    values = rng.integers(0, 256, (height, width, channels * np.dtype(dtype).itemsize), dtype=np.uint8).view(dtype)
    values = values[:, :, 0] if channels == 1 else values
    options = {
        "order": data.draw(st.sampled_from("<>")),
        "planar": data.draw(st.booleans()),
        "rows": data.draw(st.integers(0, 9)),
        "tile": data.draw(st.sampled_from([None, (16, 16), (16, 32)])),
        "big": data.draw(st.booleans()),
        "deflate": data.draw(st.booleans()),
    }
    options["predictor"] = options["deflate"] and values.dtype.kind != "f" and data.draw(st.booleans())
    extra = {1: None, 2: 0, 3: None}.get(channels, 0)
    found = decoded(raw_tiff(values, 2 if channels >= 3 else 1, extra=extra, **options), "pixels")
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize("compression", ["tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "packbits", "lzma"])
def test_a_tiff_by_libtiff_gives_its_values(compression):
    rng = np.random.default_rng(0)
    for predictor, dtype in [*itertools.product((1, 2), ("u1", "u2", "i4", "f4")), (3, "f4")]:
        values = rng.integers(-1000, 1000, (50, 40)).astype(dtype)
        tags = {} if compression == "packbits" else {317: predictor}
        data = saved(values, "TIFF", compression=compression, tiffinfo=tags)
        assert np.array_equal(decoded(data, "pixels"), values)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_files_are_turned_as_pillow_turns_them(orientation):
    values = np.arange(6, dtype=np.uint16).reshape(2, 3) * 9000
    data = saved(values, "TIFF", tiffinfo={274: orientation})
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(decoded(data, "pixels"), np.array(image))
    assert np.array_equal(decoded(data, "l8"), decoded(data, "pixels") >> 8)


def test_no_other_files_are_turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("PNG", "WEBP", "JPEG"):
        data = saved(np.zeros((4, 6, 3), np.uint8), kind, exif=exif)
        assert decoded(data, "pixels").shape == decoded(data, "rgb8").shape == (4, 6, 3)


@pytest.mark.parametrize("values", [[-1, 5], [0, 65536], [0, 2**31 - 1]])
@pytest.mark.parametrize("spec", ["l8", "rgb", "pil", "torchrgb"])
def test_integers_without_a_scale_are_an_error_with_the_cure(values, spec):
    data = saved(row(values, "i4"), "TIFF")
    with pytest.raises(DecodingError, match=rf'{values[0]}\.\.{values[1]} .*"pixels"'):
        decoded(data, spec)
    assert decoded(data, "pixels").tolist() == [values]


@pytest.mark.parametrize("values", [[0.0, 80.5], [-1.0, 0.5], [0.0, float("nan")]])
@pytest.mark.parametrize("spec", ["l8", "rgb", "pil", "torchrgb"])
def test_floats_beyond_0_to_1_are_an_error_with_the_cure(values, spec):
    data = saved(row(values, "f4"), "TIFF")
    with pytest.raises(DecodingError, match='"pixels"'):
        decoded(data, spec)
    assert np.array_equal(decoded(data, "pixels"), row(values, "f4"), equal_nan=True)


def test_many_channels_are_pixels_but_no_picture():
    values = np.arange(30, dtype=np.uint16).reshape(2, 3, 5)
    data = raw_tiff(values, 4, extra=0)
    assert np.array_equal(decoded(data, "pixels"), values)
    with pytest.raises(DecodingError, match='"pixels"'):
        decoded(data, "rgb8")


def test_what_pillow_would_cut_to_8_bits_is_an_error():
    deep_sgi = saved(np.full((2, 2, 3), 200, np.uint8), "SGI", bpc=2)
    with pytest.raises(DecodingError, match="SGI"):
        decoded(deep_sgi, "pixels")
    assert decoded(deep_sgi, "rgb8").shape == (2, 2, 3)


def test_a_tiff_that_only_pillow_can_read_gives_its_high_bytes():
    data = raw_tiff(row(DEEP_RGB, "u2"), 2, more={279: ()})  # without the sizes of its strips
    assert decoded(data, "rgb8").tolist() == [[[p >> 8 for p in pixel] for pixel in DEEP_RGB]]
    with pytest.raises(DecodingError, match="TIFF"):
        decoded(data, "pixels")


def test_a_tiff_of_12_bits_has_4095_for_white():
    data = raw_tiff(row([0x00, 0x01, 0x23, 0xFF, 0xF8, 0x00], "u1"), 1, more={256: (4,), 258: (12,)})
    assert decoded(data, "pixels").tolist() == [[0, 0x123, 0xFFF, 0x800]]
    assert decoded(data, "l").tolist() == [[np.float32(v) / np.float32(4095) for v in (0, 0x123, 0xFFF, 0x800)]]
    assert decoded(data, "l8").tolist() == [[0, 0x12, 0xFF, 0x80]]


def test_a_jpeg_2000_of_fewer_bits_is_not_scaled(monkeypatch):
    data = saved(np.full((4, 4), 0x1230, np.uint16), "JPEG2000")
    monkeypatch.setitem(stored._DEPTHS, "JPEG2000", lambda data: 12)  # Pillow shifts such values to 16 bits
    assert set(decoded(data, "pixels").reshape(-1)) == {0x123}
    assert decoded(data, "l")[0, 0] == np.float32(0x123) / np.float32(4095)


def test_the_bits_of_jpeg_2000_files_are_read():
    assert stored._depth_of_jpeg2000(saved(np.zeros((4, 4), np.uint16), "JPEG2000")) == 16
    assert stored._depth_of_jpeg2000(saved(np.zeros((4, 4, 3), np.uint8), "JPEG2000", no_jp2=True)) == 8


def test_a_pil_image_of_16_bits_keeps_what_pillow_says_of_it():
    profile = Image.new("I;16", (2, 1))
    data = saved(profile, "PNG", icc_profile=b"profile", dpi=(300, 300))
    for spec in ("pil", "pill", "pilrgba"):
        info = decoded(data, spec).info
        assert info["icc_profile"] == b"profile"
        assert round(info["dpi"][0]) == 300


@pytest.mark.parametrize(("depth", "colour"), [(16, RGB), (16, GRAY_ALPHA), (16, GRAY), (4, GRAY)])
def test_a_cut_png_is_an_error(depth, colour):
    shape = (20, 30, CHANNELS[colour]) if CHANNELS[colour] > 1 else (20, 30)
    data = png(np.random.default_rng(0).integers(0, 1 << depth, shape), depth, colour)
    for cut, spec in itertools.product((20, 30, 60, len(data) // 2), ("pixels", "l8", "rgb", "pil")):
        with pytest.raises((OSError, SyntaxError), match=r"."):
            decoded(data[:cut], spec)


def test_a_png_with_a_wrong_checksum_is_an_error():
    data = bytearray(png([DEEP_LA], 16, GRAY_ALPHA))
    data[30] ^= 1
    with pytest.raises((OSError, SyntaxError), match=r"."):
        decoded(bytes(data), "pixels")


@pytest.mark.parametrize(
    "data",
    [
        b"P5 3 1 65535\n\0\1\0\1\0",
        b"P6 3 1 1023\n\0\1",
        b"P2 3 1 1023\n0 1",
        b"P5 1 1 1023\n\xff\xff",
        b"P2 2 1 7\n1 x ",
        b"P2 2 1 1023\n1 102400000 ",
        b"P2 2 1 1023\n1 -5 ",
    ],
)
def test_a_bad_pgm_is_an_error(data):
    with pytest.raises((OSError, ValueError), match=r"."):
        decoded(data, "pixels")


@pytest.mark.filterwarnings("ignore")  # Pillow's, about damaged files
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.booleans(), st.sampled_from(["pixels", "l8", "rgb"]))
def test_any_tags_of_a_tiff_give_a_value_or_an_error(noise, behind, spec):
    data = bytearray(raw_tiff(row(DEEP_RGB, "u2"), 2))
    place = len(data) - 150 if behind else 8
    data[place : place + len(noise)] = noise
    for content in (bytes(data), b"II*\0\x08\0\0\0" + noise):
        try:
            decoded(content, spec)
        except (
            OSError,
            ValueError,
            SyntaxError,
            DecodingError,
            struct.error,
            MemoryError,
            Image.DecompressionBombError,
        ):
            continue


def test_a_tiff_that_claims_to_be_enormous_is_refused():
    data = raw_tiff(row(DEEP_RGB, "u2"), 2, more={256: (60_000,), 257: (60_000,)})
    for spec in ("pixels", "rgb8"):
        with pytest.raises(Image.DecompressionBombError):
            decoded(data, spec)


def test_a_cut_tiff_has_no_header():
    data = raw_tiff(row(DEEP_RGB, "u2"), 2)
    assert tiff.header(data) is not None
    assert tiff.header(data[:6]) is tiff.header(data[:40]) is tiff.header(b"II+") is None
