"""Servers that answer with nonsense: each is one error of ours, soon, and never half an object."""

from __future__ import annotations

import pytest

from saying import CHUNKED, OK, read
from webdataset.errors import StorageError

ANSWERS: dict[str, bytes] = {
    "a length of 5,000 digits": OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n" + b"x" * 10,
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 10\r\n\r\n0123456789",
    "a negative length": OK + b"Content-Length: -5\r\n\r\n0123456789",
    "a length that is no number": OK + b"Content-Length: five\r\n\r\n0123456789",
    "a chunk of a negative size": CHUNKED + b"-5\r\n01234\r\n0\r\n\r\n",
    "a chunk of an odd size": CHUNKED + b"0x5\r\n01234\r\n0\r\n\r\n",
    "a chunk without a size": CHUNKED + b"\r\n01234\r\n0\r\n\r\n",
    "endless trailers": CHUNKED + b"5\r\n01234\r\n0\r\n" + b"X: y\r\n" * 5000,
    "a carriage return in an ETag": OK + b'Content-Length: 5\r\nETag: "a\rb"\r\n\r\n01234',
    "a NUL in an ETag": OK + b'Content-Length: 5\r\nETag: "a\0b"\r\n\r\n01234',
    "a redirect to half an address": b"HTTP/1.1 302 Found\r\nLocation: http://[::1/\r\nContent-Length: 0\r\n\r\n",
    "a redirect to a name that is none": b"HTTP/1.1 302 Found\r\nLocation: http://"
    + b"a" * 64
    + b".example/\r\nContent-Length: 0\r\n\r\n",
    "a range of 5,000 digits": b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-"
    + b"9" * 5000
    + b"/*\r\nContent-Length: five\r\n\r\n01234",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_that_makes_no_sense_is_one_error_of_ours(name: str) -> None:
    with pytest.raises(StorageError) as caught:
        read(ANSWERS[name])
    assert str(caught.value).isprintable()


def test_the_same_length_twice_is_a_length() -> None:
    assert read(OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n01234") == b"01234"


def test_chunks_with_extensions_and_trailers_are_read() -> None:
    assert read(CHUNKED + b"5;a=b\r\n01234\r\n5 \r\n56789\r\n0\r\nX: y\r\n\r\n") == b"0123456789"
