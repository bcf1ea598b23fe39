"""Pictures for terminals, read back."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from PIL import Image

from webdataset.tools.inspect.pictures import drawn, half_blocks, sixel


def picture(width: int = 40, height: int = 30) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def test_kitty_gets_a_png_in_pieces_of_four_kilobytes() -> None:
    shown = drawn(picture(100, 80), "kitty")
    pieces = re.findall(r"\x1b_G(.*?);(.*?)\x1b\\", shown)
    assert [control[-3:] for control, _ in pieces] == ["m=1"] * (len(pieces) - 1) + ["m=0"]
    assert max(len(data) for _, data in pieces) <= 4096
    assert Image.open(io.BytesIO(base64.b64decode("".join(data for _, data in pieces)))).size == (100, 80)


def test_half_blocks_show_two_rows_a_line() -> None:
    pixels = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(4, 2, 3)
    lines = half_blocks(pixels).split("\n")
    assert len(lines) == 2
    assert lines[0].startswith("\x1b[38;2;0;1;2;48;2;6;7;8m▀")


def test_an_odd_row_stands_alone() -> None:
    assert half_blocks(np.zeros((3, 1, 3), np.uint8)).count("▀") == 2


def test_sixels_give_the_pixels_back() -> None:
    steps = np.array([0, 51, 102, 153, 204, 255], np.uint8)
    pixels = steps[np.random.default_rng(0).integers(0, 6, (8, 5, 3))]
    assert np.array_equal(read_sixel(sixel(pixels), 8, 5), pixels)


def read_sixel(text: str, height: int, width: int) -> object:
    """The pixels that a terminal would draw."""
    body = text.removeprefix(f'\x1bPq"1;1;{width};{height}').removesuffix("\x1b\\")
    colours: dict[int, tuple[int, ...]] = {}
    pixels = np.zeros((height, width, 3), np.uint8)
    row = column = 0
    colour = 0
    for word in re.findall(r"#\d+(?:;2;\d+;\d+;\d+)?|[?-~]|\$|-", body):
        if word[0] == "#" and ";" in word:
            number, _, *channels = map(int, word[1:].split(";"))
            colours[number] = tuple(round(channel * 255 / 100) for channel in channels)
        elif word[0] == "#":
            colour = int(word[1:])
        elif word == "$":
            column = 0
        elif word == "-":
            row, column = row + 6, 0
        else:
            for bit in range(6):
                if (ord(word) - 63) >> bit & 1:
                    pixels[row + bit, column] = colours[colour]
            column += 1
    return pixels
