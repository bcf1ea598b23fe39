from __future__ import annotations

import http.client
import io
import os
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from webdataset.errors import SecurityError, StorageError
from webdataset.storage.http import connections
from webdataset.storage.http.connections import FIELDS, Response
from webdataset.storage.http.headers import read_header
from webdataset.storage.http.reader import open_http

DATA = os.urandom(300_000)
QUICK = {"first_pause": 0.001}

NAMES = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=12)


VALUES = st.text(string.ascii_letters + string.digits + ' ,;:/="-\u00e9', max_size=20).map(str.strip)


KNOWN = st.sampled_from(
    [
        ("Content-Length", "17"),
        ("Content-Length", "-1"),
        ("Content-Length", "many"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
        ("Connection", "Keep-Alive"),
        ("Proxy-Connection", "keep-alive"),
        ("Keep-Alive", "timeout=5"),
    ]
)


class Socket:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def makefile(self, *_: Any) -> Any:
        return io.BufferedReader(io.BytesIO(self.data))  # type: ignore[arg-type]


def begun(kind: Any, data: bytes, method: str) -> dict[str, Any]:
    response = kind(Socket(data), method=method)
    response.begin()
    fields = {name: value for name, value in vars(response).items() if name not in ("fp", "headers", "msg")}
    return fields | {"body": response.fp.read()}


class ResponseOfANewerPython(Response):
    """An answer with a field that is not known here, which http.client's own code is to set."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.new_field = None

    def _begin(self, *_: Any) -> None:
        raise AssertionError("this sets the known fields only")


@given(
    version=st.sampled_from(["HTTP/1.1", "HTTP/1.0"]),
    status=st.sampled_from([200, 204, 206, 304, 404, 503]),
    reason=st.sampled_from(["OK", "", "Not Found"]),
    fields=st.lists(st.one_of(KNOWN, st.tuples(NAMES, VALUES)), max_size=8, unique_by=lambda field: field[0].lower()),
    method=st.sampled_from(["GET", "HEAD"]),
    end=st.sampled_from(["\r\n", "\n"]),
    before=st.sampled_from(["", "HTTP/1.1 100 Continue\r\n\r\n"]),
)
def test_an_answer_means_what_it_means_to_http_client(
    *, version: str, status: int, reason: str, fields: list[tuple[str, str]], method: str, end: str, before: str
) -> None:
    lines = [f"{version} {status} {reason}", *(f"{name}: {value}" for name, value in fields), "", "body"]
    data = (before + end.join(lines)).encode("iso-8859-1")
    lengths = [value for name, value in fields if name.lower() == "content-length"]
    assume(all(value.isdecimal() and len(value) < 19 for value in lengths))  # others are errors, not no length
    expected = begun(http.client.HTTPResponse, data, method)
    assert begun(Response, data, method) == expected
    assert begun(ResponseOfANewerPython, data, method) == expected | {"new_field": None}
    *_, headers = read_header(io.BytesIO(data))
    for name, value in fields:
        assert headers.get(name.upper()) == value
    assert dict(headers.items()) == dict(fields)


def test_http_client_of_this_python_has_the_known_fields_only() -> None:
    """If not, answers are read correctly, but slowly: look at what is new, and add it."""
    response = http.client.HTTPResponse(Socket(b""))  # type: ignore[arg-type]
    assert vars(response).keys() == FIELDS


def test_http_client_of_this_python_has_the_methods_that_are_replaced_here() -> None:
    """A Python that calls others would read chunks and dial by its own rules: look at what it calls instead."""
    for name in ("_read_next_chunk_size", "_read_and_discard_trailer", "_close_conn"):
        assert callable(getattr(http.client.HTTPResponse, name))
    assert callable(vars(http.client.HTTPConnection("host"))["_create_connection"])


def test_an_answer_of_a_newer_python_has_a_whole_head_and_our_headers() -> None:
    with pytest.raises(http.client.RemoteDisconnected, match="cut"):
        begun(ResponseOfANewerPython, b"HTTP/1.1 200 OK\r\nContent-Le", "GET")
    response = ResponseOfANewerPython(Socket(b"HTTP/1.1 200 OK\r\na: 1\r\nA: 2\r\nContent-Length: 3\r\n\r\nbody"))
    response.begin()
    assert (response.headers.get("a"), response.read()) == ("1, 2", b"bod")


@pytest.fixture
def trusted(monkeypatch):
    """The test server's certificate is trusted, as with a private authority."""
    monkeypatch.setenv("SSL_CERT_FILE", str(Path(__file__).parents[1] / "localhost.pem"))
    connections._tls.cache_clear()
    yield
    connections._tls.cache_clear()


def test_a_private_authority_can_be_trusted(tls_server, trusted):
    with open_http(tls_server.whole("/a.tar", DATA)) as stream:
        assert stream.read() == DATA
    url = tls_server.cut("/b.tar", DATA, [100_000], ETag='"1"')
    with open_http(url, **QUICK) as stream:
        assert stream.read() == DATA


def test_a_certificate_for_another_name_is_an_error(tls_server, trusted):
    with pytest.raises(StorageError, match="certificate"):
        open_http(tls_server.url("/a.tar", host="127.1"))


def test_a_redirect_from_https_to_http_is_refused_unless_allowed(tls_server, server, trusted, monkeypatch):
    server.whole("/b.tar", b"data")
    tls_server.redirect("/a.tar", server.url("/b.tar"))
    url = f"https://me:pw@127.0.0.1:{tls_server.port}/a.tar"
    with pytest.raises(SecurityError, match="https"):
        open_http(url)
    assert server.requests == []
    monkeypatch.setenv("WDS_ALLOW_DOWNGRADE", "1")
    with open_http(url) as stream:
        assert stream.read() == b"data"
    assert "authorization" not in server.requests[0][1]
