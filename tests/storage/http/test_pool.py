from __future__ import annotations

import gc
import os

from webdataset.storage.http.pool import POOL, kept_alive
from webdataset.storage.http.requests import request
from webdataset.storage.http.stream import HttpStream


def test_a_connection_is_used_again_while_it_is_kept_and_closed_afterwards(nginx):
    gc.collect()  # passes that other tests have left open keep connections, too
    url = nginx.put("small.bin", b"data")
    with kept_alive():
        first = _connection_used(url)
        assert _connection_used(url) is first
        with kept_alive():
            pass
        assert _connection_used(url) is first
    assert not POOL._idle
    assert first.sock is None
    assert _connection_used(url) is not first


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(server):
    url = server.whole("/a", b"data")
    with kept_alive():
        for _ in range(3):
            assert request("GET", url, retries=0).body == b"data"


def _connection_used(url):
    stream = HttpStream(url)
    connection = stream._response.connection
    with stream:
        assert stream.read() == b"data"
    return connection


def test_a_forked_process_leaves_its_parents_connections_alone(nginx):
    url = nginx.put("small.bin", b"data")
    with kept_alive():
        first = _connection_used(url)
        child = os.fork()
        if not child:
            os._exit(0 if not POOL._idle and _connection_used(url) is not first else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert _connection_used(url) is first
