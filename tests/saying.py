"""A server that answers every request with the same bytes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

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
