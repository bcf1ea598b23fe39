"""A stream in windows: nothing is lost between them, and an end too early is an error."""

from __future__ import annotations

import io

import pytest

from webdataset.errors import ShardError
from webdataset.tar.cursor import Cursor


class Trickle:
    """A stream that returns at most `step` bytes at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        self._file = io.BytesIO(data)
        self._step = step

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self._step))


@pytest.mark.parametrize("step", [1, 3, 100])
def test_what_is_taken_over_windows_is_the_stream(step: int) -> None:
    cursor = Cursor(Trickle(b"abcdefghij", step))
    assert cursor.fill(4)
    assert (cursor.take(2), cursor.peek(5), cursor.skip(3), cursor.take(9)) == (b"ab", b"cdefg", 3, b"fghij")
    assert (cursor.offset, cursor.fill(4)) == (10, False)


def test_padding_is_passed_over_before_the_next_window() -> None:
    cursor = Cursor(io.BytesIO(b"....abc"))
    cursor.pad = 4
    assert cursor.fill(2)
    assert (cursor.take(3), cursor.offset) == (b"abc", 7)


def test_padding_that_is_missing_is_an_error_with_its_place() -> None:
    cursor = Cursor(io.BytesIO(b".."))
    cursor.pad = 4
    with pytest.raises(ShardError, match="padding") as caught:
        cursor.fill(2)
    assert caught.value.offset == 2


def test_any_buffer_may_be_read() -> None:
    class Stream:
        def read(self, _: int) -> bytearray:
            return bytearray(b"ab")

    assert Cursor(Stream()).take(2) == b"ab"
