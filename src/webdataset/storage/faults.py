"""What can go wrong on the way to a server: what to call it, and whether and when to try again."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import ssl
import threading

from webdataset.errors import MissingShardError, StorageError
from webdataset.redact import redacted

from .connect import Reply
from .connections import ProxyDownError

RETRIES = 7
"""Tries in a row that bring nothing: with the pauses between them about ten seconds."""
CONTACT_RETRIES = 4
"""The same for a server that was never reached; more likely a wrong name than a bad moment."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 15.0
LONGEST_RETRY_AFTER = 120.0
RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
TOLD_BYTES = 2048

BROKEN = (OSError, http.client.HTTPException)
"""What breaks a connection and may be gone the next time."""

_TOLD = re.compile(
    rb"<(?:Code|Message)>([^<]{1,200})<|\"message\"\s*:\s*\"((?:[^\"\\]|\\.){1,400})", re.IGNORECASE | re.DOTALL
)
_TUNNEL = re.compile(r"Tunnel connection failed: (\d+)(.*)")


class GaveUpError(Exception):
    """All tries are used up; says what the last one met, and what to look at."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


class Retries:
    """A budget of tries in a row; progress renews it."""

    def __init__(self, most: int = RETRIES, first_pause: float = FIRST_PAUSE) -> None:
        self.most = most
        self.total = 0
        self.stopped = threading.Event()
        self._first_pause = first_pause
        self._failures = 0

    def renew(self) -> None:
        self._failures = 0

    def pause(self, reason: str, retry_after: float = 0.0, most: int | None = None, hint: str = "") -> None:
        """Wait a little longer each time; GaveUpError, with the hint, when the tries are used up."""
        self._failures += 1
        if self._failures > min(self.most, self.most if most is None else most):
            times = f", {self._failures} times in a row" if self._failures > 1 else ""
            raise GaveUpError(reason + times, hint)
        self.total += 1
        longest = min(LONGEST_PAUSE, self._first_pause * 2 ** (self._failures - 1))
        seconds = max(min(retry_after, LONGEST_RETRY_AFTER), random.uniform(longest / 2, longest))
        if self.stopped.wait(seconds):
            raise ValueError("I/O operation on closed file")

    def after(self, error: BaseException, seconds: float, url: str, *, reached: bool = False) -> None:
        """Wait before the next try if another one can help; else raise what the user should read."""
        final = _final(error, url)
        if final is not None:
            raise final from None
        never = isinstance(error, (socket.gaierror, ConnectionRefusedError, ProxyDownError)) and not reached
        self.pause(described(error, seconds), most=CONTACT_RETRIES if never else None, hint=_hint(error))


def described(error: BaseException, seconds: float) -> str:
    """A foreign error in a few words, without the parts of a url it may quote."""
    if isinstance(error, TimeoutError):
        return f"no byte came for {seconds:g} s"
    if isinstance(error, http.client.IncompleteRead):
        return "the body was cut"
    if isinstance(error, socket.gaierror):
        return f"the host name was not found ({error.strerror})"
    if isinstance(error, http.client.RemoteDisconnected):
        return "the connection was closed without an answer"
    if isinstance(error, http.client.HTTPException):
        return f"the answer is not HTTP ({type(error).__name__})"
    if isinstance(error, ProxyDownError):
        return str(error.strerror)
    if tunnel := _TUNNEL.match(str(error)):
        return f"the proxy answers {tunnel[1]}{tunnel[2]}"
    return f"the connection failed ({getattr(error, 'strerror', None) or type(error).__name__})"


def _hint(error: BaseException) -> str:
    if isinstance(error, ProxyDownError):
        return "check http_proxy, https_proxy and no_proxy, or proxy="
    if isinstance(error, socket.gaierror):
        return "check the name of the host, and the network"
    return "check host and port" if isinstance(error, ConnectionRefusedError) else ""


def status_error(reply: Reply, url: str) -> StorageError:
    """One line with the cure for an answer that is no data."""
    line = f"the server answers {reply.status} {redacted(reply.response.reason)}{_told(reply)}"
    if reply.status in (404, 410):
        return MissingShardError(line, url=url, hint="check the name and the range of shards")
    if reply.status in (401, 403):
        return StorageError(line, url=url, hint="check the credentials, and that they may read this object")
    if reply.status == 407:
        return StorageError(line, url=url, hint="give the proxy's user: proxy='http://user:password@host:port'")
    return StorageError(line, url=url)


def beginning(reply: Reply) -> bytes:
    """The first bytes of an answer that is an error; read once, so that they can be looked at again."""
    if reply.told is None:
        try:
            reply.told = reply.response.read(TOLD_BYTES)
        except (*BROKEN, ValueError):
            reply.told = b""
    return reply.told


def _told(reply: Reply) -> str:
    """The server's own words, where they stand in a known place."""
    words = [_unquoted(second) if second else _text(first) for first, second in _TOLD.findall(beginning(reply))]
    return f" ({redacted(': '.join(words[:2]))})" if words else ""


def _unquoted(data: bytes) -> str:
    """What stands between the quotes of a JSON string, as text."""
    text = _text(data)
    try:
        return printable(json.loads(f'"{text}"', strict=False))
    except ValueError:  # cut within an escape
        return text


def _text(data: bytes) -> str:
    return printable(data.decode("utf-8", "replace").strip())


def printable(text: str) -> str:
    """A foreign text without what would garble a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _final(error: BaseException, url: str) -> StorageError | None:
    """The error to raise at once, where another try would meet the same."""
    if isinstance(error, StorageError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageError(
            f"the server's certificate is not trusted: {error.verify_message}",
            url=url,
            hint="set SSL_CERT_FILE to a file with your authority's certificate, or give cafile=",
        )
    tunnel = _TUNNEL.match(str(error)) if isinstance(error, OSError) else None
    if tunnel and int(tunnel[1]) not in RETRIED_STATUS:
        hint = "check the proxy's user and password, and that it may reach this host"
        return StorageError(f"the proxy answers {tunnel[1]}{tunnel[2]}", url=url, hint=hint)
    return None
