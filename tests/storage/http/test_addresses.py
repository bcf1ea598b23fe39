from __future__ import annotations

import random

import pytest

from webdataset.errors import StorageError
from webdataset.storage.http.reader import open_http


def test_a_url_is_sent_as_it_was_given_but_for_what_cannot_be_sent(server):
    server.whole("/a%20b/%41", b"1")
    open_http(server.url("/a b/%41?x={1}&y=a+b%2F")).close()
    assert server.requests[0][0] == "/a%20b/%41?x={1}&y=a+b%2F"


@pytest.mark.parametrize(
    "url",
    ["http:///a.tar", "http://", "http://h:99999/", "http://[::1/a", "http://a..b/x", f"http://{'a' * 64}.example/a",
     "http://\u2100.example/a.tar"],
)  # fmt: skip
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


@pytest.mark.parametrize("url", ["http://far.example/a.tar", "https://far.example/a.tar"])
def test_a_proxy_that_wants_tls_is_refused_before_it_gets_a_password_in_plain_text(server, url):
    with pytest.raises(StorageError, match="http:") as refused:
        open_http(url, proxy=f"https://me:secret@127.0.0.1:{server.port}")
    assert "secret" not in str(refused.value)
    assert server.requests == []


def test_a_proxy_that_is_down_is_named_with_the_cure(server, closed_port):
    proxy = f"127.0.0.1:{closed_port}"
    with pytest.raises(StorageError, match=f" {proxy} ") as raised:
        open_http(server.whole("/a.tar", b"data"), proxy=f"http://me:secret@{proxy}", first_pause=0.001)
    assert "http_proxy" in raised.value.hint
    with pytest.raises(StorageError, match=f" {proxy} "):
        open_http("https://far.example/a.tar", proxy=f"http://{proxy}", first_pause=0.001)


DATA = random.Random(1).randbytes(3_000_000)


@pytest.fixture(scope="module")
def address(nginx):
    return nginx.put("data.tar", DATA)


def test_a_password_of_the_url_or_of_netrc_is_used(nginx, address, tmp_path, monkeypatch):
    with open_http(nginx.url("/guarded/data.tar").replace("//", "//me:secret@")) as stream:
        assert stream.read() == DATA
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\ndefault login x password y\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with open_http(nginx.url("/guarded/data.tar")) as stream:
        assert stream.read() == DATA


def test_netrc_gives_nothing_to_other_hosts(server, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine elsewhere login me password secret\ndefault login x password y\n")
    monkeypatch.setenv("NETRC", str(netrc))
    open_http(server.whole("/a.tar", b"x")).close()
    assert "authorization" not in server.requests[0][1]


def test_a_broken_netrc_is_a_warning(server, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine a login b\nnonsense here\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with pytest.warns(UserWarning, match="passwords"):
        open_http(server.whole("/a.tar", b"x")).close()


def test_no_proxy_names_hosts_that_are_asked_directly(nginx, squid, address, monkeypatch):
    monkeypatch.setenv("http_proxy", squid.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    before = len(squid.log("/data.tar"))
    open_http(address).close()
    assert len(squid.log("/data.tar")) == before
