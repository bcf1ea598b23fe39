"""Parts of objects: from files, web servers and every store, also when they break or change."""

from __future__ import annotations

import os
import pickle
import random
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servers.faults import Cut, Fine, Reset, Stall, fault_proxy
from waiting import soon
from webdataset.base.reports import Report
from webdataset.errors import MissingShardError, SecurityError, StorageError
from webdataset.gopen import gopen_schemes, open_ranges
from webdataset.storage.ranges import RangeReader, object_size_and_version

DATA = random.Random(1).randbytes(3_000_000)
QUICK = {"first_pause": 0.001}
CURE = "cache_dir="


@pytest.fixture(params=["file", "file:", "nginx", "tls", "moto", "azurite", "gcs", "hub", "ais"])
def stored(request, nobody, monkeypatch, tmp_path):
    """`stored(data)` puts the one object of the test where the parameter says, and gives its url."""
    kind = request.param
    if kind.startswith("file"):
        return _in_file(tmp_path / "a.tar", "file:" if kind == "file:" else "")
    if kind in ("nginx", "tls"):
        return _in_nginx(request, monkeypatch, kind)
    if kind == "ais":
        bucket = request.getfixturevalue("ais_double")
        return lambda data: bucket.put("a.tar", data)
    server = request.getfixturevalue(f"{kind}_server")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"{server.bucket()}/a.tar"

    def store(data):
        server.store(url, data)
        return url

    return store


def _in_file(path, scheme):
    def store(data):
        path.write_bytes(data)
        return f"{scheme}{path}"

    return store


def _in_nginx(request, monkeypatch, kind):
    nginx = request.getfixturevalue("nginx")
    monkeypatch.setenv("SSL_CERT_FILE", nginx.authority)

    def store(data):
        nginx.put("ranges.tar", data)
        return nginx.url("/ranges.tar") if kind == "nginx" else nginx.tls_url("/ranges.tar")

    return store


# -- everywhere ------------------------------------------------------------------------------------


def test_any_part_is_read(stored):
    with open_ranges(stored(DATA)) as reader:
        assert reader.read(0, 10) == DATA[:10]
        assert reader.read(1_000_000, 2_500_000) == DATA[1_000_000:2_500_000]
        assert reader.read(2_999_999, 3_000_000) == DATA[-1:]
        assert reader.read(5, 5) == b""
        assert reader.read(0, 3_000_000) == DATA
        assert reader.size == 3_000_000
        assert reader.version


def test_a_part_is_a_stream_too(stored):
    memory = bytearray(10)
    with open_ranges(stored(DATA)) as reader:
        stream = reader.stream(100, 5_000, memory)
        assert stream.read(7) == DATA[100:107]
        assert stream.read() == DATA[107:5_000]
        assert stream.read(7) == b""
        stream.rewind()
        assert stream.read(7) == DATA[100:107]
        another = reader.stream(0, 100_000, memory)  # the memory is in use, and too small
        assert another.read() == DATA[:100_000]
        assert stream.read(7) == DATA[107:114]


def test_size_and_version_are_known_without_reading(stored):
    url = stored(DATA)
    size, version = object_size_and_version(url)
    assert size == 3_000_000
    with RangeReader(url) as reader:
        reader.read(0, 1)
        assert (reader.size, reader.version) == (size, version)
    assert object_size_and_version(stored(b"hello"))[1] != version


def test_size_first_and_then_reading_agree(stored):
    with RangeReader(stored(DATA)) as reader:
        assert reader.size == 3_000_000
        assert reader.read(7, 9) == DATA[7:9]


def test_more_than_there_is_is_an_error_that_names_the_place(stored):
    url = stored(b"0123456789")
    for read_before in (False, True):
        with RangeReader(url, **_quick(url)) as reader:
            if read_before:
                assert reader.read(8, 10) == b"89"
            with pytest.raises(StorageError) as caught:
                reader.read(8, 12)
            assert caught.value.offset == 8
            assert caught.value.url == url
            with pytest.raises(StorageError):
                reader.read(10, 11)
            with pytest.raises(StorageError):
                reader.read(100, 110)


def test_an_object_that_is_replaced_between_reads_is_an_error(stored):
    url = stored(DATA)
    with RangeReader(url, **_quick(url)) as reader:
        assert reader.read(0, 10) == DATA[:10]
        stored(DATA[::-1] + b"more")  # nginx makes its ETags of the size and the second
        with pytest.raises(StorageError) as caught:
            reader.read(20, 30)
        assert caught.value.status == 404 or "changed" in caught.value.message


def test_threads_read_at_once(stored):
    url = stored(DATA)
    failures = []
    report = Report()
    with report.in_force(), RangeReader(url) as reader:

        def work(number):
            chance = random.Random(number)
            for _ in range(10):
                start = chance.randrange(len(DATA) - 50_000)
                if reader.read(start, start + 50_000) != DATA[start : start + 50_000]:
                    failures.append(start)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert report.as_dict()["bytes_read"] == 4 * 10 * 50_000


def test_what_is_not_there_is_missing(stored):
    url = stored(b"x").replace("a.tar", "none.tar").replace("ranges.tar", "none.tar")
    with pytest.raises(MissingShardError), RangeReader(url) as reader:
        reader.read(0, 1)
    with pytest.raises(MissingShardError):
        object_size_and_version(url)


def _quick(url):
    return {} if url.startswith(("/", "file:")) else QUICK


# -- ways that break -------------------------------------------------------------------------------


@pytest.fixture
def address(nginx):
    return nginx.put("broken.tar", DATA)


@pytest.mark.parametrize("fault", [Cut(after=100_000), Reset(after=100_000), Stall(after=100_000)])
def test_a_part_that_breaks_is_taken_up_where_it_broke(nginx, address, fault):
    report = Report()
    with fault_proxy(nginx.port, [fault, fault]) as proxy, report.in_force():
        with RangeReader(proxy.url("/broken.tar"), read_timeout=0.3, **QUICK) as reader:
            assert reader.read(500_000, 1_500_000) == DATA[500_000:1_500_000]
        assert proxy.connections == 3
        # a reset may lose what had arrived and was not yet read
        assert proxy.passed < 1_210_000
    assert report.as_dict()["bytes_read"] == 1_000_000
    assert report.as_dict()["shards_retried"] == 1


@pytest.mark.parametrize("kind", ["moto", "azurite", "gcs"])
def test_a_part_of_a_store_that_breaks_is_taken_up(request, kind, nobody, monkeypatch, make_fault_proxy):
    server = request.getfixturevalue(f"{kind}_server")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    url = f"{server.bucket()}/a.tar"
    server.store(url, DATA)
    proxy = make_fault_proxy(server.data_port, [Cut(after=100_000)])
    for name, value in server.environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    with RangeReader(url, **QUICK) as reader:
        assert reader.read(500_000, 1_500_000) == DATA[500_000:1_500_000]
    assert proxy.connections == 2


def test_a_part_of_a_cluster_that_breaks_is_taken_up(ais_double):
    url = ais_double.put("a.tar", DATA)
    ais_double.double.cuts = [1000, 2000]
    with RangeReader(url, **QUICK) as reader:
        assert reader.read(500_000, 1_500_000) == DATA[500_000:1_500_000]


def test_a_cluster_that_gives_checksums_of_ranges_is_read(ais_double):
    ais_double.double.range_checksums = True
    url = ais_double.put("a.tar", DATA)
    with RangeReader(url, **QUICK) as reader:
        assert reader.read(10, 20) == DATA[10:20]
        assert reader.read(100, 200) == DATA[100:200]
        ais_double.put("a.tar", DATA[::-1])
        with pytest.raises(StorageError, match="changed"):
            reader.read(0, 10)


def test_a_file_that_changes_in_the_middle_of_a_part_is_an_error(nginx):
    nginx.put("changing.tar", DATA)
    with fault_proxy(nginx.port, [Stall(after=100_000)]) as proxy:
        failures = []

        def read():
            with RangeReader(proxy.url("/changing.tar"), read_timeout=0.3, **QUICK) as reader:
                try:
                    reader.read(0, 1_000_000)
                except StorageError as exn:
                    failures.append(exn.message)

        thread = threading.Thread(target=read)
        thread.start()
        assert soon(lambda: proxy.passed == 100_000)
        nginx.put("changing.tar", DATA[::-1] + b"more")
        thread.join()
    assert "changed" in failures[0]


def test_a_server_without_parts_is_an_error_with_the_cure(nginx, address):
    with (
        RangeReader(nginx.url("/norange/broken.tar")) as reader,
        pytest.raises(StorageError) as caught,
    ):
        reader.read(0, 10)
    assert CURE in caught.value.hint


def test_a_server_that_loses_its_ranges_is_an_error(server):
    server.always("/a", 206, b"0", Content_Range="bytes 0-0/10", ETag='"1"')
    with RangeReader(server.url("/a")) as reader:
        assert reader.read(0, 1) == b"0"
        server.whole("/a", b"0123456789", ETag='"1"')
        with pytest.raises(StorageError, match="middle") as caught:
            reader.read(2, 4)
        assert caught.value.offset == 2


def test_a_server_that_gives_another_part_is_an_error(server):
    server.always("/a", 206, b"01", Content_Range="bytes 0-1/10")
    with (
        RangeReader(server.url("/a")) as reader,
        pytest.raises(StorageError, match="0 of 10") as caught,
    ):
        reader.read(2, 4)
    assert caught.value.offset == 2


def test_connections_are_kept_between_reads(nginx, address):
    with fault_proxy(nginx.port) as proxy, RangeReader(proxy.url("/broken.tar")) as reader:
        for start in range(0, 2_000_000, 100_000):
            assert reader.read(start, start + 1000) == DATA[start : start + 1000]
        assert reader.size == 3_000_000
        assert proxy.connections == 1


def test_a_url_that_is_signed_for_get_only_is_asked_with_get(server):
    url = server.always("/a", 206, b"0", Content_Range="bytes 0-0/10", ETag='"1"')  # HEAD is answered 501
    assert object_size_and_version(url) == (10, '"1"')


def test_closing_ends_the_reads_of_other_threads(nginx, address):
    with fault_proxy(nginx.port, [Stall(after=1000)]) as proxy:
        reader = RangeReader(proxy.url("/broken.tar"), read_timeout=1000)
        ended = []

        def read():
            with pytest.raises(ValueError, match="closed"):
                reader.read(0, 1_000_000)
            ended.append(proxy.passed)

        thread = threading.Thread(target=read)
        thread.start()
        assert soon(lambda: proxy.passed == 1000)
        reader.close()
        thread.join(60)
        assert ended == [1000]
        with pytest.raises(ValueError, match="closed"):
            reader.read(0, 10)


# -- files and what has no parts ---------------------------------------------------------------------


def test_the_version_of_a_file_is_its_size_and_time(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(b"12345")
    os.utime(path, ns=(7, 42))
    assert object_size_and_version(str(path)) == (5, "5-42")


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(b"0123456789")
    with RangeReader(str(path)) as reader:
        os.truncate(path, 4)
        with pytest.raises(StorageError, match="changed"):
            reader.read(2, 8)


def test_a_file_that_is_replaced_by_another_is_read_on(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(b"0123456789")
    with RangeReader(str(path)) as reader:
        (tmp_path / "b").write_bytes(b"abcdefghij")
        os.replace(tmp_path / "b", path)
        assert reader.read(0, 10) == b"0123456789"


@pytest.mark.parametrize("url", ["pipe:cat a.tar", "-", "ssh://host/a.tar", "sftp://host/a.tar", "mem://a"])
def test_what_has_no_parts_says_so_with_the_cure(url):
    with pytest.raises(StorageError) as caught:
        RangeReader(url)
    assert caught.value.url == url
    assert CURE in caught.value.hint


def test_schemes_of_programs_have_no_parts(monkeypatch):
    monkeypatch.setitem(gopen_schemes, "http", lambda url, mode, bufsize: None)
    with pytest.raises(StorageError) as caught:
        open_ranges("http://host/a.tar")
    assert CURE in caught.value.hint


def test_urls_are_rewritten_as_gopen_does(monkeypatch, tmp_path):
    (tmp_path / "a.tar").write_bytes(b"hello")
    monkeypatch.setenv("GOPEN_REWRITE", f"s3://bucket={tmp_path}")
    with open_ranges("s3://bucket/a.tar") as reader:
        assert reader.read(0, 5) == b"hello"


def test_secure_mode_guards_files(monkeypatch, tmp_path):
    (tmp_path / "a.tar").write_bytes(b"hello")
    monkeypatch.setenv("WDS_SECURE", "1")
    with pytest.raises(SecurityError):
        RangeReader(str(tmp_path / "a.tar"))


def test_a_reader_stays_in_its_process(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"hello")
    with RangeReader(str(tmp_path / "a.tar")) as reader, pytest.raises(TypeError, match="process"):
        pickle.dumps(reader)


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (5, 4)])
def test_a_range_that_is_none_is_refused(tmp_path, start, stop):
    (tmp_path / "a.tar").write_bytes(b"hello")
    with RangeReader(str(tmp_path / "a.tar")) as reader, pytest.raises(ValueError, match="start"):
        reader.read(start, stop)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ranges=st.lists(st.tuples(st.integers(0, 2_999_000), st.integers(1, 200_000)), min_size=1, max_size=5),
    faults=st.lists(st.sampled_from([Cut, Reset, Fine]), max_size=4),
    after=st.integers(0, 100_000),
)
def test_any_parts_over_any_breaks_are_the_very_bytes(nginx, address, ranges, faults, after):
    with (
        fault_proxy(nginx.port, [fault(after=after) for fault in faults]) as proxy,
        RangeReader(proxy.url("/broken.tar"), **QUICK) as reader,
    ):
        for start, count in ranges:
            stop = min(start + count, len(DATA))
            assert reader.read(start, stop) == DATA[start:stop]
