from __future__ import annotations

import socket
import threading
from functools import partial

import pytest

from saying import read
from webdataset.errors import MissingShardError, StorageError, UnavailableError
from webdataset.gopen import gopen
from webdataset.storage.http.requests import request

SHARD = bytes(range(256)) * 1000

QUICK = {"first_pause": 0.001}


NINE = [503] * 9  # more than were ever tried before there was patience


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 520, 408])
def test_an_answer_that_may_pass_is_waited_for(patient, server, status):
    url = server.status("/a.tar", *[status] * 9, then=SHARD)
    with gopen(url, **QUICK) as stream:
        assert stream.read() == SHARD
    assert len(server.requests) == 10
    assert len(patient.begun) == len(patient.over) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 501, 505])
def test_an_answer_that_will_not_change_is_an_error_at_once(patient, server, status):
    url = server.status("/a.tar", status)
    for ask in (gopen, partial(request, "GET")):
        with pytest.raises(StorageError) as raised:
            ask(url)
        error = raised.value
        assert (error.url, error.status, error.retryable) == (url, status, False)
        assert isinstance(error, MissingShardError) == (status in (404, 410))
    assert len(server.requests) == 2
    assert patient.lines == []


def test_a_bad_certificate_is_an_error_at_once(patient, tls_server):
    asked = []
    accept = tls_server.http.get_request
    tls_server.http.get_request = lambda: asked.append(1) or accept()
    with pytest.raises(StorageError, match="certificate") as raised:
        gopen(tls_server.whole("/a.tar", SHARD))
    assert "SSL_CERT_FILE" in raised.value.hint
    assert len(asked) == 1
    assert patient.lines == []


def test_https_where_http_is_spoken_is_an_error_at_once(patient, server):
    with pytest.raises(StorageError, match="TLS"):
        gopen(server.whole("/a.tar", SHARD).replace("http:", "https:"))
    assert patient.lines == []


def test_something_else_than_a_web_server_is_not_waited_for_for_long(patient):
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        for _ in range(5):
            client, _ = listener.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"SSH-2.0-OpenSSH\r\n")

    threading.Thread(target=serve, daemon=True).start()
    with listener, pytest.raises(UnavailableError, match="HTTP"):
        gopen(f"http://127.0.0.1:{listener.getsockname()[1]}/a.tar", **QUICK)


def lookups(monkeypatch, answers):
    """The name service says these things, then the truth."""
    real, asked = socket.getaddrinfo, []

    def look_up(host, *words, **options):
        asked.append(host)
        if answers and host == "server.test":
            raise socket.gaierror(answers.pop(0), "told so")
        return real("127.0.0.1" if host == "server.test" else host, *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def test_a_name_service_that_does_not_answer_is_waited_for(patient, server, monkeypatch):
    server.whole("/a.tar", SHARD)
    lookups(monkeypatch, [socket.EAI_AGAIN] * 9)
    with gopen(f"http://server.test:{server.port}/a.tar", **QUICK) as stream:
        assert stream.read() == SHARD
    assert len(patient.begun) == len(patient.over) == 1


def test_a_name_that_nobody_has_is_an_error_at_once(patient, monkeypatch):
    asked = lookups(monkeypatch, [socket.EAI_NONAME])
    with pytest.raises(StorageError) as raised:
        gopen("http://server.test:1234/a.tar")
    assert (raised.value.retryable, "name" in raised.value.hint) == (False, True)
    assert asked == ["server.test"]
    assert patient.lines == []


def test_a_name_that_goes_missing_after_its_server_has_answered_is_waited_for(patient, server, monkeypatch):
    """As that of a service in a cluster of containers does, while its only one starts again."""
    server.whole("/a.tar", SHARD)
    answers = []
    lookups(monkeypatch, answers)
    url = f"http://server.test:{server.port}/a.tar"
    gopen(url).close()
    answers += [socket.EAI_NONAME] * 9
    with gopen(url, **QUICK) as stream:
        assert stream.read() == SHARD


def test_a_reason_cannot_give_orders_to_a_terminal() -> None:
    with pytest.raises(StorageError) as caught:
        read(b"HTTP/1.1 404 \x1b[2Jgone\x07\r\nContent-Length: 0\r\n\r\n")
    assert str(caught.value).isprintable()
