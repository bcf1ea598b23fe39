"""One line about a field."""

from __future__ import annotations

import gzip
import io
import re
import wave
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from webdataset.codecs import encode
from webdataset.tools.inspect.fieldtexts import field_text


def jpeg() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (128, 64)).save(stream, "JPEG")
    return stream.getvalue()


def sound() -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 24000))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("jpg", jpeg(), "JPEG 128x64 RGB, some bytes"),
        ("left.JPG", jpeg(), "JPEG 128x64 RGB, some bytes"),
        ("wav", sound(), "WAV 16,000 Hz mono, 1.5 s, 48.0 kB"),
        ("cls", b"7", "7"),
        ("txt", "ein Bär\n".encode(), "'ein Bär\\n'"),
        ("json", b'{"a": [1, 2]}', '{"a": [1, 2]}'),
        ("json", b'{"a": "' + b"x" * 100 + b'"}', '{"a": "xxxxxxxxxxxxxxxx... (1 entry)'),
        ("txt", b"y" * 1000, "'yyyyyyyyyyyyyyyyyyyyyy... (1,000 characters)"),
        ("npy", encode("npy", np.zeros((3, 4), np.float32)), "float32 3 x 4, 176 bytes"),
        ("bin", b"\0\1\2", "3 bytes: 00 01 02"),
        ("empty", b"", "0 bytes"),
        ("txt.gz", gzip.compress(b"hello", mtime=0), "'hello'"),
        ("jpg", b"not an image", "'not an image'"),
        ("cls", 7, "7"),
    ],
)
def test_a_field_is_told_in_a_line(name: str, value: Any, text: str) -> None:
    told = field_text(name, value, width=26)
    assert re.sub(r"RGB, \d+ bytes", "RGB, some bytes", told) == text


def test_a_value_that_cannot_be_decoded_says_why() -> None:
    assert field_text("json", b"{oh no").startswith("'{oh no' (")


@given(st.sampled_from(["json", "npy", "pyd", "cls", "jpg", "mp4", "wav", "x"]), st.binary(max_size=100))
def test_any_bytes_are_one_printable_line(name: str, data: bytes) -> None:
    text = field_text(name, data)
    assert text.isprintable()
    assert text
