from __future__ import annotations

import base64
import os
import socket
import threading
from pathlib import Path

import pytest

from waiting import soon
from webdataset.base.reports import Report
from webdataset.base.settings import settings
from webdataset.errors import MissingShardError, SecurityError, StorageError
from webdataset.storage.http import connections
from webdataset.storage.http.reader import open_http
from webdataset.storage.http.stream import HttpStream

DATA = os.urandom(300_000)
QUICK = {"first_pause": 0.001}


@pytest.fixture
def secure():
    settings.secure = True
    yield
    settings.secure = None


def test_a_body_arrives_whole(server):
    with open_http(server.whole("/a.tar", DATA)) as stream:
        assert stream.read() == DATA
        assert stream.read(10) == b""


def test_reads_of_any_size_give_the_same_bytes(server):
    url = server.whole("/a.tar", DATA[:5000])
    for size in (1, 7, 4096, 5000, 9000):
        with open_http(url) as stream:
            parts = []
            while part := stream.read(size):
                parts.append(part)
        assert b"".join(parts) == DATA[:5000]
        assert all(len(part) == size for part in parts[:-1])


def test_lines_and_buffers_can_be_read_too(server):
    with open_http(server.whole("/a.txt", b"one\ntwo\n")) as stream:
        assert list(stream) == [b"one\n", b"two\n"]
    buffer = bytearray(8)
    with open_http(server.whole("/a.txt", b"12345678")) as stream:
        assert stream.readinto(buffer) == 8
    assert bytes(buffer) == b"12345678"


def test_an_empty_body_is_empty(server):
    with open_http(server.whole("/empty", b"")) as stream:
        assert stream.read() == b""


def test_the_request_says_who_asks_and_wants_no_encoding(server):
    open_http(server.whole("/a.tar", b"x")).close()
    _, headers = server.requests[0]
    assert headers["user-agent"] == "webdataset/2"
    assert headers["accept-encoding"] == "identity"


def test_a_broken_body_is_continued_at_the_exact_byte(server):
    url = server.cut("/a.tar", DATA, [100_000, 50_000], ETag='"1"', Accept_Ranges="bytes")
    report = Report()
    with report.in_force(), open_http(url, **QUICK) as stream:
        assert stream.read() == DATA
        assert stream.retried == 2
    assert [headers.get("range") for _, headers in server.requests] == [None, "bytes=100000-", "bytes=150000-"]
    assert server.requests[1][1]["if-range"] == '"1"'
    assert report.as_dict()["shards_retried"] == 1


def test_progress_renews_the_retries(server):
    cuts = [1000] * 50
    url = server.cut("/a.tar", DATA[:60_000], cuts, ETag='"1"')
    with open_http(url, retries=1, **QUICK) as stream:
        assert stream.read() == DATA[:60_000]


def test_a_body_that_breaks_without_a_validator_is_an_error(server):
    url = server.cut("/a.tar", DATA, [100_000])
    with open_http(url, **QUICK) as stream, pytest.raises(StorageError, match="ends early: got 100000 of 300000 bytes"):
        stream.read()


def test_a_body_that_breaks_before_its_first_byte_is_asked_for_again(server):
    url = server.cut("/a.tar", DATA, [0])
    with open_http(url, **QUICK) as stream:
        assert stream.read() == DATA


def test_an_object_that_changed_in_between_is_an_error(server):
    def route(request):
        from_start = "Range" not in request.headers
        tag = '"1"' if from_start else '"2"'
        request.send_response(200)
        request.send_header("ETag", tag)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"x" * (500 if from_start else 1000))

    server.routes["/a.tar"] = route
    with open_http(server.url("/a.tar"), **QUICK) as stream, pytest.raises(StorageError, match="changed while"):
        stream.read()


def test_a_server_that_ignores_ranges_is_an_error(server):
    url = server.cut("/a.tar", DATA, [1000], ignore_range=True, ETag='"1"')
    with open_http(url, **QUICK) as stream, pytest.raises(StorageError, match="cannot continue in the middle"):
        stream.read()


def test_a_continuation_at_another_byte_is_an_error(server):
    def route(request):
        first = "Range" not in request.headers
        request.send_response(200 if first else 206)
        request.send_header("ETag", '"1"')
        request.send_header("Content-Length", "1000")
        if not first:
            request.send_header("Content-Range", "bytes 0-999/1000")
        request.end_headers()
        request.wfile.write(b"x" * 500)

    server.routes["/a.tar"] = route
    with open_http(server.url("/a.tar"), **QUICK) as stream, pytest.raises(StorageError, match="continues at byte 0"):
        stream.read()


def test_a_connection_that_always_breaks_ends_in_an_error(server):
    url = server.cut("/a.tar", DATA, [100] + [0] * 20, ETag='"1"')
    with open_http(url, retries=3, **QUICK) as stream, pytest.raises(StorageError, match="4 times in a row"):
        stream.read()


def test_a_stalling_server_is_an_error_after_the_limit(server):
    url = server.stall("/a.tar", DATA, after=1000)
    with (
        open_http(url, read_timeout=0.2, **QUICK) as stream,
        pytest.raises(StorageError, match=r"no byte came for 0\.2 s"),
    ):
        stream.read()


def test_closing_ends_a_read_in_another_thread(server):
    stream = open_http(server.stall("/a.tar", DATA, after=1000), read_timeout=1000)
    stream.read(1000)
    ended = []

    def read():
        try:
            ended.append(stream.read(1))
        except ValueError as exn:
            ended.append(exn)

    thread = threading.Thread(target=read)
    thread.start()
    stream.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(ended[0], ValueError)


def test_a_chunked_body_arrives_whole_and_a_cut_one_is_an_error(server):
    def route(request):
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"5\r\nhello\r\n" + (b"0\r\n\r\n" if request.path == "/whole" else b"9\r\nwor"))

    server.routes["/whole"] = server.routes["/cut"] = route
    with open_http(server.url("/whole")) as stream:
        assert stream.read() == b"hello"
    with open_http(server.url("/cut"), **QUICK) as stream, pytest.raises(StorageError, match="ends early: got 8 bytes"):
        stream.read()


def test_a_missing_object_is_a_missing_file_at_once(server):
    with pytest.raises(FileNotFoundError, match="404") as caught:
        open_http(server.url("/none.tar"))
    assert isinstance(caught.value, MissingShardError)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 405])
def test_a_refusal_is_an_error_at_once(server, status):
    with pytest.raises(StorageError, match=str(status)):
        open_http(server.status("/a.tar", status))
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_again(server, status):
    with open_http(server.status("/a.tar", status, status, then=b"data"), **QUICK) as stream:
        assert stream.read() == b"data"
    assert len(server.requests) == 3


def test_a_server_that_stays_busy_is_an_error(server):
    with pytest.raises(StorageError, match="503"):
        open_http(server.status("/a.tar", 503), retries=2, **QUICK)
    assert len(server.requests) == 3


def test_a_refused_connection_is_an_error_with_the_url():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(StorageError, match=rf"connection failed .*url http://127\.0\.0\.1:{port}/a\.tar"):
        open_http(f"http://127.0.0.1:{port}/a.tar", retries=1, **QUICK)


def test_redirects_are_followed(server):
    server.whole("/b.tar", b"data")
    for status in (301, 302, 303, 307, 308):
        with open_http(server.redirect("/a.tar", "/b.tar", status)) as stream:
            assert stream.read() == b"data"


def test_endless_redirects_are_an_error(server):
    with pytest.raises(StorageError, match="more than 10 redirects"):
        open_http(server.redirect("/a.tar", "/a.tar"))
    assert len(server.requests) == 11


@pytest.mark.parametrize("target", ["file:///etc/passwd", "pipe:touch x", "ftp://h/a", "gopher://h/"])
def test_a_redirect_to_anything_but_a_web_server_is_refused(server, target):
    with pytest.raises(SecurityError, match="refused"):
        open_http(server.redirect("/a.tar", target))


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


def test_secrets_are_masked_in_errors(server):
    url = f"http://me:hidden@127.0.0.1:{server.port}/a.tar?token=alsohidden"
    with pytest.raises(StorageError) as caught:
        open_http(url)
    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(caught.value)


def test_a_redirect_to_a_private_address_is_refused_in_secure_mode(server, other_server, secure):
    other_server.whole("/b.tar", b"internal")
    for host in ("127.0.0.1", "localhost"):
        with pytest.raises(SecurityError, match="private address"):
            open_http(server.redirect("/a.tar", other_server.url("/b.tar", host)))
    assert other_server.requests == []


@pytest.fixture
def trusted(monkeypatch):
    """The test server's certificate is trusted, as with a private authority."""
    monkeypatch.setenv("SSL_CERT_FILE", str(Path(__file__).parents[1] / "localhost.pem"))
    connections._tls.cache_clear()
    yield
    connections._tls.cache_clear()


def test_a_certificate_that_nobody_signed_is_an_error_with_the_cure(tls_server):
    connections._tls.cache_clear()
    with pytest.raises(StorageError, match=r"certificate is not trusted.*SSL_CERT_FILE"):
        open_http(tls_server.whole("/a.tar", DATA))


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
    with pytest.raises(SecurityError, match="from https to http"):
        open_http(url)
    assert server.requests == []
    monkeypatch.setenv("WDS_ALLOW_DOWNGRADE", "1")
    with open_http(url) as stream:
        assert stream.read() == b"data"
    assert "authorization" not in server.requests[0][1]


def test_a_url_is_sent_as_it_was_given_but_for_what_cannot_be_sent(server):
    server.whole("/a%20b/%41", b"1")
    open_http(server.url("/a b/%41?x={1}&y=a+b%2F")).close()
    assert server.requests[0][0] == "/a%20b/%41?x={1}&y=a+b%2F"


@pytest.mark.parametrize("url", ["http:///a.tar", "http://", "http://h:99999/", "http://[::1/a", "http://a..b/x"])
def test_an_address_without_a_host_is_an_error(url):
    with pytest.raises(StorageError):
        open_http(url, retries=0)


def test_a_line_break_in_a_url_cannot_add_a_header(server):
    with pytest.raises(StorageError):
        open_http(server.url("/a\r\nX-Evil: 1\r\n"))
    assert all("x-evil" not in headers for _, headers in server.requests)


def test_a_proxy_is_used_when_given_or_named_by_the_system(server, monkeypatch):
    server.routes["http://far.example/a.tar"] = lambda request: server.routes["/a.tar"](request)
    server.whole("/a.tar", b"data")
    with open_http("http://far.example/a.tar", proxy=f"http://u:p@127.0.0.1:{server.port}") as stream:
        assert stream.read() == b"data"
    assert server.requests[0][1]["proxy-authorization"].startswith("Basic ")
    monkeypatch.setenv("http_proxy", f"127.0.0.1:{server.port}")
    with open_http("http://far.example/a.tar") as stream:
        assert stream.read() == b"data"


def test_a_proxy_that_is_down_is_named_with_the_cure(server, closed_port):
    proxy = f"127.0.0.1:{closed_port}"
    with pytest.raises(StorageError, match=rf"the proxy {proxy} cannot be reached.*check http_proxy"):
        open_http(server.whole("/a.tar", b"data"), proxy=f"http://me:secret@{proxy}", first_pause=0.001)
    with pytest.raises(StorageError, match=rf"the proxy {proxy} cannot be reached"):
        open_http("https://far.example/a.tar", proxy=f"http://{proxy}", first_pause=0.001)


def test_writing_is_refused_with_the_cure(server):
    with pytest.raises(StorageError, match="not supported"):
        open_http(server.url("/a.tar"), "wb")


def test_no_socket_is_left_after_many_streams(server):
    url = server.whole("/a.tar", DATA)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with open_http(url) as stream:
            stream.read(10)
    # the server's own ends of these connections close a moment later
    assert soon(lambda: len(os.listdir("/proc/self/fd")) <= before)
