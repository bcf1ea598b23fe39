from __future__ import annotations

import os
import socket
import threading

import pytest

from waiting import soon
from webdataset.base.reports import Report
from webdataset.errors import StorageError, UnavailableError
from webdataset.storage.http.reader import open_http

DATA = os.urandom(300_000)
QUICK = {"first_pause": 0.001}


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
    with open_http(url, **QUICK) as stream, pytest.raises(StorageError, match="100000 of 300000") as raised:
        stream.read()
    assert raised.value.retryable


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
    with open_http(server.url("/a.tar"), **QUICK) as stream, pytest.raises(StorageError, match="changed"):
        stream.read()


def test_a_server_that_ignores_ranges_is_an_error(server):
    url = server.cut("/a.tar", DATA, [1000], ignore_range=True, ETag='"1"')
    with open_http(url, **QUICK) as stream, pytest.raises(StorageError, match="middle"):
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
    with open_http(server.url("/a.tar"), **QUICK) as stream, pytest.raises(StorageError, match="byte 0"):
        stream.read()


def test_a_connection_that_always_breaks_ends_in_an_error(server):
    url = server.cut("/a.tar", DATA, [100] + [0] * 20, ETag='"1"')
    with open_http(url, retries=3, **QUICK) as stream, pytest.raises(StorageError, match="100 of 300000"):
        stream.read()


def test_a_stalling_server_is_an_error_after_the_limit(server):
    url = server.stall("/a.tar", DATA, after=1000)
    with (
        open_http(url, read_timeout=0.2, **QUICK) as stream,
        pytest.raises(StorageError, match=r"0\.2"),
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
    with open_http(server.url("/cut"), **QUICK) as stream, pytest.raises(StorageError, match="8"):
        stream.read()


def test_a_refused_connection_is_an_error_with_the_url():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(UnavailableError) as raised:
        open_http(f"http://127.0.0.1:{port}/a.tar", retries=1, **QUICK)
    assert (raised.value.url, raised.value.status) == (f"http://127.0.0.1:{port}/a.tar", None)


def test_secrets_are_masked_in_errors(server):
    url = f"http://me:hidden@127.0.0.1:{server.port}/a.tar?token=alsohidden"
    with pytest.raises(StorageError) as caught:
        open_http(url)
    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(caught.value)


def test_writing_is_refused_with_the_cure(server):
    with pytest.raises(StorageError, match="supported"):
        open_http(server.url("/a.tar"), "wb")


def test_no_socket_is_left_after_many_streams(server):
    url = server.whole("/a.tar", DATA)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with open_http(url) as stream:
            stream.read(10)
    # the server's own ends of these connections close a moment later
    assert soon(lambda: len(os.listdir("/proc/self/fd")) <= before)
