"""A web server on loopback that does what a test says."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

CERTIFICATE = str(Path(__file__).parent / "localhost.pem")


class Server:
    """Routes are functions of the request handler; every request's path and headers are kept."""

    scheme = "http"

    def __init__(self) -> None:
        self.routes: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.release = threading.Event()  # ends every stall
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.close_connection = True
                route = outer.routes.get(self.path.split("?")[0])
                if route is None:
                    self.send_error(404)
                else:
                    route(self)

            def log_message(self, *args: object) -> None:
                pass

            def handle(self) -> None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    super().handle()

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def close(self) -> None:
        self.release.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()

    # -- answers -----------------------------------------------------------------------------------

    def whole(self, path: str, data: bytes, **headers: str) -> str:
        """A file."""
        return self.always(path, 200, data, **headers)

    def always(self, path: str, status: int, data: bytes, **headers: str) -> str:
        """The same answer to every request."""
        self.routes[path] = lambda request: answer(request, status, data, headers)
        return self.url(path)

    def cut(self, path: str, data: bytes, cuts: list[int], *, ignore_range: bool = False, **headers: str) -> str:
        """A file whose first connections break after so many bytes each; ranges are honoured."""
        left = list(cuts)

        def route(request: BaseHTTPRequestHandler) -> None:
            start, status, more = 0, 200, dict(headers)
            asked = request.headers.get("Range")
            etag = headers.get("ETag")
            if asked and not ignore_range and request.headers.get("If-Range") == etag:
                start, status = int(asked.removeprefix("bytes=").removesuffix("-")), 206
                more["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            body = data[start:]
            answer(request, status, body, more, sent=left.pop(0) if left else len(body))

        self.routes[path] = route
        return self.url(path)

    def parts(self, path: str, data: bytes, **headers: str) -> str:
        """A file of which parts can be asked for."""

        def route(request: BaseHTTPRequestHandler) -> None:
            asked = request.headers.get("Range")
            first, _, last = (asked or "bytes=0-").removeprefix("bytes=").partition("-")
            part = data[int(first) : int(last or len(data) - 1) + 1]
            more = {"ETag": '"1"', "Accept-Ranges": "bytes"} | headers
            if asked:
                more["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
            answer(request, 206 if asked else 200, part, more)

        self.routes[path] = route
        return self.url(path)

    def status(self, path: str, *statuses: int, then: bytes = b"", **headers: str) -> str:
        """Error answers in this order, the last one for ever, unless data follows."""
        left = list(statuses)

        def route(request: BaseHTTPRequestHandler) -> None:
            if not left:
                answer(request, 200, then, {})
            else:
                status = left.pop(0) if len(left) > 1 or then else left[0]
                answer(request, status, b"no", headers)

        self.routes[path] = route
        return self.url(path)

    def redirect(self, path: str, target: str, status: int = 302) -> str:
        self.routes[path] = lambda request: answer(request, status, b"", {"Location": target})
        return self.url(path)

    def stall(self, path: str, data: bytes, after: int) -> str:
        def route(request: BaseHTTPRequestHandler) -> None:
            answer(request, 200, data, {}, sent=after)
            self.release.wait()

        self.routes[path] = route
        return self.url(path)


def answer(
    request: BaseHTTPRequestHandler, status: int, data: bytes, headers: dict[str, str], sent: int | None = None
) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data if sent is None else data[:sent])
    request.wfile.flush()


class TlsServer(Server):
    """The same behind a certificate that nobody has signed, for localhost and 127.0.0.1."""

    scheme = "https"

    def __init__(self) -> None:
        super().__init__()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)


@pytest.fixture
def tls_server() -> Iterator[TlsServer]:
    found = TlsServer()
    yield found
    found.close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def other_server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()
