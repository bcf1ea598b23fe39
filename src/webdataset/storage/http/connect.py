"""One request to a web server: connect, send, follow redirects, return the response.

Credentials of the url go to its own origin only: a redirect to another host, port or scheme loses them.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import socket
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult

from webdataset.base.settings import settings
from webdataset.errors import StorageError, WebDatasetError
from webdataset.storage.patience import FIRST_PAUSE, Patience, RetryState

from . import addresses
from .connections import Connection, Response, connection_to, shut_down
from .headers import content_length
from .pool import POOL

USER_AGENT = "webdataset/2"
MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
SAME_METHOD = frozenset({307, 308})
DRAINED_BYTES = 64 << 10

Body = bytes | Iterable[bytes] | None
"""What a request sends; other than bytes, its headers must have the length."""
Prepare = Callable[[str, str, dict[str, str]], dict[str, str]]
"""`(method, url, headers) -> headers to send`: adds a signature or token, called again for every request."""

_GOOGLE_MD5 = re.compile(r"\bmd5=([A-Za-z0-9+/=]+)")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


@dataclass(frozen=True)
class ConnectionOptions:
    """How a server is reached, and how patiently."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More header fields, for the origin of the url alone."""
    prepare: Prepare | None = None
    """Returns the headers of each request to the origin of the url; without it, the url or `.netrc` may name a user."""
    connect_timeout: float = 30.0
    read_timeout: float = 60.0
    """Seconds without a byte."""
    patience: float | None = None
    """Seconds of trying again without a byte; any progress renews them."""
    retries: int | None = None
    """Most tries in a row without a byte."""
    first_pause: float = FIRST_PAUSE
    proxy: str | None = field(default=None, repr=False)
    cafile: str | None = None
    foreign: bool = False
    """Whether a list from elsewhere names the url."""

    def retry_state(self, url: str, server: Hashable) -> RetryState:
        """The tries of one stream or request."""
        return RetryState(Patience(self.patience, self.retries, self.first_pause), url, server)


@dataclass
class OpenResponse:
    """A response whose body is still to be read."""

    raw: Response
    connection: Connection
    socket: socket.socket
    url: str
    server: Any = None
    waited: float = 0.0
    """Seconds from the request to the first byte of the response."""
    owner: int = field(default_factory=os.getpid)
    is_unbuffered: bool = False
    """Whether http.client's buffer is empty."""
    error_body: bytes | None = None
    """The beginning of the body of an error."""

    @property
    def status(self) -> int:
        return self.raw.status

    @property
    def proxied(self) -> bool:
        return self.server is not None and self.server[3] is not None

    def header(self, name: str) -> str | None:
        found: str | None = self.raw.headers.get(name)
        return found

    @property
    def length(self) -> int | None:
        """The announced number of bytes; unknown for a chunked body."""
        chunked = "chunked" in (self.header("Transfer-Encoding") or "").lower()
        return None if chunked else content_length(self.raw.headers)

    @property
    def validator(self) -> str | None:
        return validator_from(self.header)

    @property
    def range_start_and_total(self) -> tuple[int | None, int | None]:
        found = _CONTENT_RANGE.match(self.header("Content-Range") or "")
        if found is None:
            return None, None
        return int(found[1]), None if found[3] == "*" else int(found[3])

    @property
    def retry_after(self) -> float:
        """The seconds to wait that the server asks for, as a number or a date."""
        text = (self.header("Retry-After") or "").strip()
        if text.isdecimal():
            return float(text) if len(text) < 6 else 0.0
        import email.utils

        try:
            return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
        except (ValueError, TypeError, OverflowError):
            return 0.0

    def readinto1(self, view: memoryview) -> int:
        """What has arrived of the body, straight from the socket as soon as http.client's buffer is empty."""
        raw = self.raw
        left = raw.length
        if left is None or raw.chunked or raw.fp is None:
            data = raw.read1(len(view))
        elif self.is_unbuffered:
            count = raw.fp.raw.readinto(view[:left]) if left else 0
            raw.length = left - (count or 0)
            return count or 0
        else:
            data = raw.read1(min(len(view), left)) if left else b""
            self.is_unbuffered = len(data) < min(len(view), left)
        view[: len(data)] = data
        return len(data)

    def release(self) -> None:
        """Keep the connection for the next request if the body was read to its end, else close it."""
        whole = self.raw.isclosed() or self.raw.length == 0
        if not whole or self.raw.will_close or self.owner != os.getpid():
            self.close()
        else:
            self.raw.close()
            POOL.give(self.server, self.connection)

    def drain(self) -> None:
        """Read over the rest of a short body, so that its connection can be kept."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            if self.raw.length is not None and self.raw.length <= DRAINED_BYTES:
                self.raw.read()
        self.release()

    def close(self) -> None:
        """Close the connection at once, also under a thread that waits for it; a forked copy leaves it open."""
        if self.owner == os.getpid():
            shut_down(self.socket)
        self.raw.close()
        self.connection.close()


class Connector:
    """Sends the requests for one url; `abort` ends from another thread whatever is under way."""

    def __init__(self, url: str, options: ConnectionOptions) -> None:
        self.url = url
        self.options = options
        self._socket: socket.socket | None = None
        self._process = 0
        self._aborted = False

    @property
    def server(self) -> Hashable:
        """The origin of the url; the url itself if it has none."""
        try:
            return addresses.origin_of(addresses.url_parts(self.url, self.url))
        except WebDatasetError:
            return self.url

    def send(
        self,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        *,
        follow: bool = True,
        reuse: bool = True,
    ) -> OpenResponse:
        """The response to one request, redirects followed from the original url."""
        parts = addresses.url_parts(self.url, self.url)
        origin = addresses.origin_of(parts)
        plain = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
        plain |= {**self.options.headers, **(headers or {})}
        at_origin = True  # a redirect elsewhere and back does not bring the credentials back
        for hop in range(MAX_REDIRECTS + 1):
            sent = self._with_credentials(method, parts, plain) if at_origin else plain
            response = self._exchange(method, parts, sent, body, redirected=hop > 0, reuse=reuse)
            location = response.header("Location")
            if not follow or not _is_followed(method, response.status) or location is None:
                return response
            response.drain()
            parts = addresses.redirect_target(parts, location, self.url)
            if at_origin and addresses.origin_of(parts) != origin:
                at_origin, plain = False, _without_credentials(plain)
        raise StorageError(f"more than {MAX_REDIRECTS} redirects", url=self.url)

    def abort(self) -> None:
        """End what is under way; what comes after is a closed connection."""
        self._aborted = True
        if self._socket is not None and self._process == os.getpid():
            shut_down(self._socket)

    def _with_credentials(self, method: str, parts: SplitResult, headers: dict[str, str]) -> dict[str, str]:
        if self.options.prepare is not None:
            return self.options.prepare(method, addresses.sent_url(parts), dict(headers))
        if any(name.lower() == "authorization" for name in headers):
            return headers
        own = addresses.url_parts(self.url, self.url)  # a redirect cannot name the user
        if self.options.foreign and settings.secure and own.username is None:
            return headers  # what .netrc has is not for urls that somebody else names
        return headers | addresses.password_header(own)

    def _exchange(
        self,
        method: str,
        parts: SplitResult,
        headers: dict[str, str],
        body: Body,
        *,
        redirected: bool,
        reuse: bool,
    ) -> OpenResponse:
        options = self.options
        proxy = addresses.proxy_for(parts, options.proxy)
        server = (*addresses.origin_of(parts), proxy, options.cafile)
        target = addresses.request_target(parts)
        if proxy is not None and parts.scheme == "http":
            target = f"http://{addresses.netloc_of(parts)}{target}"
            headers = headers | addresses.proxy_headers(proxy)
        message = (method, target, addresses.host_field(parts), headers, body)
        checked = (redirected or options.foreign) and settings.secure
        if reuse and not checked and (kept := POOL.take(server)) is not None:
            # the server may have closed it a moment ago, which says nothing about the next one
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                return self._request(kept, server, message)
        connection = connection_to(parts, proxy, options.connect_timeout, options.cafile, self._watch)
        with _closed_on_error(connection, self.url):
            connection.connect()
            if checked:
                what = "a redirect" if redirected else "a list's url that leads"
                addresses.check_public(connection, parts, proxy is not None, self.url, what)
        return self._request(connection, server, message)

    def _request(self, connection: Connection, server: object, message: tuple[Any, ...]) -> OpenResponse:
        with _closed_on_error(connection, self.url):
            sock: socket.socket = connection.sock
            self._watch(sock)
            sock.settimeout(self.options.read_timeout)
            start = time.monotonic()
            raw = connection.send_request(*message)
            return OpenResponse(raw, connection, sock, self.url, server, time.monotonic() - start)

    def _watch(self, sock: socket.socket) -> None:
        """Know the socket in use, so that `abort` can end it."""
        self._socket = sock
        self._process = os.getpid()
        if self._aborted:
            raise ConnectionAbortedError("the stream was closed")


def strong_etag(header: Callable[[str], str | None]) -> str | None:
    """An ETag that stands for the very bytes, not for something equivalent."""
    etag = header("ETag")
    return etag if etag and not etag.startswith("W/") else None


def validator_from(header: Callable[[str], str | None]) -> str | None:
    """A value for `If-Range`: a strong ETag, else `Last-Modified`."""
    return strong_etag(header) or header("Last-Modified")


def md5_from(header: Callable[[str], str | None]) -> bytes | None:
    """The MD5 of the whole body, if the server sent it: `Content-MD5` (Azure), `x-goog-hash` (Google).

    >>> md5_from({"x-goog-hash": "crc32c=AAAAAA==,md5=1B2M2Y8AsgTpgAmY7PhCfg=="}.get).hex()
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    text = header("Content-MD5") or ""
    if (header("x-goog-stored-content-encoding") or "identity") == "identity":  # else that of the compressed object
        text = text or next(iter(_GOOGLE_MD5.findall(header("x-goog-hash") or "")), "")
    try:
        digest = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return digest if len(digest) == 16 else None


def _is_followed(method: str, status: int) -> bool:
    return status in (REDIRECTS if method in ("GET", "HEAD") else SAME_METHOD)


def _without_credentials(headers: dict[str, str]) -> dict[str, str]:
    """The headers that go to another host: those that say nothing about the user."""
    kept = ("user-agent", "accept", "accept-encoding", "range", "if-range", "if-match", "content-type")
    return {name: value for name, value in headers.items() if name.lower() in kept}


@contextlib.contextmanager
def _closed_on_error(connection: Connection, url: str) -> Iterator[None]:
    try:
        yield
    except (UnicodeError, http.client.InvalidURL):
        connection.close()
        raise StorageError("this url names no host that can be reached", url=url) from None
    except BaseException:
        connection.close()
        raise
