"""The heads of answers, read as http.client reads them, only faster and never in part."""

from __future__ import annotations

import http.client
import io
from typing import Any

import pytest

from webdataset.storage.http.headers import read_header, request_header


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
