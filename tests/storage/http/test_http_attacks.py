"""Servers that answer with nonsense: each is one error of ours, soon, and never half an object."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from webdataset.errors import StorageError
from webdataset.gopen import gopen

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextlib.contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """A server that says just this to whatever it is asked, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, answer), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/a.tar"
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)


def _serve(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(answer)


def read(answer: bytes) -> bytes:
    with saying(answer) as url, gopen(url, storage_options={"patience": 0, "retries": 0}) as stream:
        return bytes(stream.read())


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
