"""Reading ahead: the same bytes, bounded memory, errors at their byte, and an end at any time."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waiting import soon
from webdataset.errors import StorageError
from webdataset.storage.http.reader import ReadAhead, reading_ahead
from webdataset.storage.http.stream import HttpStream

DATA = random.Random(3).randbytes(200_000)
READS = ["read", "read1", "readinto", "readinto1"]


class Source:
    """A stream that gives pieces of certain sizes, then ends or fails."""

    url = "http://host/a.tar"
    version = None
    retried = 0

    def __init__(self, pieces, length=None, error=None):
        self.pieces = list(pieces)
        self.length = length
        self.error = error
        self.position = 0
        self.report = None
        self.closed = False

    def readinto1(self, buffer):
        size = self.pieces.pop(0) if self.pieces else len(buffer)
        data = DATA[self.position : self.position + min(size, len(buffer))]
        if not data and self.error is not None:
            raise self.error
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def abort(self):
        pass

    def close(self):
        self.closed = True


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 30_000), max_size=30),
    reads=st.lists(st.integers(1, 50_000), min_size=1, max_size=30),
    buffers=st.integers(2, 4),
)
def test_any_pieces_and_any_reads_give_the_same_bytes(pieces, reads, buffers):
    source = Source(pieces)
    got = []
    with ReadAhead(source, buffers, 10_000) as stream:
        for size in reads:
            got.append(stream.read(size))
            assert len(got[-1]) == min(size, len(DATA) - sum(map(len, got[:-1])))
        got.append(stream.read())
        assert stream.read(1) == b""
    assert b"".join(got) == DATA
    assert source.closed


def test_an_error_comes_after_the_last_byte_before_it_and_again():
    source = Source([1000], error=StorageError("broken"))
    with ReadAhead(source, 3, 10_000) as stream:
        assert stream.read(len(DATA)) == DATA
        for _ in range(2):
            with pytest.raises(StorageError, match="broken"):
                stream.read(1)


def test_no_more_is_read_ahead_than_allowed():
    source = Source([])
    with ReadAhead(source, 3, 10_000) as stream:
        assert stream.read(10_000) == DATA[:10_000]
        stream.start()
        assert soon(lambda: source.position >= 40_000)
        assert source.position == 40_000  # one read directly, three buffers


def test_bytes_are_given_as_they_arrive(server):
    """What has come is not held back until a buffer is full."""
    url = server.stall("/a.tar", DATA * 20, after=3_000_000)
    with reading_ahead(HttpStream(url, read_timeout=1000)) as stream:
        assert len(stream.read(3_000_000)) == 3_000_000


def test_closing_ends_a_read_in_another_thread(server):
    stream = reading_ahead(HttpStream(server.stall("/a.tar", DATA * 20, after=3_000_000), read_timeout=1000))
    stream.read(3_000_000)
    ended = []

    def read():
        try:
            ended.append(stream.read(1))
        except ValueError as exn:
            ended.append(exn)

    thread = threading.Thread(target=read)
    thread.start()
    while not thread.is_alive():
        pass
    stream.close()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(ended[0], ValueError)


def test_closing_twice_is_fine_and_a_closed_stream_is_not_read(server):
    stream = reading_ahead(HttpStream(server.whole("/a.tar", DATA)))
    stream.read(10)
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.read(1)


def test_at_least_one_connection_is_needed(server):
    with pytest.raises(ValueError, match="1"):
        reading_ahead(HttpStream(server.whole("/a.tar", DATA)), 0)


@settings(max_examples=100, deadline=None)
@given(
    pieces=st.lists(st.integers(1, 30_000), max_size=30),
    reads=st.lists(st.tuples(st.sampled_from(READS), st.integers(0, 120_000)), max_size=40),
    ahead=st.integers(0, 40),
    buffer_bytes=st.sampled_from([10_000, 100_000]),
)
def test_any_mixture_of_reads_gives_the_same_bytes(pieces, reads, ahead, buffer_bytes):
    """Also when the thread starts in the middle."""
    got = b""
    with ReadAhead(Source(pieces), 3, buffer_bytes) as stream:
        for number, (method, size) in enumerate(reads):
            if number == ahead:
                stream.start()
            buffer = bytearray(size)
            if method.startswith("readinto"):
                got += buffer[: getattr(stream, method)(buffer)]
            else:
                got += getattr(stream, method)(size)
            assert stream.tell() == len(got)
        assert got + stream.read() == DATA


def test_small_reads_do_not_ask_the_connection_for_each():
    source = Source([])
    asked = []
    source.readinto1 = lambda buffer: asked.append(len(buffer)) or Source.readinto1(source, buffer)
    with ReadAhead(source, 3, 100_000) as stream:
        buffer = bytearray(10)
        assert b"".join(stream.read(10) for _ in range(1000)) == DATA[:10_000]
        assert stream.readinto(buffer) == 10
    assert len(asked) < 10
