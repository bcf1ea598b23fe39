"""HTTP/1.1 headers, written and parsed; several times faster than http.client, which counts for many small ranges.

>>> request_header("GET", "/a.tar", "host", {"Range": "bytes=0-9"}, None)
b'GET /a.tar HTTP/1.1\\r\\nHost: host\\r\\nRange: bytes=0-9\\r\\n\\r\\n'
>>> import io
>>> status, reason, is_old, headers = read_header(io.BytesIO(b"HTTP/1.1 206 Some\\r\\nETag: x\\r\\n\\r\\n..."))
>>> status, reason, is_old, headers.get("etag")
(206, 'Some', False, 'x')
"""

from __future__ import annotations

import http.client
import re
from collections.abc import ItemsView, Mapping
from typing import Any, Protocol

MAX_LINE = 65536
MAX_LINES = 100
MAX_INTERIM = 20
"""Interim responses, such as 100 Continue and 103 Early Hints, before the final one."""
WITH_BODY = ("POST", "PUT", "PATCH")
"""Methods that send a Content-Length even without a body."""

_STATUS = re.compile(r"HTTP/(0\.9|1\.\d) +([1-9]\d\d)(?:[ \t]+(.*))?\r?\n")
_FIELD = re.compile(r"(?m)^([^:\s]+):[ \t]*(.*)\n")
_FOLDED = re.compile(rb"\s*\n[ \t]+")
_LENGTH = re.compile(r"[0-9]{1,18}")
_SWITCHING = "101"


def request_header(method: str, target: str, host: str, headers: Mapping[str, str], body: Any) -> bytes:
    """Request line and header fields. No value can begin another field, or another request.

    If the body is neither bytes nor None, `headers` has its length.
    """
    known = {name.lower() for name in headers}
    lines = [f"{method} {target} HTTP/1.1"]
    if "host" not in known:
        lines.append(f"Host: {host}")
    if "content-length" not in known and (body or method in WITH_BODY):
        lines.append(f"Content-Length: {len(body or b'')}")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    text = "\r\n".join([*lines, "", ""])
    if text.count("\n") != len(lines) + 1 or text.count("\r") != len(lines) + 1 or "\0" in text or " " in target:
        raise ValueError("a header field or an address has a control character")
    return text.encode("iso-8859-1")


class Lines(Protocol):
    """Where a response is read from."""

    def readline(self, size: int = -1, /) -> bytes: ...


class HeaderFields:
    """Header fields by case-insensitive name; the values of a repeated field are joined."""

    def __init__(self, fields: list[tuple[str, str]]) -> None:
        self._fields = fields
        self._values = values = {name.lower(): value for name, value in fields}
        if len(values) < len(fields):
            for lower in values:
                values[lower] = ", ".join(value for name, value in fields if name.lower() == lower)

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of a field."""
        return self._values.get(name.lower(), default)

    def get_all(self, name: str, default: list[str] | None = None) -> list[str] | None:
        """The value of a field in a list, for http.client."""
        value = self._values.get(name.lower())
        return default if value is None else [value]

    def items(self) -> ItemsView[str, str]:
        """The fields, with their names as they were sent."""
        return {name: self._values[name.lower()] for name, _ in self._fields}.items()


def content_length(headers: HeaderFields) -> int | None:
    """The length of the body; several different values, or no number, are an error.

    >>> content_length(HeaderFields([("Content-Length", "5"), ("content-length", "5")]))
    5
    """
    text = headers.get("Content-Length")
    if text is None:
        return None
    (length, *others) = {part.strip() for part in text.split(",")}
    if others or not _LENGTH.fullmatch(length):
        raise http.client.HTTPException(f"Content-Length is no length: {text[:40]!r}")
    return int(length)


def read_header(stream: Lines) -> tuple[int, str, bool, HeaderFields]:
    """Read a response up to its body: the status, the reason, whether it is older than HTTP/1.1, the header fields."""
    for _ in range(MAX_INTERIM):
        lines = _lines(stream)
        status = lines[0].decode("iso-8859-1")
        found = _STATUS.fullmatch(status)
        if found is None:
            raise http.client.BadStatusLine(status)
        if found[2][0] != "1" or found[2] == _SWITCHING:
            break
    else:
        raise http.client.HTTPException(f"more than {MAX_INTERIM} interim responses")
    text = b"".join(lines[1:])
    if b"\n " in text or b"\n\t" in text:  # an old way to write long values
        text = _FOLDED.sub(b" ", text)
    if b"\0" in text or text.count(b"\r") != text.count(b"\r\n"):
        raise http.client.HTTPException("a header field has a control character")
    fields = [(name, value.rstrip()) for name, value in _FIELD.findall(text.decode("iso-8859-1"))]
    if len(fields) != text.count(b"\n"):
        raise http.client.HTTPException("a header field has no name")
    return int(found[2]), (found[3] or "").strip(), found[1] in ("0.9", "1.0"), HeaderFields(fields)


def _lines(stream: Lines) -> list[bytes]:
    """The lines up to the blank one; a header that was cut is an error, for it could lack the length of the body."""
    lines: list[bytes] = []
    while (line := stream.readline(MAX_LINE + 1)) not in (b"\r\n", b"\n"):
        if len(line) > MAX_LINE:
            raise http.client.LineTooLong("header line")
        if line[-1:] != b"\n":
            if lines and not lines[0].startswith(b"HTTP/"):
                raise http.client.BadStatusLine("something else than HTTP")
            raise http.client.RemoteDisconnected("the header was cut" if lines or line else "no answer came")
        if len(lines) > MAX_LINES:
            raise http.client.HTTPException(f"got more than {MAX_LINES} headers")
        lines.append(line)
    if not lines:
        raise http.client.BadStatusLine("an empty line")
    return lines
