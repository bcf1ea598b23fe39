"""PNG beyond what Pillow holds: 16 bits a channel, fewer than 8, written and read with every value."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from webdataset.codecs import png


def saved(pixels: np.ndarray, mode: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels, mode).save(file, "PNG", **options)
    return file.getvalue()


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_16_bits_in_colour_come_back(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 65536, (5, 7, channels), np.uint16)
    data = png.encode_deep(pixels)
    header = png.header(data)
    assert header is not None
    assert header.depth == 16
    found = png.stored_pixels(data, header, Image)
    assert found is not None
    assert (found == pixels).all()


def test_16_bits_of_gray_are_pillows() -> None:
    pixels = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000
    with Image.open(io.BytesIO(png.encode_deep(pixels))) as image:
        assert (np.asarray(image).astype(np.uint16) == pixels).all()


def test_a_transparent_value_is_noticed() -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    plain, keyed = saved(pixels, "RGB"), saved(pixels, "RGB", transparency=(0, 0, 0))
    kind = png.PngHeader(8, png.RGB, (2, 2))
    assert (png.header(plain), png.has_key(plain, kind), png.has_key(keyed, kind)) == (kind, False, True)


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a" + bytes(40)])
def test_other_files_have_no_header(data: bytes) -> None:
    assert png.header(data) is None
