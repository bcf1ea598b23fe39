"""Connections to web servers: through a proxy if there is one, over TLS, closed by any thread at any moment."""

from __future__ import annotations

import contextlib
import functools
import http.client
import io
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import SplitResult

from webdataset.base.settings import settings
from webdataset.errors import StorageError

from . import addresses
from .headers import MAX_LINE, MAX_LINES, HeaderFields, content_length, read_header, request_header

BODILESS = (204, 304)
# the attributes of http.client.HTTPResponse in Python 3.11 to 3.14; a test compares
FIELDS = frozenset(
    ["fp", "debuglevel", "headers", "msg", "version", "status", "reason", "chunked", "chunk_left", "length"]
    + ["will_close", "_method"]
)
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*[;\r\n]")
Watch = Callable[[socket.socket], None]


class ProxyDownError(OSError):
    """The proxy itself cannot be reached."""


def connection_to(
    parts: SplitResult, proxy: SplitResult | None, timeout: float, cafile: str | None, watch: Watch
) -> Connection:
    """A connection to the server of an address, not yet open; `watch(socket)` is called before anything is awaited."""
    host, port = parts.hostname or "", addresses.port_of(parts)
    via, via_port = (proxy.hostname or "", proxy.port or 8080) if proxy is not None else (host, port)
    if parts.scheme == "http":
        return Connection(via, via_port, timeout, watch, is_proxy=proxy is not None)
    tls = _tls_for(cafile)
    connection = _TlsConnection(via, via_port, timeout, watch, is_proxy=proxy is not None, name=host, tls=tls)
    if proxy is not None:
        connection.set_tunnel(host, port, headers=addresses.proxy_headers(proxy))
    return connection


def shut_down(sock: socket.socket) -> None:
    """End a connection also under a thread that waits for it."""
    # not SSLSocket's own shutdown, which takes away the object another thread is reading from
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Response(http.client.HTTPResponse):
    """A response whose header is complete: http.client accepts one that was cut before its Content-Length."""

    headers: Any
    msg: Any
    fp: Any = None  # an interrupt may come before it is set, and the response is closed nevertheless
    _method: str | None

    def begin(self) -> None:
        if self.headers is not None:
            return
        begin = self._begin if vars(self).keys() == FIELDS else self._begin_as_http_client
        begin(*read_header(self.fp))

    def _begin_as_http_client(self, status: int, reason: str, is_old: bool, headers: HeaderFields) -> None:
        """Let http.client read the complete header: a Python whose responses have other attributes sets them itself."""
        lines = [f"HTTP/1.{0 if is_old else 1} {status} {reason}", *map(": ".join, headers.items()), "", ""]
        body, self.fp = self.fp, io.BytesIO("\r\n".join(lines).encode("iso-8859-1"))
        try:
            super().begin()
        finally:
            self.fp = body
        self.headers = self.msg = headers

    def _begin(self, status: int, reason: str, is_old: bool, headers: HeaderFields) -> None:
        """Set the attributes as http.client does, in 21 instead of 92 microseconds."""
        self.code = self.status = status
        self.reason, self.version = reason, 10 if is_old else 11
        self.headers = self.msg = headers
        self.chunked = (headers.get("Transfer-Encoding") or "").lower() == "chunked"
        if self.chunked:
            self.chunk_left: int | None = None
        self.length = None if self.chunked else content_length(headers)
        if self.status in BODILESS or self.status < 200 or self._method == "HEAD":
            self.length = 0
        option = (headers.get("Connection") or "").lower()
        if is_old:
            option += (headers.get("Proxy-Connection") or "").lower()
        kept = "keep-alive" in option or headers.get("Keep-Alive") if is_old else "close" not in option
        self.will_close = not kept or (self.length is None and not self.chunked)

    def _read_next_chunk_size(self) -> int:
        """Only hexadecimal digits: http.client accepts -5 and 0x1_0 as well."""
        line = self.fp.readline(MAX_LINE + 1)
        found = _CHUNK.match(line)
        if found is None or len(line) > MAX_LINE:
            self._close_conn()  # type: ignore[attr-defined]
            raise http.client.HTTPException("a chunk has no size" if line else "the body was cut")
        return int(found[1], 16)

    def _read_and_discard_trailer(self) -> None:
        """Skip the trailer section, of which http.client would read any number of lines."""
        for _ in range(MAX_LINES):
            line = self.fp.readline(MAX_LINE + 1)
            if line in (b"\r\n", b"\n", b""):
                return
            if len(line) > MAX_LINE:
                break
        raise http.client.HTTPException(f"more than {MAX_LINES} lines behind the body")


class Connection(http.client.HTTPConnection):
    """A connection that passes its socket to `watch` before it waits for anything."""

    response_class = Response

    def __init__(self, host: str, port: int, timeout: float, watch: Watch, *, is_proxy: bool) -> None:
        super().__init__(host, port, timeout=timeout)
        self._watch = watch
        # http.client calls it to get its socket
        self._create_connection = functools.partial(_dial_proxy if is_proxy else _dial, watch)

    def send_request(
        self, method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None
    ) -> Response:
        """Send a request and read the header of the response; the body of the last response was read to its end."""
        response = Response(self.sock, method=method)
        try:
            self.sock.sendall(request_header(method, target, host, headers, body))
            for piece in () if body is None else (body,) if isinstance(body, bytes) else body:
                self.sock.sendall(piece)
            response.begin()
        except BaseException:
            response.close()
            raise
        return response


class _TlsConnection(Connection):
    default_port = 443

    def __init__(
        self, host: str, port: int, timeout: float, watch: Watch, *, is_proxy: bool, name: str, tls: ssl.SSLContext
    ) -> None:
        super().__init__(host, port, timeout, watch, is_proxy=is_proxy)
        self._name = name
        self._tls = tls

    def connect(self) -> None:
        super().connect()
        wrapped = self._tls.wrap_socket(self.sock, server_hostname=self._name, do_handshake_on_connect=False)
        self.sock = wrapped
        self._watch(wrapped)
        wrapped.do_handshake()


def _dial_proxy(watch: Watch, address: tuple[str, int], timeout: float, _source: object = None) -> socket.socket:
    try:
        return _dial(watch, address, timeout)
    except OSError as exn:
        if isinstance(exn, ConnectionAbortedError):
            raise
        reason = "no answer" if isinstance(exn, TimeoutError) else exn.strerror or type(exn).__name__
        raise ProxyDownError(exn.errno, f"the proxy {address[0]}:{address[1]} cannot be reached ({reason})") from exn


def _dial(watch: Watch, address: tuple[str, int], timeout: float, _source: object = None) -> socket.socket:
    """A socket connected to the first of the host's addresses that accepts."""
    failure: OSError = OSError("the host has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            watch(sock)
            sock.settimeout(timeout)
            sock.connect(place)
        except OSError as exn:
            sock.close()
            failure = exn
        else:
            return sock
    raise failure


def _tls_for(cafile: str | None) -> ssl.SSLContext:
    return _tls(cafile, settings.ssl_cert_file, settings.ca_bundle)


@functools.lru_cache(maxsize=8)
def _tls(cafile: str | None, _default: str | None = None, more: str | None = None) -> ssl.SSLContext:
    """The trusted certificates: those of the file, else the system's or SSL_CERT_FILE's, and those in `more`.

    Reading them takes 20 ms, so once per process; OpenSSL looks at SSL_CERT_FILE itself.
    """
    try:
        context = ssl.create_default_context(cafile=cafile)
        if more and not cafile:
            context.load_verify_locations(more)
    except OSError as exn:
        raise StorageError(f"cannot read certificates from {cafile or more}: {exn.strerror or exn}") from None
    return context
