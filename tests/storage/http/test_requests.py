"""Whole small requests, and headers that are prepared for each of them."""

from __future__ import annotations

import pytest

from webdataset.errors import MissingShardError, StorageError
from webdataset.storage.http.requests import request
from webdataset.storage.http.stream import HttpStream


def counting(calls):
    def prepare(method, url, headers):
        calls.append((method, url, headers.get("Range")))
        return {**headers, "X-Signature": str(len(calls))}

    return prepare


QUICK = {"first_pause": 0.001}


def test_an_answer_has_status_headers_and_body(server):
    answer = request("GET", server.whole("/a", b"data", X_Thing="1"))
    assert (answer.status, answer.body, answer.headers.get("x-thing")) == (200, b"data", "1")


def test_put_and_post_send_their_body(nginx):
    answer = request("PUT", nginx.url("/put/a b.bin"), body=b"data", ok=(201,))
    assert answer.status == 201
    assert (nginx.files / "put" / "a b.bin").read_bytes() == b"data"
    assert request("HEAD", nginx.url("/put/a b.bin")).headers.get("Content-Length") == "4"
    assert request("DELETE", nginx.url("/put/a b.bin")).status == 204


def test_every_resumption_of_a_stream_is_prepared_anew_with_its_range(server):
    calls = []
    url = server.cut("/a", b"0123456789" * 100, [300, 300], ETag='"1"')
    with HttpStream(url, prepare=counting(calls), **QUICK) as stream:
        assert stream.read() == b"0123456789" * 100
    assert [asked for _, _, asked in calls] == [None, "bytes=300-", "bytes=600-"]
    assert [headers["x-signature"] for _, headers in server.requests] == ["1", "2", "3"]


def test_a_redirect_can_be_the_answer(server):
    answer = request("GET", server.redirect("/a", "http://target/b", 307), follow=False, ok=(307,))
    assert answer.headers.get("location") == "http://target/b"


def test_a_missing_object_is_a_missing_file_and_a_refusal_names_the_cure(server):
    with pytest.raises(MissingShardError):
        request("GET", server.url("/none"))
    body = b"<Error><Code>AccessDenied</Code><Message>no, not you</Message></Error>"

    def route(handler):
        handler.send_response(403)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    server.routes["/a"] = route
    with pytest.raises(StorageError, match="AccessDenied: no, not you") as raised:  # the server's own words
        request("GET", server.url("/a"))
    assert raised.value.status == 403
    assert "credentials" in raised.value.hint


def test_what_is_not_idempotent_is_sent_once(server):
    url = server.status("/a", 500, then=b"data")
    with pytest.raises(StorageError) as raised:
        request("GET", url, idempotent=False, **QUICK)
    assert (raised.value.status, raised.value.retryable) == (500, True)
    assert len(server.requests) == 1
    assert request("GET", server.status("/b", 503, then=b"data"), idempotent=False, **QUICK).body == b"data"


def test_a_cut_answer_is_asked_for_again(server):
    assert request("GET", server.cut("/a", b"x" * 1000, [10]), **QUICK).body == b"x" * 1000


def test_an_endless_answer_is_refused(server):
    with pytest.raises(StorageError, match="100"):
        request("GET", server.whole("/a", b"x" * 1000), most_bytes=100)
