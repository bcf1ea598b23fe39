from __future__ import annotations

import base64

import pytest

from webdataset.errors import SecurityError, StorageError
from webdataset.storage.http.reader import open_http
from webdataset.storage.http.requests import request
from webdataset.storage.http.stream import HttpStream


@pytest.fixture
def secure(monkeypatch):
    monkeypatch.setenv("WDS_SECURE", "1")


def test_redirects_are_followed(server):
    server.whole("/b.tar", b"data")
    for status in (301, 302, 303, 307, 308):
        with open_http(server.redirect("/a.tar", "/b.tar", status)) as stream:
            assert stream.read() == b"data"


def test_endless_redirects_are_an_error(server):
    with pytest.raises(StorageError, match="10"):
        open_http(server.redirect("/a.tar", "/a.tar"))
    assert len(server.requests) == 11


def test_a_password_goes_to_its_host_and_no_further(server, other_server):
    other_server.whole("/b.tar", b"data")
    server.redirect("/a.tar", other_server.url("/b.tar"))
    url = f"http://me:p%40ss@127.0.0.1:{server.port}/a.tar"
    with open_http(url) as stream:
        assert stream.read() == b"data"
    assert server.requests[0][1]["authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert "authorization" not in other_server.requests[0][1]


def test_a_token_goes_to_its_host_and_no_further(server, other_server):
    other_server.whole("/b.tar", b"data")
    server.redirect("/a.tar", other_server.url("/b.tar"))
    headers = {"Authorization": "Bearer t", "Cookie": "c", "X-Api-Key": "k"}
    HttpStream(server.url("/a.tar"), headers=headers).close()
    assert server.requests[0][1]["authorization"] == "Bearer t"
    assert not {"authorization", "cookie", "x-api-key"} & set(other_server.requests[0][1])


def test_a_password_in_a_redirect_is_not_sent(server):
    server.whole("/b.tar", b"data")
    open_http(server.redirect("/a.tar", f"http://evil:pw@127.0.0.1:{server.port}/b.tar")).close()
    assert "authorization" not in server.requests[1][1]


def test_a_password_is_kept_on_a_redirect_within_its_host(server):
    server.whole("/b.tar", b"data")
    server.redirect("/a.tar", "/b.tar")
    open_http(f"http://me:pw@127.0.0.1:{server.port}/a.tar").close()
    assert "authorization" in server.requests[1][1]


def test_a_redirect_to_a_private_address_is_refused_in_secure_mode(server, other_server, secure):
    other_server.whole("/b.tar", b"internal")
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(SecurityError, match="private"):
            open_http(server.redirect("/a.tar", other_server.url("/b.tar", host)))
    assert other_server.requests == []


QUICK = {"first_pause": 0.001}


def counting(calls):
    def prepare(method, url, headers):
        calls.append((method, url, headers.get("Range")))
        return {**headers, "X-Signature": str(len(calls))}

    return prepare


def test_every_request_is_prepared_anew(server):
    calls = []
    url = server.status("/a", 503, 500, then=b"data")
    assert request("GET", url, prepare=counting(calls), **QUICK).body == b"data"
    assert calls == [("GET", url, None)] * 3
    assert [headers["x-signature"] for _, headers in server.requests] == ["1", "2", "3"]


def test_nothing_is_prepared_for_another_host_nor_on_the_way_back(server, other_server):
    calls = []
    server.whole("/c", b"data")
    other_server.redirect("/b", server.url("/c"))
    server.redirect("/a", other_server.url("/b"))
    assert request("GET", server.url("/a"), prepare=counting(calls)).body == b"data"
    assert len(calls) == 1
    assert "x-signature" not in other_server.requests[0][1]
    assert "x-signature" not in server.requests[1][1]


def test_a_redirect_within_the_host_is_prepared_for_its_own_url(server):
    calls = []
    server.whole("/b", b"data")
    request("GET", server.redirect("/a", "/b?x=1"), prepare=counting(calls))
    assert [url for _, url, _ in calls] == [server.url("/a"), server.url("/b?x=1")]


def test_retry_after_is_honoured_as_seconds_and_as_a_date(server):
    for value in ("0", "Thu, 01 Jan 1970 00:00:00 GMT", "nonsense"):
        url = server.status("/a", 429, then=b"data", Retry_After=value)
        assert request("GET", url, **QUICK).body == b"data"
