"""The values that an image file stores, before any conversion; and pictures and floats of the deep ones.

An image is *deep* if 8 bits per channel do not hold it: 16 bits, 32-bit numbers, floats.
"""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.packages import package
from webdataset.errors import DecodingError

from . import png, pnm, tiff
from .compression import check_decoded, gunzip_bounded
from .imageheaders import check_scans, tagged_parts

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    Array = np.ndarray[Any, Any]

# the bits that a mode of Pillow holds, if not 8
_HELD = {"I;16": 16, "I;16L": 16, "I;16B": 16, "I;16N": 16, "I": 32, "F": 32}
_AS_STORED = ("1", "P", "PA", "I", "F")  # modes whose values Pillow never scales
DEEP_MODES = tuple(_HELD)
PICTURES = ("L", "LA", "RGB", "RGBA", "CMYK")
LUMA = (0.299, 0.587, 0.114)  # ITU-R 601-2, as Pillow weighs colours
JPEGS = ("JPEG", "MPO", "BLP")  # formats of Pillow that hold one
BLOCK = 1 << 20
"""Bytes of values that are converted at once."""
CURE = 'decode it with "pixels", which returns the stored values'


class Stored(NamedTuple):
    """The values of an image, and what they mean."""

    pixels: Array
    """H x W or H x W x C."""
    layout: str
    """The channels in Pillow's words: L, LA, RGBA, CMYK, P; a small `a` is an alpha that colours were multiplied by,
    an X a channel without a meaning."""
    white: int | None = None
    """The largest value; None if the file does not say."""
    key: Any = None
    """The value or colour that stands for "transparent"."""


def pillow() -> ModuleType:
    """Pillow, or what to install."""
    return package("PIL.Image", extra="image", purpose="for images")


def opened(data: bytes) -> Image:
    """The file in Pillow, nothing decoded yet."""
    for tagged in (data, *tagged_parts(data)):
        tiff.check_tags(tagged)
    image = pillow().open(io.BytesIO(data))
    if image.format == "EPS":  # Pillow would hand the data to a PostScript interpreter
        image.close()
        raise DecodingError("PostScript is a program, which is not run; store a picture of it")
    if image.format in JPEGS:
        check_scans(data, in_pieces=image.format == "BLP")
    for tile in image.tile:
        if tile[0] == "fits_gzip":  # Pillow expands all of it, however small the picture is
            gunzip_bounded(data[tile[2] :])
    return image


def stored_image(data: bytes) -> Stored:
    """The values in the file: palette indices, all bits, channels as they are."""
    found = _of_tiff(data) or _of_pnm(data)
    if found is None:
        with opened(data) as image:
            found = _of_png(data, image) or _of_pillow(data, image)
    return found


def misread_by_pillow(data: bytes) -> bool:
    """Whether the beginning of the file says that Pillow converts it wrongly; of other files Pillow's mode says it."""
    if data[:8] == png.SIGNATURE:
        kind = png.header(data)
        return kind is not None and (kind.depth == 16 or (kind.depth < 8 and png.has_key(data, kind)))
    if data[:2] in (b"II", b"MM"):
        of_tiff = tiff.header(data)
        return of_tiff is not None and of_tiff.bits > 8 and of_tiff.is_plain
    of_pnm = pnm.header(data) if data[:1] == b"P" else None
    return of_pnm is not None and of_pnm.maximum > 255


def deep_picture(data: bytes, mode: str) -> Image:
    """A deep image as a Pillow image of 8 bits per channel: the high bytes."""
    import numpy as np

    kind = png.header(data)
    if kind is not None and png.has_high_bytes(data, kind):
        with opened(data) as image:
            return image.convert(mode.upper())
    stored = stored_image(data)
    height, width = stored.pixels.shape[:2]
    picture = None
    for first, pixels, white, layout in _picture_values(stored):
        high = pixels * np.float32(255) if pixels.dtype.kind == "f" else pixels.astype(np.uint32) * 65535 // white >> 8
        part = pillow().frombytes(layout, (width, len(pixels)), high.astype(np.uint8).tobytes())
        picture = pillow().new(layout, (width, height)) if picture is None else picture
        picture.paste(part, (0, first))
    assert picture is not None
    picture.info = _info(data)
    return picture if picture.mode == mode.upper() else picture.convert(mode.upper())


def deep_floats(data: bytes, mode: str) -> Array:
    """A deep image as floats in 0..1: the values, divided by the largest there can be."""
    import numpy as np

    stored = stored_image(data)
    shape = (*stored.pixels.shape[:2], *(() if mode == "l" else (len(mode),)))
    check_decoded(stored.pixels.nbytes + 2 * 4 * math.prod(shape))  # tensors are copied, to have channels first
    found = np.empty(shape, np.float32)
    for first, pixels, white, layout in _picture_values(stored):
        found[first : first + len(pixels)] = _as_floats(pixels, white, layout, mode)
    return found


def _as_floats(pixels: Array, white: int, layout: str, mode: str) -> Array:
    import numpy as np

    values = np.divide(pixels, np.float32(white), dtype=np.float32, casting="unsafe")
    alpha = values[:, :, -1:] if layout[-1] == "A" else np.ones((*values.shape[:2], 1), np.float32)
    colours = values[:, :, :3]
    if layout == "CMYK":
        colours = (1 - colours) * (1 - values[:, :, 3:])
    if mode == "l":
        return colours @ np.array(LUMA, np.float32) if layout[0] != "L" else colours[:, :, 0]
    colours = colours if layout[0] != "L" else np.repeat(colours[:, :, :1], 3, axis=2)
    return colours if mode == "rgb" else np.concatenate([colours, alpha], axis=2)


def _picture_values(stored: Stored) -> Iterator[tuple[int, Array, int, str]]:
    """Some rows at a time: the number of the first, values H x W x C, the largest that there can be, and the layout,
    one of PICTURES."""
    layout = stored.layout.partition("X")[0]
    pixels = stored.pixels if stored.pixels.ndim == 3 else stored.pixels[:, :, None]
    if layout.upper() not in PICTURES:
        raise DecodingError(f"an image of {pixels.shape[2]} {pixels.dtype} channels is no picture", hint=CURE)
    white = stored.white or _white_of(pixels)
    rows = max(1, BLOCK // (pixels.nbytes // len(pixels)))
    for first in range(0, len(pixels), rows):
        some = pixels[first : first + rows, :, : len(layout)]
        yield first, *_picture_rows(some, white, layout, stored.key)


def _picture_rows(pixels: Array, white: int, layout: str, key: object) -> tuple[Array, int, str]:
    import numpy as np

    if pixels.dtype.kind == "f":
        pixels = np.clip(pixels, 0, 1).astype(np.float32)
    if layout[-1] == "a":
        pixels = _divided_by_alpha(pixels, white)
    if key is not None:
        alpha = (pixels != np.array(key)).any(axis=2, keepdims=True) * pixels.dtype.type(white)
        return np.concatenate([pixels, alpha], axis=2), white, layout + "A"
    return pixels, white, layout.upper()


def _white_of(pixels: Array) -> int:
    """The largest value there can be in a file that does not say: floats lie in 0..1, integers have 16 bits."""
    low, high = (-0.001, 1.001) if pixels.dtype.kind == "f" else (0, 65535)
    least, most = pixels.min(), pixels.max()
    if not (least >= low and most <= high):
        raise DecodingError(
            f"{pixels.dtype} values of {least}..{most} have no scale, only those in 0..{int(high)}", hint=CURE
        )
    return int(high)


def _divided_by_alpha(pixels: Array, white: int) -> Array:
    import numpy as np

    alpha = pixels[:, :, -1:].astype(np.float64)
    colours = np.divide(pixels[:, :, :-1] * float(white), alpha, out=np.zeros(pixels[:, :, :-1].shape), where=alpha > 0)
    return np.concatenate([np.clip(colours, 0, white).astype(pixels.dtype), pixels[:, :, -1:]], axis=2)


def _info(data: bytes) -> dict[str, Any]:
    """Pillow's facts about the file: profile, resolution; not transparency, which is in the pixels by now."""
    with contextlib.suppress(OSError), opened(data) as image:
        return {name: value for name, value in image.info.items() if name != "transparency"}
    return {}  # a TIFF that Pillow alone cannot read


def _of_tiff(data: bytes) -> Stored | None:
    kind = tiff.header(data)
    if kind is None or not kind.is_plain:
        return None
    pixels = tiff.stored_pixels(data, kind, pillow())
    return Stored(pixels, kind.layout, (1 << kind.bits) - 1 if pixels.dtype.kind == "u" and kind.bits < 32 else None)


def _of_pnm(data: bytes) -> Stored | None:
    kind = pnm.header(data) if data[:1] == b"P" else None
    if kind is None or kind.maximum == 255:
        return None
    return Stored(pnm.stored_pixels(data, kind), "RGB" if len(kind.shape) == 3 else "L", kind.maximum)


def _of_png(data: bytes, image: Image) -> Stored | None:
    kind = png.header(data)
    if kind is None or image.format != "PNG":
        return None
    pixels = png.stored_pixels(data, kind, pillow())
    if pixels is None:
        pixels = array_of(image)
        if kind.depth == 16:  # older versions of Pillow open them with 32 bits
            pixels = pixels.astype("u2")
    key = image.info.get("transparency") if png.has_key(data, kind) else None
    if kind.depth == 1 and key is not None:
        key = key > 0  # 1 or 255, by the version of Pillow
    return Stored(pixels, png.LAYOUTS[kind.colour], (1 << kind.depth) - 1, key)


def _of_pillow(data: bytes, image: Image) -> Stored:
    held = _HELD.get(image.mode, 8)
    probe = None if image.mode in _AS_STORED else _DEPTHS.get(image.format)
    depth = held if probe is None else probe(data)
    if depth > held:
        raise DecodingError(
            f"Pillow reads {held} of the {depth} bits of this {image.format}",
            hint='store it as png or tiff; "rgb8" and the like give the high bytes',
        )
    pixels = array_of(image)
    if image.format == "JPEG2000":
        pixels = pixels >> held - depth
    elif depth < held == 8:  # TIFF of 2 or 4 bits
        pixels = pixels // (255 // ((1 << depth) - 1))
    white = None if image.mode in ("I", "F") else (1 << depth) - 1
    return Stored(pixels, "L" if image.mode in _HELD else image.mode, white)


def array_of(image: object) -> Array:
    """The values of a Pillow image, in the machine's byte order."""
    import numpy as np

    pixels = np.array(image)
    return pixels if pixels.dtype.isnative else pixels.astype(pixels.dtype.newbyteorder("="))


def _depth_of_jpeg2000(data: bytes) -> int:
    start = data.find(b"\xff\x4f\xff\x51")
    return 8 if start < 0 else (data[start + 42] & 0x7F) + 1


def _depth_of_avif(data: bytes) -> int:
    start = data.find(b"av1C")
    flags = data[start + 6] if start >= 0 else 0
    return 8 + 2 * (flags >> 6 & 1) + 2 * (flags >> 5 & 1)


def _depth_of_tiff(data: bytes) -> int:
    kind = tiff.header(data)
    return 8 if kind is None else kind.bits


# formats of which Pillow may return other values than the file has: the bits per channel in the file
_DEPTHS: dict[str, Callable[[bytes], int]] = {
    "TIFF": _depth_of_tiff,
    "JPEG2000": _depth_of_jpeg2000,
    "AVIF": _depth_of_avif,
    "SGI": lambda data: 8 * data[3],
}
