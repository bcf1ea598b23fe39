"""The heads of answers, read as http.client reads them, only faster and never in part."""

from __future__ import annotations

import http.client
import io
import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from webdataset.storage.http.connections import FIELDS, Response
from webdataset.storage.http.headers import read_header, request_header

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


def test_an_answer_of_a_newer_python_has_a_whole_head_and_our_headers() -> None:
    with pytest.raises(http.client.RemoteDisconnected, match="cut"):
        begun(ResponseOfANewerPython, b"HTTP/1.1 200 OK\r\nContent-Le", "GET")
    response = ResponseOfANewerPython(Socket(b"HTTP/1.1 200 OK\r\na: 1\r\nA: 2\r\nContent-Length: 3\r\n\r\nbody"))
    response.begin()
    assert (response.headers.get("a"), response.read()) == ("1, 2", b"bod")


def test_a_field_that_comes_twice_has_both_values() -> None:
    *_, headers = read_header(io.BytesIO(b"HTTP/1.1 200 OK\r\nVary: a\r\nx: 1\r\nvary: b\r\n\r\n"))
    assert (headers.get("Vary"), headers.get("X"), headers.get("y")) == ("a, b", "1", None)
    assert headers.get_all("vary") == ["a, b"]


def test_interim_answers_are_passed_over_but_not_without_end() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    status, _, _, headers = read_header(io.BytesIO(hints * 3 + b"HTTP/1.1 206 OK\r\nA: b\r\n\r\n"))
    assert (status, dict(headers.items())) == (206, {"A": "b"})
    with pytest.raises(http.client.HTTPException, match="interim"):
        read_header(io.BytesIO(hints * 100))


def test_a_long_value_may_go_on_in_the_next_line() -> None:
    *_, headers = read_header(io.BytesIO(b"HTTP/1.1 200 OK\r\na: 1\r\n  2\r\n\t3\r\nb: 4\r\n\r\n"))
    assert dict(headers.items()) == {"a": "1 2 3", "b": "4"}


@pytest.mark.parametrize("cut", range(len(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r")))
def test_a_head_that_was_cut_is_no_answer(cut: int) -> None:
    with pytest.raises(http.client.RemoteDisconnected):
        read_header(io.BytesIO(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r"[:cut]))


@pytest.mark.parametrize(
    "head",
    [
        b"\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 1000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na b: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: 1\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"1" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_said_to_be_none(head: bytes) -> None:
    with pytest.raises(http.client.HTTPException):
        read_header(io.BytesIO(head))


# -- requests ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", ["a\r\nX: 1", "a\nX: 1", "a\rX", "a\0"])
def test_no_value_can_begin_another_field(bad: str) -> None:
    good: dict[str, Any] = {"method": "GET", "target": "/a", "host": "host", "headers": {"A": "b"}, "body": None}
    request_header(**good)
    for wrong in ({"target": f"/{bad}"}, {"host": bad}, {"headers": {"A": bad}}, {"headers": {bad: "A"}}):
        with pytest.raises(ValueError, match="control character"):
            request_header(**good | wrong)
    with pytest.raises(ValueError, match="control character"):
        request_header(**good | {"target": "/a HTTP/1.1"})


@pytest.mark.parametrize(
    ("method", "headers", "body", "sent"),
    [
        ("GET", {}, None, ["Host: host"]),
        ("PUT", {}, None, ["Host: host", "Content-Length: 0"]),
        ("PUT", {}, b"abc", ["Host: host", "Content-Length: 3"]),
        ("GET", {}, b"abc", ["Host: host", "Content-Length: 3"]),
        ("PUT", {"content-length": "9"}, iter([b""]), ["Host: host", "content-length: 9"]),
        ("GET", {"host": "other", "A": "é"}, None, ["host: other", "A: é"]),
    ],
)
def test_what_every_request_needs_is_added(method: str, headers: dict[str, str], body: Any, sent: list[str]) -> None:
    head = request_header(method, "/a?b", "host", headers, body)
    assert head.decode("iso-8859-1").split("\r\n") == [f"{method} /a?b HTTP/1.1", *sent, "", ""]
