"""Web servers as they are: nginx, squid, and the ways to them that break."""

from __future__ import annotations

import hashlib
import random
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webdataset as wds
from leftovers import open_descriptors
from servers.faults import Cut, Fine, Reset, Stall, Together, fault_proxy
from tests_support import numbered, tar_bytes
from waiting import soon
from webdataset.base.reports import Report
from webdataset.errors import StorageError, UnavailableError
from webdataset.storage.http import reader
from webdataset.storage.http.reader import PART_BYTES, ParallelReader, ReadAhead, open_http
from webdataset.storage.http.stream import HttpStream

DATA = random.Random(1).randbytes(3_000_000)
QUICK = {"first_pause": 0.001}


@cache
def big_data():
    """More than a few parts; made when it is needed, since every process that tests fork has all that is there."""
    return random.Random(2).randbytes(5 * PART_BYTES + 12_345)


@pytest.fixture(scope="module")
def address(nginx):
    return nginx.put("data.tar", DATA)


@pytest.fixture(scope="module")
def big(nginx):
    return nginx.put("big.tar", big_data())


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("reading")]


def test_bytes_and_retries_are_counted(nginx, address):
    report = Report()
    with (
        fault_proxy(nginx.port, [Cut(after=1_000_000)]) as proxy,
        report.in_force(),
        open_http(proxy.url("/data.tar"), **QUICK) as stream,
    ):
        assert stream.read() == DATA
    assert report.as_dict()["bytes_read"] == len(DATA)
    assert report.as_dict()["shards_retried"] == 1


@pytest.mark.parametrize("fault", [Cut, Reset])
@pytest.mark.parametrize("after", [0, 10, 200, 1000, 1_000_000, 3_000_000])
def test_a_connection_that_breaks_anywhere_is_taken_up_at_the_byte(nginx, address, fault, after):
    with (
        fault_proxy(nginx.port, [fault(after=after)] * 3) as proxy,
        open_http(proxy.url("/data.tar"), **QUICK) as stream,
    ):
        assert stream.read() == DATA


def test_an_answer_that_is_cut_in_its_header_is_no_answer(nginx, address):
    for after in range(1, 300):
        with fault_proxy(nginx.port, [Cut(after=after)]) as proxy, open_http(proxy.url("/data.tar"), **QUICK) as stream:
            assert stream.length == len(DATA)


def test_a_connection_that_stalls_is_left_for_another(nginx, address):
    with (
        fault_proxy(nginx.port, [Stall(after=500_000), Stall(after=0)]) as proxy,
        open_http(proxy.url("/data.tar"), read_timeout=0.2, **QUICK) as stream,
    ):
        assert stream.read() == DATA
        assert stream.retried >= 2  # a machine that is busy may look like a server that stalls


def test_a_file_that_is_replaced_meanwhile_is_an_error(nginx):
    nginx.put("changing.tar", DATA)
    with (
        fault_proxy(nginx.port, [Cut(after=1_000_000)]) as proxy,
        open_http(proxy.url("/changing.tar"), **QUICK) as stream,
    ):
        stream.read(10)
        nginx.put("changing.tar", DATA[::-1] + b"more")
        with pytest.raises(StorageError, match="changed"):
            stream.read()


def test_a_busy_place_is_an_error_in_the_end(nginx):
    with pytest.raises(UnavailableError) as raised:
        open_http(nginx.url("/busy/a.tar"), retries=2, **QUICK)
    assert (raised.value.status, raised.value.retryable) == (503, True)


@pytest.mark.parametrize(("path", "status"), [("/none.tar", 404), ("/guarded/data.tar", 401)])
def test_a_refusal_is_one_line_at_once(nginx, address, path, status):
    with fault_proxy(nginx.port) as proxy:
        with pytest.raises(StorageError) as caught:
            open_http(proxy.url(path))
        assert proxy.requests == 1
    assert caught.value.status == status
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_host_that_does_not_exist_is_an_error_that_says_so():
    with pytest.raises(StorageError, match="found"):
        open_http("http://no-such-host.invalid/a.tar", retries=1, proxy="", **QUICK)


# -- TLS and proxies -------------------------------------------------------------------------------


def test_a_private_authority_is_trusted_by_argument_or_environment(nginx, address, monkeypatch):
    with open_http(nginx.tls_url("/data.tar"), cafile=nginx.authority) as stream:
        assert stream.read() == DATA
    for name in ("SSL_CERT_FILE", "CURL_CA_BUNDLE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, nginx.authority)
            with open_http(nginx.tls_url("/data.tar")) as stream:
                assert stream.read() == DATA


def test_our_authority_satisfies_the_strict_rules_that_are_the_default_since_python_3_13(nginx, address):
    context = ssl.create_default_context(cafile=nginx.authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with urllib.request.urlopen(nginx.tls_url("/data.tar"), context=context) as stream:
        assert stream.read() == DATA


def test_a_broken_tls_connection_is_taken_up(nginx, address):
    with fault_proxy(nginx.tls_port, [Reset(after=1_000_000), Cut(after=100_000), Cut(after=0)]) as proxy:
        url = proxy.url("/data.tar", "https").replace("127.0.0.1", "localhost")
        with open_http(url, cafile=nginx.authority, **QUICK) as stream:
            assert stream.read() == DATA


def test_the_second_read_through_a_caching_proxy_comes_from_its_cache(nginx, squid, monkeypatch):
    url = nginx.put("cached.tar", DATA)
    monkeypatch.setenv("http_proxy", squid.url)
    monkeypatch.setenv("no_proxy", "")
    for _ in range(2):
        with open_http(url) as stream:
            assert stream.read() == DATA
    assert soon(lambda: len(squid.log("/cached.tar")) == 2)  # it is written down a moment later
    done = squid.log("/cached.tar")
    assert done[0].startswith("TCP_MISS")
    assert "HIT" in done[1]


def test_https_goes_through_a_tunnel(nginx, squid, address):
    with open_http(nginx.tls_url("/data.tar"), cafile=nginx.authority, proxy=squid.url) as stream:
        assert stream.read() == DATA
    assert soon(lambda: squid.log(f"localhost:{nginx.tls_port}"))  # it is written down when both ends are closed
    assert squid.log(f"localhost:{nginx.tls_port}")[0].startswith("TCP_TUNNEL")


def test_a_tunnel_that_the_proxy_refuses_is_an_error_at_once(squid):
    with pytest.raises(StorageError) as raised:
        open_http("https://192.0.2.1/a.tar", proxy=squid.url)
    assert (raised.value.status, raised.value.retryable) == (403, False)
    assert "proxy" in raised.value.hint


# -- several connections ---------------------------------------------------------------------------


def test_parts_over_several_connections_are_the_same_bytes(big):
    with open_http(big, connections=4) as stream:
        assert stream.read() == big_data()
        assert stream.read(1) == b""


def test_every_part_is_taken_up_on_its_own(nginx, big):
    faults = [
        Cut(after=3_000_000),
        Reset(after=100),
        Fine(),
        Cut(after=5_000_000),
        Reset(after=0),
        Reset(after=8_000_000),
    ]
    report = Report()
    with (
        fault_proxy(nginx.port, faults) as proxy,
        report.in_force(),
        open_http(proxy.url("/big.tar"), connections=4, **QUICK) as stream,
    ):
        assert stream.read() == big_data()
    assert report.as_dict()["shards_retried"] == 1
    assert report.as_dict()["bytes_read"] == len(big_data())


def test_several_parts_are_asked_for_at_once(nginx, big):
    with (
        fault_proxy(nginx.port, [Fine()], default=Together(3)) as proxy,
        open_http(proxy.url("/big.tar"), connections=4) as stream,
    ):
        assert hashlib.sha256(stream.read()).digest() == hashlib.sha256(big_data()).digest()


def test_the_distance_decides_how_many_connections_there_are_at_once(nginx, big, monkeypatch):
    monkeypatch.setattr(reader, "SLOW_BYTES_PER_SECOND", 0)
    monkeypatch.setattr(reader, "FAR_SECONDS", 60)
    with fault_proxy(nginx.port) as near, open_http(near.url("/big.tar")) as stream:
        assert stream.read() == big_data()
        assert near.connections == 1
    monkeypatch.setattr(reader, "FAR_SECONDS", 0.02)
    with fault_proxy(nginx.port, delay=0.05) as far, open_http(far.url("/big.tar")) as stream:
        stream.read(1)
        assert soon(lambda: far.connections == 4)
        assert stream.read() == big_data()[1:]


def test_a_connection_that_turns_out_to_be_slow_gets_help(nginx, big, monkeypatch):
    monkeypatch.setattr(reader, "FAR_SECONDS", 60)
    with fault_proxy(nginx.port, bytes_per_second=20e6) as proxy, open_http(proxy.url("/big.tar")) as stream:
        assert stream.read() == big_data()
        assert proxy.connections > 1


def test_a_slow_reader_needs_no_help(nginx, big, monkeypatch):
    monkeypatch.setattr(reader, "FAR_SECONDS", 60)
    monkeypatch.setattr(reader, "SLOW_BYTES_PER_SECOND", 8e6)
    with fault_proxy(nginx.port) as proxy, open_http(proxy.url("/big.tar")) as stream:
        received = 0
        while data := stream.read(1 << 20):
            received += len(data)
            if received <= PART_BYTES:
                time.sleep(0.3)  # if this counted, the connection would be slow
        assert received == len(big_data())
        assert proxy.connections == 1


def test_a_proxy_is_asked_for_the_whole_which_it_can_keep(nginx, squid, big):
    with fault_proxy(nginx.port, delay=0.05) as far, open_http(far.url("/big.tar"), proxy=squid.url) as stream:
        assert isinstance(stream, ReadAhead)


def test_a_file_that_is_replaced_between_two_parts_is_an_error(nginx):
    nginx.put("changing-big.tar", big_data())
    with open_http(nginx.url("/changing-big.tar"), connections=2) as stream:
        stream.read(10)
        nginx.put("changing-big.tar", big_data()[::-1] + b"more")
        with pytest.raises(StorageError, match="changed"):
            stream.read()


def test_closing_many_connections_that_hang_is_quick(nginx, big):
    with fault_proxy(nginx.port, default=Stall(after=500_000)) as proxy:
        stream = open_http(proxy.url("/big.tar"), connections=4, read_timeout=1000)
        stream.read(400_000)
        stream.close()
        assert soon(lambda: not readers())


# -- schedules of faults ---------------------------------------------------------------------------

SCHEDULES = st.lists(
    st.builds(
        lambda kind, after: kind(after=after),
        st.sampled_from([Cut, Reset, Fine]),
        st.one_of(st.integers(0, 2000), st.integers(0, len(DATA) + 1000)),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=SCHEDULES, path=st.sampled_from(["/data.tar", "/norange/data.tar"]), size=st.sampled_from([999, 1 << 20]))
def test_whatever_breaks_the_bytes_are_right_or_there_is_an_error(nginx, address, faults, path, size):
    got = []
    with fault_proxy(nginx.port, faults) as proxy:
        try:
            with open_http(proxy.url(path), retries=3, **QUICK) as stream:
                while data := stream.read(size):
                    got.append(data)
        except StorageError:
            assert DATA.startswith(b"".join(got))
        else:
            assert b"".join(got) == DATA


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=SCHEDULES, connections=st.integers(2, 5), part=st.sampled_from([100_000, 700_001]))
def test_parts_are_right_too_whatever_breaks(nginx, address, faults, connections, part):
    got = []
    with fault_proxy(nginx.port, faults) as proxy:
        try:
            with ParallelReader(HttpStream(proxy.url("/data.tar"), retries=3, **QUICK), connections, part) as stream:
                while data := stream.read(99_999):
                    got.append(data)
        except StorageError:
            assert DATA.startswith(b"".join(got))
        else:
            assert b"".join(got) == DATA
    assert not readers()


# -- datasets --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shards(nginx):
    return [nginx.put(f"shards/{i:04d}.tar", tar_bytes(numbered(3, i * 3))) for i in range(100)]


def test_a_dataset_reads_on_through_faults(nginx, shards):
    with fault_proxy(nginx.port, [Cut(after=1000), Reset(after=3000), Fine()] * 3) as proxy:
        urls = [url.replace(str(nginx.port), str(proxy.port)) for url in shards[:5]]
        keys = [sample["__key__"] for sample in wds.WebDataset(urls, shardshuffle=False)]
    assert keys == [sample["__key__"] for sample in wds.WebDataset(shards[:5], shardshuffle=False)]
    assert len(keys) == 15


def test_nothing_is_left_after_many_shards(nginx, shards, address):
    threads, files = set(threading.enumerate()), open_descriptors(nginx.port)
    samples = sum(1 for _ in wds.WebDataset(shards * 20, shardshuffle=False))
    assert samples == 6000
    for url in [address] * 200:  # left in the middle
        with open_http(url) as stream:
            stream.read(2_000_000)
    for _ in range(50):
        next(iter(wds.WebDataset(shards, shardshuffle=False)))
    # the thread that was about to open the next shard ends when the server has answered
    assert soon(lambda: not set(threading.enumerate()) - threads)
    assert soon(lambda: open_descriptors(nginx.port) <= files)


def test_a_stream_opened_before_a_fork_is_read_after_it(address):
    program = f"""
import hashlib, os, sys
from webdataset.storage.http.reader import open_http
with open_http({address!r}) as early: early.read()
stream = open_http({address!r})
child = os.fork()
if not child:
    print(hashlib.sha256(stream.read()).hexdigest(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == hashlib.sha256(DATA).hexdigest(), done.stderr


def test_a_stream_begun_before_a_fork_says_that_it_cannot_go_on(big):
    program = f"""
import os
from webdataset.storage.http.reader import open_http
stream = open_http({big!r})
stream.read(2_500_000)
child = os.fork()
if not child:
    try:
        stream.read()
    except OSError:
        print("refused", flush=True)
    stream.close()
    os._exit(0)
os.waitpid(child, 0)
print(len(stream.read()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["refused", str(len(big_data()) - 2_500_000)], done.stderr


def test_streams_close_quickly_when_the_server_hangs_before_it_answers(nginx, address):
    with fault_proxy(nginx.port, [Fine(), Stall(after=0)]) as proxy:
        first = HttpStream(proxy.url("/data.tar"), read_timeout=1000)
        part = ReadAhead(first.part(1_000_000, 2_000_000))
        part.start()
        part.close()
        first.close()
        assert soon(lambda: not readers())
