"""One request to a web server: connect, send, follow redirects, and hand over the answer.

Credentials of the url go to its own host only: a redirect to another host, port or scheme loses them.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import re
import socket
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult

from webdataset.base.settings import settings
from webdataset.errors import StorageError, WebDatasetError

from . import addresses
from .connections import Connection, Response, connection_to, shut
from .headers import content_length
from .pool import POOL

USER_AGENT = "webdataset/2"
MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
SAME_METHOD = frozenset({307, 308})
DRAINED_BYTES = 64 << 10
CONNECT_SECONDS = 30.0
STALL_SECONDS = 60.0

Prepare = Callable[[str, str, dict[str, str]], dict[str, str]]
"""`(method, url, headers) -> headers to send`: adds a signature or token, anew for every request."""

_GOOGLE_MD5 = re.compile(r"\bmd5=([A-Za-z0-9+/=]+)")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")


@dataclass
class Reply:
    """An answer of a server, its body still to be read."""

    response: Response
    connection: Connection
    socket: socket.socket
    url: str
    server: Any = None
    waited: float = 0.0
    """Seconds from the request to the first byte of the answer."""
    owner: int = field(default_factory=os.getpid)
    bare: bool = False
    told: bytes | None = None
    """The beginning of the body, where that was an error's."""

    @property
    def status(self) -> int:
        return self.response.status

    @property
    def proxied(self) -> bool:
        return self.server is not None and self.server[3] is not None

    def header(self, name: str) -> str | None:
        found: str | None = self.response.headers.get(name)
        return found

    @property
    def length(self) -> int | None:
        """The announced number of bytes; unknown for a chunked body."""
        chunked = "chunked" in (self.header("Transfer-Encoding") or "").lower()
        return None if chunked else content_length(self.response.headers)

    @property
    def etag(self) -> str | None:
        """A strong ETag, which stands for the very bytes."""
        return strong_etag(self.header)

    @property
    def validator(self) -> str | None:
        return validator_in(self.header)

    @property
    def range_start_and_total(self) -> tuple[int | None, int | None]:
        found = _CONTENT_RANGE.match(self.header("Content-Range") or "")
        if found is None:
            return None, None
        return int(found[1]), None if found[3] == "*" else int(found[3])

    @property
    def retry_after(self) -> float:
        """The seconds the server asks to wait, given as such or as a date."""
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
        response = self.response
        left = response.length
        if left is None or response.chunked or response.fp is None:
            data = response.read1(len(view))
        elif self.bare:
            count = response.fp.raw.readinto(view[:left]) if left else 0
            response.length = left - (count or 0)
            return count or 0
        else:
            data = response.read1(min(len(view), left)) if left else b""
            self.bare = len(data) < min(len(view), left)
        view[: len(data)] = data
        return len(data)

    def release(self) -> None:
        """Keep the connection for the next request if the body was read to its end, else close it."""
        whole = self.response.isclosed() or self.response.length == 0
        if not whole or self.response.will_close or self.owner != os.getpid():
            self.close()
        else:
            self.response.close()
            POOL.give(self.server, self.connection)

    def drain(self) -> None:
        """Read over the rest of a short body, so that its connection can be kept."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            if self.response.length is not None and self.response.length <= DRAINED_BYTES:
                self.response.read()
        self.release()

    def close(self) -> None:
        """Close the connection at once, also under a thread that waits for it; a forked copy leaves it open."""
        if self.owner == os.getpid():
            shut(self.socket)
        self.response.close()
        self.connection.close()


class Connector:
    """Sends the requests for one url; `abort` ends from another thread whatever is under way."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        prepare: Prepare | None = None,
        connect_timeout: float = CONNECT_SECONDS,
        read_timeout: float = STALL_SECONDS,
        proxy: str | None = None,
        cafile: str | None = None,
        foreign: bool = False,
    ) -> None:
        self.url = url
        self.read_timeout = read_timeout
        self._headers = dict(headers or {})
        self._prepare = prepare
        self._connect_timeout = connect_timeout
        self._proxy = proxy
        self._cafile = cafile
        self._foreign = foreign  # a list from elsewhere names this url
        self._socket: socket.socket | None = None
        self._process = 0
        self._aborted = False

    @property
    def server(self) -> Hashable:
        """Scheme, host and port of the url; the url itself if it names none."""
        try:
            return addresses.place_of(addresses.parts_of(self.url, self.url))
        except WebDatasetError:
            return self.url

    def send(
        self,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        follow: bool = True,
        reuse: bool = True,
    ) -> Reply:
        """The answer to one request, redirects followed from the original url."""
        parts = addresses.parts_of(self.url, self.url)
        place = addresses.place_of(parts)
        plain = {"User-Agent": USER_AGENT, "Accept": "*/*", "Accept-Encoding": "identity"} | self._headers
        plain |= headers or {}
        at_home = True  # a redirect elsewhere and back does not bring the credentials back
        for hop in range(MAX_REDIRECTS + 1):
            sent = self._with_credentials(method, parts, plain) if at_home else plain
            reply = self._exchange(method, parts, sent, body, redirected=hop > 0, reuse=reuse)
            location = reply.header("Location")
            if not follow or not _is_followed(method, reply.status) or location is None:
                return reply
            reply.drain()
            parts = addresses.redirected(parts, location, self.url)
            if at_home and addresses.place_of(parts) != place:
                at_home, plain = False, _without_credentials(plain)
        raise StorageError(f"more than {MAX_REDIRECTS} redirects", url=self.url)

    def abort(self) -> None:
        """End what is under way; what comes after is a closed connection."""
        self._aborted = True
        if self._socket is not None and self._process == os.getpid():
            shut(self._socket)

    # -- inside ----------------------------------------------------------------------------------

    def _with_credentials(self, method: str, parts: SplitResult, headers: dict[str, str]) -> dict[str, str]:
        if self._prepare is not None:
            return self._prepare(method, addresses.address_of(parts), dict(headers))
        if any(name.lower() == "authorization" for name in headers):
            return headers
        own = addresses.parts_of(self.url, self.url)  # a redirect cannot name the user
        if self._foreign and settings.secure and own.username is None:
            return headers  # what .netrc has is not for urls that somebody else names
        return headers | addresses.password_header(own)

    def _exchange(
        self,
        method: str,
        parts: SplitResult,
        headers: dict[str, str],
        body: bytes | None,
        *,
        redirected: bool,
        reuse: bool,
    ) -> Reply:
        proxy = addresses.proxy_for(parts, self._proxy)
        server = (*addresses.place_of(parts), proxy, self._cafile)
        target = addresses.target_of(parts)
        if proxy is not None and parts.scheme == "http":
            target = f"http://{addresses.netloc_of(parts)}{target}"
            headers = headers | addresses.proxy_headers(proxy)
        message = (method, target, addresses.host_of(parts), headers, body)
        checked = (redirected or self._foreign) and settings.secure
        if reuse and not checked and (kept := POOL.take(server)) is not None:
            # the server may have closed it a moment ago, which says nothing about the next one
            with contextlib.suppress(ConnectionError, http.client.HTTPException):
                return self._ask(kept, server, message)
        connection = connection_to(parts, proxy, self._connect_timeout, self._cafile, self._watch)
        with _closed_on_error(connection, self.url):
            connection.connect()
            if checked:
                what = "a redirect" if redirected else "a list's url that leads"
                addresses.check_public(connection, parts, proxy is not None, self.url, what)
        return self._ask(connection, server, message)

    def _ask(self, connection: Connection, server: Any, message: tuple[Any, ...]) -> Reply:
        with _closed_on_error(connection, self.url):
            raw: socket.socket = connection.sock
            self._watch(raw)
            raw.settimeout(self.read_timeout)
            start = time.monotonic()
            response = connection.ask(*message)
            return Reply(response, connection, raw, self.url, server, time.monotonic() - start)

    def _watch(self, sock: socket.socket) -> None:
        """Know the socket in use, so that `abort` can end it."""
        self._socket = sock
        self._process = os.getpid()
        if self._aborted:
            raise ConnectionAbortedError("the stream was closed")


def strong_etag(header: Callable[[str], str | None]) -> str | None:
    """An ETag that stands for the very bytes."""
    etag = header("ETag")
    return etag if etag and not etag.startswith("W/") else None


def validator_in(header: Callable[[str], str | None]) -> str | None:
    """What `If-Range` takes: a strong ETag, else the time of the last change."""
    return strong_etag(header) or header("Last-Modified")


def md5_in(header: Callable[[str], str | None]) -> bytes | None:
    """The MD5 of the whole body, where a server gives it: `Content-MD5` (Azure), `x-goog-hash` (Google).

    >>> md5_in({"x-goog-hash": "crc32c=AAAAAA==,md5=1B2M2Y8AsgTpgAmY7PhCfg=="}.get).hex()
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
    """Only what says nothing about the user goes to another host."""
    kept = ("user-agent", "accept", "accept-encoding", "range", "if-range", "if-match", "content-type")
    return {name: value for name, value in headers.items() if name.lower() in kept}


@contextlib.contextmanager
def _closed_on_error(connection: Connection, url: str) -> Any:
    try:
        yield
    except (UnicodeError, http.client.InvalidURL):
        connection.close()
        raise StorageError("this url names no host that can be reached", url=url) from None
    except BaseException:
        connection.close()
        raise
