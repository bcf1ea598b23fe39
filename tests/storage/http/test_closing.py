"""Leaving early: whatever others do, nobody waits for them, and nothing is left behind.

Whoever waits for a server that is silent gives up after 30 seconds at the earliest. Leaving must be over before that,
on the slowest machine.
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

import webdataset as wds
from servers.faults import Stall, fault_proxy
from tests_support import numbered, tar_bytes
from waiting import soon
from webdataset.gopen import gopen
from webdataset.storage.http.reader import PART_BYTES

pytestmark = pytest.mark.timeout(25, func_only=True)

SHARD = tar_bytes(numbered(2000))
FIVE_SAMPLES = 5 * 2048
CERTIFICATE = str(Path(__file__).parents[1] / "localhost.pem")


def leave(begin):
    """Close what is begun, and see that its threads end, while all that they wait for is still held back."""
    before = set(threading.enumerate())
    begin().close()

    def still_there():
        names = [thread.name for thread in set(threading.enumerate()) - before]
        # one that opens the next shard ends by itself when it is answered, and holds up nobody
        return [name for name in names if name.startswith(("webdataset", "reading")) and name != "webdataset-open"]

    assert soon(lambda: not still_there())


def begun(url, **options):
    """An iterator that has given one sample."""
    samples = iter(wds.WebDataset(url, shardshuffle=False, **options))
    next(samples)
    return samples


def started(url, **options):
    """A stream that has given some bytes."""
    stream = gopen(url, **options)
    assert stream.read(10_000)
    return stream


@pytest.fixture
def hanging():
    """A server that takes connections and never says a word."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    yield listener.getsockname()[1]
    listener.close()


def test_in_the_middle_of_a_body(server):
    url = server.stall("/a.tar", SHARD, after=FIVE_SAMPLES)
    leave(lambda: begun(url))


def test_in_the_middle_of_a_tls_body(tls_server, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", CERTIFICATE)
    url = tls_server.stall("/a.tar", SHARD, after=FIVE_SAMPLES).replace("127.0.0.1", "localhost")
    leave(lambda: begun(url))


def test_in_the_middle_of_an_object(moto_server, nobody, monkeypatch, make_fault_proxy):
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"{moto_server.bucket()}/a.tar"
    moto_server.store(url, SHARD)
    proxy = make_fault_proxy(moto_server.data_port, default=Stall(after=20_000))
    for name, value in moto_server.environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    leave(lambda: started(url))


def test_while_a_part_of_several_is_awaited(nginx):
    nginx.put("big.bin", bytes(4 * PART_BYTES))
    with fault_proxy(nginx.port, default=Stall(after=100_000)) as proxy:
        leave(lambda: started(proxy.url("/big.bin"), connections=4))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_while_the_next_shard_is_opened_at_a_server_that_never_answers(nginx, hanging, scheme):
    url = nginx.put("first.tar", tar_bytes(numbered(3)))
    urls = [url, f"{scheme}://127.0.0.1:{hanging}/next.tar"]
    leave(lambda: begun(urls))


def test_while_the_name_of_a_host_is_looked_up(nginx, monkeypatch):
    url = nginx.put("first.tar", tar_bytes(numbered(3)))
    release = threading.Event()
    real = socket.getaddrinfo

    def slow(host, *words, **options):
        if host == "far.invalid":
            release.wait()
        return real(host, *words, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        begun([url, "http://far.invalid/a.tar"]).close()
        assert not release.is_set()
    finally:
        release.set()


def test_while_a_busy_server_is_given_time(server, nginx):
    url = nginx.put("first.tar", tar_bytes(numbered(3)))
    busy = server.status("/busy.tar", 503, Retry_After="60")
    leave(lambda: begun([url, busy]))


def test_while_a_shard_is_fetched_into_the_cache(server, tmp_path):
    url = server.stall("/a.tar", SHARD, after=FIVE_SAMPLES)
    leave(lambda: begun(url, cache_dir=str(tmp_path)))
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == []


def test_while_a_command_writes_no_more_and_heeds_no_signal(make_shard):
    command = f"trap '' TERM; cat {make_shard()}; sleep 1000 & wait"
    leave(lambda: begun(f"pipe:{command}"))


def test_in_the_middle_of_a_file_of_another_machine(ssh, tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(4 * PART_BYTES))
    leave(lambda: started(ssh.url(str(path))))
