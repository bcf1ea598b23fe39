"""Network errors and error responses: how to describe them, and whether and when to try again."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl

from webdataset.base.redact import redacted
from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.outages import OUTAGES
from webdataset.storage.patience import RetryState

from .connect import OpenResponse
from .connections import ProxyDownError

FEW_RETRIES = 4
"""Tries in a row where something other than a web server answers: probably a wrong port."""
PERMANENT = frozenset({501, 505, 507, 511})
"""Statuses that another try will not change: not implemented, another HTTP, no space, a login page in between."""
RETRIED_STATUS = frozenset({408, 425, 429, *range(500, 600)}) - PERMANENT
ERROR_BYTES = 2048
UNKNOWN_NAME = frozenset(
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
)
"""Errors of the name service for names that do not exist; others, such as EAI_AGAIN, may pass."""

TRANSIENT_ERRORS = (OSError, http.client.HTTPException)
"""Errors of a connection, which the next one may not have."""

_MESSAGE = re.compile(
    rb"<(?:Code|Message)>([^<]{1,200})<|\"message\"\s*:\s*\"((?:[^\"\\]|\\.){1,400})", re.IGNORECASE | re.DOTALL
)
_TLS_PERMANENT = re.compile(
    "WRONG_VERSION_NUMBER|HTTP_REQUEST|UNSUPPORTED_PROTOCOL|PROTOCOL_VERSION|NO_PROTOCOLS|HANDSHAKE_FAILURE|NO_SHARED_CIPHER"
    "|UNKNOWN_CA|BAD_CERTIFICATE|CERTIFICATE_REQUIRED|CERTIFICATE_UNKNOWN|UNRECOGNIZED_NAME|ACCESS_DENIED"
)
_TUNNEL = re.compile(r"Tunnel connection failed: (\d+)(.*)")


def wait_after(retries: RetryState, error: BaseException, seconds: float) -> None:
    """Wait before the next try, or raise the error if another try would not help."""
    permanent = _permanent(error, retries)
    if permanent is not None:
        retries.close()
        raise permanent from None
    most = FEW_RETRIES if _is_not_http(error) else None
    retries.pause(describe(error, seconds), most=most, hint=_hint(error))


def describe(error: BaseException, seconds: float) -> str:
    """An error of the network in a few words, without the parts of a url that it may quote."""
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


_STATUS_HINTS = {
    **dict.fromkeys((404, 410), "check the name and the range of shards"),
    **dict.fromkeys((401, 403), "check the credentials, and that they may read this object"),
    407: "give the proxy's user: proxy='http://user:password@host:port'",
}


def status_error(response: OpenResponse, url: str) -> StorageError:
    """The error that a response stands for, in one line with a hint."""
    line = f"the server answers {response.status} {redacted(response.raw.reason)}{_server_message(response)}"
    kind = MissingShardError if response.status in (404, 410) else StorageError
    retryable = response.status in RETRIED_STATUS
    return kind(line, url=url, hint=_STATUS_HINTS.get(response.status, ""), status=response.status, retryable=retryable)


def error_body(response: OpenResponse) -> bytes:
    """The first bytes of an error response, read once."""
    if response.error_body is None:
        try:
            response.error_body = response.raw.read(ERROR_BYTES)
        except (*TRANSIENT_ERRORS, ValueError):
            response.error_body = b""
    return response.error_body


def _server_message(response: OpenResponse) -> str:
    """The server's own message, where it is XML or JSON of a known form."""
    words = [_unquoted(second) if second else _text(first) for first, second in _MESSAGE.findall(error_body(response))]
    return f" ({redacted(': '.join(words[:2]))})" if words else ""


def _unquoted(data: bytes) -> str:
    """The text between the quotes of a JSON string."""
    text = _text(data)
    try:
        return printable(json.loads(f'"{text}"', strict=False))
    except ValueError:  # cut within an escape
        return text


def _text(data: bytes) -> str:
    return printable(data.decode("utf-8", "replace").strip())


def printable(text: str) -> str:
    """The text without control characters, which would garble a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _permanent(error: BaseException, retries: RetryState) -> StorageError | None:
    """The error to raise at once, where another try would fail in the same way."""
    url = retries.url
    if isinstance(error, StorageError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return StorageError(
            f"the server's certificate is not trusted: {error.verify_message}",
            url=url,
            hint="set SSL_CERT_FILE to a file with your authority's certificate, or give cafile=",
        )
    if isinstance(error, ssl.SSLError) and _TLS_PERMANENT.search(error.reason or ""):
        reason = (error.reason or "").lower().replace("_", " ")
        hint = "check the port, and whether the server speaks https there"
        return StorageError(f"no TLS connection can be made ({reason})", url=url, hint=hint)
    # a name that is not known is a mistake, unless its server has answered before
    if _is_unknown_name(error) and not OUTAGES.was_reached(retries.server):
        return StorageError(f"cannot reach the server: {describe(error, 0)}", url=url, hint=_hint(error))
    tunnel = _TUNNEL.match(str(error)) if isinstance(error, OSError) else None
    if tunnel and int(tunnel[1]) not in RETRIED_STATUS:
        hint = "check the proxy's user and password, and that it may reach this host"
        return StorageError(f"the proxy answers {tunnel[1]}{tunnel[2]}", url=url, hint=hint, status=int(tunnel[1]))
    return None


def _is_unknown_name(error: BaseException) -> bool:
    name = error.__cause__ if isinstance(error, ProxyDownError) else error
    return isinstance(name, socket.gaierror) and name.errno in UNKNOWN_NAME


def _is_not_http(error: BaseException) -> bool:
    cut = (http.client.RemoteDisconnected, http.client.IncompleteRead)
    return isinstance(error, http.client.HTTPException) and not isinstance(error, cut)
