"""PGM and PPM files whose white is not 255."""

from __future__ import annotations

import numpy as np
import pytest

import webdataset as wds
from webdataset.errors import DecodingError

decoder = wds.autodecode.Decoder(["pixels"])


def pixels(data: bytes) -> np.ndarray:
    return decoder({"__key__": "a", "pgm": data})["pgm"]


def test_a_plain_file_of_many_numbers_has_them_all():
    values = np.arange(600 * 1000).reshape(600, 1000) % 60_000
    text = b"P2\n1000 600\n60000\n" + b"\n".join(b" ".join(b"%d" % value for value in row) for row in values.tolist())
    assert len(text) > 3 << 20  # it is read in pieces
    assert (pixels(text) == values).all()
    assert (pixels(text.replace(b"\n", b" # a comment 7\n")) == values).all()


def test_what_follows_the_numbers_does_not_count():
    assert pixels(b"P2 2 1 9 1 2 300 x").tolist() == [[1, 2]]


@pytest.mark.parametrize("numbers", [b"1", b"1 10", b"1 -1", b"1 x"])
def test_too_few_numbers_and_those_out_of_range_are_an_error(numbers):
    with pytest.raises(DecodingError):
        pixels(b"P2 2 1 9 " + numbers)


def test_binary_numbers_are_read_in_place():
    assert pixels(b"P5 2 1 511 \x01\x02\x00\x03").tolist() == [[258, 3]]
    with pytest.raises(DecodingError, match="truncated"):
        pixels(b"P5 2 1 511 \x01\x02\x00")
