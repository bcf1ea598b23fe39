from __future__ import annotations

import gc
import os

import pytest

from leftovers import open_descriptors
from servers.faults import fault_proxy
from waiting import soon
from webdataset.storage.http.pool import kept_alive
from webdataset.storage.http.requests import request


@pytest.fixture
def proxy(nginx):
    """The way to a server; it counts the connections."""
    gc.collect()  # passes that other tests have left open keep connections, too
    nginx.put("small.bin", b"data")
    with fault_proxy(nginx.port) as proxy:
        yield proxy


def read(proxy):
    return request("GET", proxy.url("/small.bin")).body


def test_a_connection_is_used_again_while_it_is_kept_and_closed_afterwards(proxy):
    idle = open_descriptors(proxy.port)
    with kept_alive():
        assert read(proxy) == read(proxy) == b"data"
        with kept_alive():
            pass
        assert read(proxy) == b"data"
        assert proxy.connections == 1
    assert soon(lambda: open_descriptors(proxy.port) <= idle)
    assert read(proxy) == b"data"
    assert proxy.connections == 2


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(server):
    url = server.whole("/a", b"data")
    with kept_alive():
        for _ in range(3):
            assert request("GET", url, retries=0).body == b"data"


def test_a_forked_process_leaves_its_parents_connections_alone(proxy):
    with kept_alive():
        assert read(proxy) == b"data"
        child = os.fork()
        if not child:
            os._exit(read(proxy) != b"data")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert proxy.connections == 2
        assert read(proxy) == b"data"
        assert proxy.connections == 2
