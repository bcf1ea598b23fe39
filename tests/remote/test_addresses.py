"""Addresses of producers."""

from __future__ import annotations

import pytest

import webdataset as wds
from webdataset.remote.addresses import addresses, check_allowed, is_here, is_remote


@pytest.mark.parametrize(
    "text", ["cpu-0:7880", "tcp://cpu-0", "tcp://cpu-0:port", "tcp://a:70000", "udp://a:1", "dns://a", "ipc://", ""]
)
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        wds.RemoteLoader(text)


def test_lists_and_braces_are_expanded() -> None:
    assert addresses(["tcp://a:{1..2}", "ipc:///run/x"]) == ["tcp://a:1", "tcp://a:2", "ipc:///run/x"]


@pytest.mark.parametrize("text", ["tcp://10.0.0.1:1", "tcp://127.0.0.1.example.org:1", "tcp://*:1", "tcp://[::]:1"])
def test_other_machines_need_keys(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_here(text)
    with pytest.raises(wds.SecurityError, match="keys") as raised:
        check_allowed(text, None, insecure=False)
    assert raised.value.url == text
    check_allowed(text, object(), insecure=False)
    check_allowed(text, None, insecure=True)
    monkeypatch.setenv("WDS_ALLOW_BIND", "1")
    check_allowed(text, None, insecure=False)


def test_remote_urls_are_those_of_producers_and_streams() -> None:
    urls = ["tcp://a:1", "ipc:///a", "zsub://a:1", "zrpull+ipc:///a", "a.tar", "http://a", "z://a"]
    assert [is_remote(url) for url in urls] == [True] * 4 + [False] * 3
