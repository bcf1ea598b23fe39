"""One GET request: where it may go, what it carries there, and which redirects it follows.

Credentials of the url go to its own host only: a redirect to another host, port or scheme loses them.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit

from webdataset.errors import SecurityError, StorageError
from webdataset.settings import settings

USER_AGENT = "webdataset/2"
MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# A url is sent as it was given, because a signature may cover every character; only what cannot be sent is encoded.
_UNSENDABLE = re.compile(r"[^\x21-\x7e]")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


@dataclass
class Reply:
    """An answer of a server, its body still to be read."""

    response: http.client.HTTPResponse
    connection: http.client.HTTPConnection
    socket: socket.socket
    owner: int = field(default_factory=os.getpid)

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def length(self) -> int | None:
        """The announced number of bytes; unknown for a chunked body."""
        text = self.response.getheader("Content-Length")
        chunked = "chunked" in (self.response.getheader("Transfer-Encoding") or "").lower()
        return int(text) if text is not None and text.isdecimal() and not chunked else None

    @property
    def validator(self) -> str | None:
        """What `If-Range` takes: a strong ETag, else the time of the last change."""
        etag = self.response.getheader("ETag")
        if etag and not etag.startswith("W/"):
            return etag
        return self.response.getheader("Last-Modified")

    @property
    def resumable(self) -> bool:
        """Whether the rest of this body can be asked for and recognised."""
        ranges = (self.response.getheader("Accept-Ranges") or "").lower()
        return self.validator is not None and ranges != "none"

    @property
    def range_start_and_total(self) -> tuple[int | None, int | None]:
        found = _CONTENT_RANGE.match(self.response.getheader("Content-Range") or "")
        if found is None:
            return None, None
        return int(found[1]), None if found[3] == "*" else int(found[3])

    @property
    def retry_after(self) -> float:
        text = self.response.getheader("Retry-After") or ""
        return float(text) if text.isdecimal() and len(text) < 6 else 0.0

    def close(self) -> None:
        """Close the connection at once, also under a thread that waits for it; a forked copy leaves it open."""
        if self.owner == os.getpid():
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)
        self.response.close()
        self.connection.close()


class Connector:
    """Sends the GET requests for one url."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        connect_timeout: float,
        read_timeout: float,
        proxy: str | None = None,
    ) -> None:
        self.url = url
        self.headers = dict(headers or {})
        self.connect_timeout = connect_timeout
        self.read_timeout = read_timeout
        self.proxy = proxy

    def get(self, position: int, first: Reply | None) -> Reply:
        """The answer to a request for the bytes from `position` on, redirects followed from the original url."""
        parts = _split(self.url, self.url)
        headers = self._headers(parts, position, first)
        origin = parts
        for hop in range(MAX_REDIRECTS + 1):
            reply = self._send(parts, headers, redirected=hop > 0)
            location = reply.response.getheader("Location")
            if reply.status not in REDIRECTS or location is None:
                return reply
            reply.close()
            target = _split(urljoin(_without_userinfo(parts), location), self.url)
            _check_redirect(parts, target, self.url)
            if _place(target) != _place(origin):
                headers = _without_credentials(headers)
            parts = target
        raise StorageError(f"more than {MAX_REDIRECTS} redirects", url=self.url)

    def _headers(self, parts: SplitResult, position: int, first: Reply | None) -> dict[str, str]:
        headers = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"} | self.headers
        if parts.username is not None and "Authorization" not in self.headers:
            headers["Authorization"] = basic(parts)
        if position and first is not None:
            headers["Range"] = f"bytes={position}-"
            if first.validator is not None:
                headers["If-Range"] = first.validator
        return headers

    def _send(self, parts: SplitResult, headers: dict[str, str], *, redirected: bool) -> Reply:
        proxy = _proxy_for(parts, self.proxy)
        connection = _connection(parts, proxy, self.connect_timeout)
        try:
            connection.connect()
            if redirected and settings.secure:
                _check_public(connection, parts, proxy is not None, self.url)
            raw: socket.socket = connection.sock
            raw.settimeout(self.read_timeout)
            target = _sendable((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
            if proxy is not None and parts.scheme == "http":
                target = f"http://{_netloc(parts)}{target}"
                headers = headers | _proxy_headers(proxy)
            connection.request("GET", target, headers=headers)
            return Reply(connection.getresponse(), connection, raw)
        except (UnicodeError, http.client.InvalidURL):
            connection.close()
            raise StorageError("this url names no host that can be reached", url=self.url) from None
        except BaseException:
            connection.close()
            raise


def basic(parts: SplitResult) -> str:
    """The header value for the user and password of a url."""
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def refused(line: str, url: str) -> StorageError:
    """An answer that asks for other credentials."""
    return StorageError(line, url=url, hint="check the credentials, and that they may read this object")


def _split(url: str, shown: str) -> SplitResult:
    """The parts of a url that may be asked for; others are errors."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exn:
        raise StorageError(f"this is not a url: {exn}", url=shown) from None
    if parts.scheme not in ("http", "https"):
        raise SecurityError(f"a redirect to a {parts.scheme or 'relative'}: url is refused", url=shown)
    if not parts.hostname or _CONTROL.search(parts.netloc) or port == 0:
        raise StorageError("this url names no host", url=shown)
    return parts


def _check_redirect(source: SplitResult, target: SplitResult, shown: str) -> None:
    if source.scheme == "https" and target.scheme == "http" and not settings.allow_downgrade:
        raise SecurityError(
            f"a redirect from https to http (host {target.hostname}) is refused",
            url=shown,
            hint="WDS_ALLOW_DOWNGRADE=1 allows it",
        )


def _place(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, _port(parts)


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _without_credentials(headers: dict[str, str]) -> dict[str, str]:
    """Only what says nothing about the user goes to another host."""
    kept = ("user-agent", "accept", "accept-encoding", "range", "if-range")
    return {name: value for name, value in headers.items() if name.lower() in kept}


def _without_userinfo(parts: SplitResult) -> str:
    return parts._replace(netloc=_netloc(parts)).geturl()


def _sendable(target: str) -> str:
    """
    >>> _sendable("/a b/%41?x={1}")
    '/a%20b/%41?x={1}'
    """
    return _UNSENDABLE.sub(lambda found: quote(found[0].encode("utf-8", "surrogateescape"), safe=""), target)


def _netloc(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _connection(parts: SplitResult, proxy: SplitResult | None, timeout: float) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", _port(parts)
    via, via_port = (proxy.hostname or "", proxy.port or 8080) if proxy is not None else (host, port)
    if parts.scheme == "http":
        return http.client.HTTPConnection(via, via_port, timeout=timeout)
    connection = http.client.HTTPSConnection(via, via_port, timeout=timeout, context=_tls())
    if proxy is not None:
        connection.set_tunnel(host, port, headers=_proxy_headers(proxy))
    return connection


@functools.lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Reading the certificate authorities takes 20 ms, so once per process."""
    return ssl.create_default_context()


def _proxy_for(parts: SplitResult, proxy: str | None) -> SplitResult | None:
    """The proxy to go through: the given one, else the one the system names (`http_proxy`, `no_proxy`, ...)."""
    import urllib.request

    if proxy is None:
        if urllib.request.proxy_bypass(_netloc(parts)):
            return None
        proxies = urllib.request.getproxies()
        proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy:
        return None
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if found.scheme not in ("http", "https") or not found.hostname:
        raise StorageError(f"a proxy is an http: address, got {proxy}", hint="check http_proxy and https_proxy")
    return found


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    return {"Proxy-Authorization": basic(proxy)} if proxy.username is not None else {}


def _check_public(connection: Any, parts: SplitResult, proxied: bool, shown: str) -> None:
    """In secure mode a redirect must not lead to this machine or its private network.

    The address of the open connection is what counts: a name may resolve to something else a moment later.
    """
    if proxied:
        found = socket.getaddrinfo(parts.hostname, _port(parts), type=socket.SOCK_STREAM)
        addresses = [info[4][0] for info in found]
    else:
        addresses = [connection.sock.getpeername()[0]]
    for text in addresses:
        address: Any = ipaddress.ip_address(str(text).partition("%")[0])
        address = getattr(address, "ipv4_mapped", None) or address
        if not address.is_global or address.is_multicast:
            raise SecurityError(
                f"a redirect to the private address of {parts.hostname} is refused in secure mode", url=shown
            )
