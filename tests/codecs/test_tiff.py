"""TIFF headers and values, of files that Pillow wrote."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from webdataset.codecs import tiff


def saved(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, "TIFF", **options)
    return file.getvalue()


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "I", "F"])
def test_stored_values_are_those_that_were_written(mode: str, compression: str) -> None:
    channels = {"RGB": (3,), "RGBA": (4,)}.get(mode, ())
    kind = {"I": np.int32, "F": np.float32}.get(mode, np.uint8)
    pixels = np.arange(np.prod((5, 7, *channels))).reshape(5, 7, *channels).astype(kind)
    data = saved(Image.fromarray(pixels), compression=compression)
    header = tiff.header(data)
    assert header is not None
    assert header.is_plain
    found = tiff.stored_pixels(data, header, Image)
    assert found.dtype == pixels.dtype
    assert (found == pixels).all()


@pytest.mark.parametrize(("mode", "layout"), [("L", "L"), ("RGB", "RGB"), ("RGBA", "RGBA"), ("CMYK", "CMYK")])
def test_the_layout_names_the_channels(mode: str, layout: str) -> None:
    header = tiff.header(saved(Image.new(mode, (2, 2))))
    assert header is not None
    assert header.layout == layout


def test_jpeg_in_a_tiff_is_not_plain() -> None:
    header = tiff.header(saved(Image.new("RGB", (16, 16)), compression="jpeg"))
    assert header is not None
    assert not header.is_plain


@pytest.mark.parametrize("data", [b"", b"II", b"II*\0", b"MM\0*\0\0\xff\xff", b"II\x2b\0" + bytes(4), b"PK\3\4"])
def test_what_is_cut_or_no_tiff_has_no_header(data: bytes) -> None:
    assert tiff.header(data) is None
