"""The server of the view: to this machine only, with a token in every address, and read-only.

- It listens on a loopback address, and answers requests only if they name one (`Host`), so that no other site that a
  browser has open can reach it by a name of its own.
- Every path begins with a token, drawn at random for each start. Who has not shown it may be silent for moments only,
  and makes room for who comes later.
- Files of the page are a fixed table, samples are numbers, fields are looked up in their sample: there are no paths.
- The policy of the page allows its own script and style and nothing else; nothing of the data is ever sent as markup,
  pictures are encoded again, and sound and video have a type of our own table.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from webdataset.base.stops import Thread
from webdataset.errors import WebDatasetError

from .fields import told

SCRIPTS = ("app", "parts", "wall", "sample", "statistics", "shards", "problems", "plan", "live")
PAGE = {
    "": ("index.html", "text/html; charset=utf-8"),
    **{f"{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in SCRIPTS},
    "app.css": ("app.css", "text/css; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DATA_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
HOSTS = frozenset(["127.0.0.1", "localhost", "[::1]"])
STRANGERS = 64
"""Connections that have not shown the token; with one more, the oldest ends."""
STRANGERS_TIMEOUT, TIMEOUT = 5.0, 60.0
"""Seconds of silence after which a connection ends, before it has shown the token and afterwards."""
PIECE = 1 << 20


class Body(NamedTuple):
    """What is sent back: bytes, or a part of something larger that is read in pieces."""

    type: str
    data: bytes = b""
    size: int = -1
    """Of all, where `read` reads it."""
    read: Callable[[int, int], bytes] | None = None
    name: str = ""
    """Under which it is to be saved, rather than shown."""
    lasts: bool = False
    """Whether the browser may keep it for a while."""


Answer = Callable[[dict[str, str]], Body]


class RequestError(ValueError):
    """A request that cannot be answered; the message says why."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class ViewServer:
    """Serves a table of answers under a token.

    >>> server = ViewServer({"api/hello": lambda asked: as_json({"hello": asked.get("name", "")})})
    >>> server.url.startswith("http://127.0.0.1:")
    True
    >>> server.close()
    """

    def __init__(self, answers: dict[str, Answer], *, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.answers = answers
        self._server.token = self.token
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="webdataset-view", daemon=True)

    @property
    def port(self) -> int:
        """The port, which the system has chosen unless one was given."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://127.0.0.1:{self.port}/{self.token}/"

    def start(self) -> None:
        """Answer requests, in threads of their own."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def as_json(value: object) -> Body:
    """A value as JSON; numbers that JSON does not have are null."""
    return Body("application/json", json.dumps(_finite(value), allow_nan=False).encode())


def _finite(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    answers: dict[str, Answer]
    token: str

    def __init__(self, *args: Any) -> None:
        self._strangers: dict[Any, None] = {}
        self._lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        with self._lock:
            self._strangers[request] = None
            if len(self._strangers) > STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread hears of it, and closes it
        super().process_request(request, client_address)

    def let_in(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Take note that a connection has shown the token, or has ended."""
        with self._lock:
            self._strangers.pop(request, None)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        self.let_in(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle of an answer is nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    server_version = "webdataset"
    sys_version = ""
    timeout = STRANGERS_TIMEOUT

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_: object) -> None:
        """Nobody reads it, and the token is in it."""

    def _answer(self, *, with_body: bool) -> None:
        try:
            body = self._body()
            status = 200
        except RequestError as error:
            status, body = error.status, as_json({"error": str(error)})
        except (WebDatasetError, OSError, ValueError, KeyError, IndexError) as error:
            status, body = 422, as_json({"error": told(error)})
        except Exception as error:
            status, body = 500, as_json({"error": f"{type(error).__name__}: {told(error)}"})
        with contextlib.suppress(ConnectionError, TimeoutError, socket.timeout):
            self._send(status, body, with_body=with_body)

    def _body(self) -> Body:
        self._check_host()
        target = urlsplit(self.path)
        token, _, path = target.path.lstrip("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self.close_connection = True
            raise RequestError("open the address that `wl view` printed: its token is missing or of another start", 403)
        self.server.let_in(self.connection)
        self.connection.settimeout(TIMEOUT)
        if self._is_of_another_site() and not (path == "" and self.headers.get("Sec-Fetch-Dest") == "document"):
            raise RequestError("requests from other sites are refused", 403)
        if path in PAGE:
            name, kind = PAGE[path]
            return Body(kind, _static(name))
        answer = self.server.answers.get(path)
        if answer is None:
            raise RequestError("there is nothing here", 404)
        asked = {name: values[-1] for name, values in parse_qs(target.query, keep_blank_values=True).items()}
        return answer(asked)

    def _is_of_another_site(self) -> bool:
        """Whether a page of another site asks; one may lead to our page, as the file that a browser is started with."""
        return self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")

    def _check_host(self) -> None:
        """A name that somebody else makes mean this machine, to get at it through a browser, is refused."""
        hosts = self.headers.get_all("Host") or [""]
        name = hosts[0].rpartition(":")[0] if hosts[0].rpartition(":")[2].isdigit() else hosts[0]
        if len(hosts) != 1 or name.lower() not in HOSTS:
            raise RequestError("only requests to 127.0.0.1 or localhost are answered", 403)

    def _send(self, status: int, body: Body, *, with_body: bool) -> None:
        size = len(body.data) if body.read is None else body.size
        start, stop = 0, size
        if status == 200 and body.read is not None and (wanted := _range(self.headers.get("Range"), size)):
            start, stop = wanted
            status = 206 if start < stop else 416
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        page = body.type.startswith("text/html")
        self.send_header("Content-Security-Policy", POLICY if page else DATA_POLICY)
        self.send_header("Content-Type", body.type)
        self.send_header("Cache-Control", "private, max-age=600" if body.lasts and status < 300 else "no-store")
        if body.read is not None:
            self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        elif status == 416:
            self.send_header("Content-Range", f"bytes */{size}")
            start = stop = 0
        if body.name:
            self.send_header("Content-Disposition", f'attachment; filename="{body.name}"')
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if with_body:
            for piece in _pieces(body, start, stop):
                self.wfile.write(piece)


def _pieces(body: Body, start: int, stop: int) -> Iterator[bytes]:
    if body.read is None:
        yield body.data
        return
    while start < stop:
        piece = body.read(start, min(stop, start + PIECE))
        if not piece:
            raise ConnectionError("the data ended early")
        start += len(piece)
        yield piece


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """The part that a browser asks for; None for all, or for what is not understood.

    >>> _range("bytes=10-19", 100), _range("bytes=90-", 100), _range("bytes=-5", 100), _range("bytes=200-", 100)
    ((10, 20), (90, 100), (95, 100), (100, 100))
    """
    unit, _, wanted = (header or "").partition("=")
    first, dash, last = wanted.strip().partition("-")
    if unit.strip() != "bytes" or not dash or not (first + last).isdigit() or len(first + last) > 40:
        return None
    if not first:
        return max(0, size - int(last)), size
    return min(int(first), size), min(int(last) + 1 if last else size, size)


@cache
def _static(name: str) -> bytes:
    return files(__package__).joinpath("static", name).read_bytes()
