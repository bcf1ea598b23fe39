"""What headers of images say, compared with Pillow."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import webdataset as wds
from webdataset.codecs.imageheaders import ImageHeader, image_header

MODES = {"JPEG": ["L", "RGB", "CMYK"], "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"], "GIF": ["P"]}
MODES |= {"BMP": ["RGB"], "WEBP": ["RGB", "RGBA"], "PPM": ["1", "L", "RGB"]}
LOSSLESS = {"lossless": True}
CASES: list[tuple[str, str, dict[str, bool]]] = [(kind, mode, {}) for kind, modes in MODES.items() for mode in modes]
CASES += [("JPEG", "RGB", {"progressive": True}), ("WEBP", "RGB", LOSSLESS), ("WEBP", "RGBA", LOSSLESS)]
EARLIER = {("PNG", "I;16"): "I", ("GIF", "P"): "L"}
"""The modes in which Pillow 10 opens some files."""
STARTS = [b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"RIFF....WEBP", b"P6", b""]


@pytest.mark.parametrize(("kind", "mode", "options"), CASES)
def test_the_header_says_what_pillow_says(kind: str, mode: str, options: dict[str, bool]) -> None:
    stream = io.BytesIO()
    Image.new(mode, (37, 21)).save(stream, kind, **options)
    with Image.open(io.BytesIO(stream.getvalue())) as opened:
        said = mode if opened.mode == EARLIER.get((kind, mode)) else opened.mode
        assert image_header(stream.getvalue()) == ImageHeader(kind, *opened.size, said)


def test_it_reads_well() -> None:
    assert str(ImageHeader("JPEG", 128, 64, "RGB")) == "JPEG 128x64 RGB"


@given(st.sampled_from(STARTS), st.binary(max_size=60))
def test_anything_else_has_none_or_one_but_never_an_error(start: bytes, rest: bytes) -> None:
    assert isinstance(image_header(start + rest), ImageHeader | None)


def test_what_looks_like_scans_inside_a_comment_is_not_counted():
    stream = io.BytesIO()
    Image.new("RGB", (20, 10), "red").save(stream, "JPEG", progressive=True, comment=b"\xff\xda" * 1000)
    assert wds.imagehandler("rgb8")(".jpg", stream.getvalue()).shape == (10, 20, 3)
