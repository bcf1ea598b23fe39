"""A checksum that a server gives of a whole object is compared with what came."""

from __future__ import annotations

import base64
import hashlib

import pytest

import webdataset as wds
from tests_support import numbered, tar_bytes
from webdataset.errors import StorageError
from webdataset.gopen import gopen
from webdataset.storage.http.reader import PART_BYTES

SHARD = tar_bytes(numbered(50))
LARGE = bytes(2 * PART_BYTES + 5)


def md5_of(data):
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def header(name, data):
    return {name: md5_of(data) if name == "Content-MD5" else f"crc32c=AAAAAA==,md5={md5_of(data)}"}


def in_pieces(stream):
    data = b""
    while piece := stream.read1(1000):
        data += piece
    return data


def into_a_buffer(method):
    def read(stream):
        data, buffer = b"", bytearray(4096)
        while count := getattr(stream, method)(buffer):
            data += buffer[:count]
        return data

    return read


READS = {
    "at once": lambda stream: stream.read(),
    "just as many bytes": lambda stream: stream.read(len(SHARD)),
    "in pieces": in_pieces,
    "into a buffer": into_a_buffer("readinto"),
    "into a buffer, as it comes": into_a_buffer("readinto1"),
}


@pytest.mark.parametrize("name", ["Content-MD5", "x-goog-hash"])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_wrong_checksum_is_an_error_however_it_is_read(server, name, read):
    with gopen(server.whole("/good.tar", SHARD, **header(name, SHARD))) as stream:
        assert read(stream) == SHARD
    with (
        gopen(server.whole("/bad.tar", SHARD, **header(name, b"other"))) as stream,
        pytest.raises(StorageError, match="checksum") as raised,
    ):
        read(stream)
    assert raised.value.url == server.url("/bad.tar")


@pytest.mark.parametrize("connections", [1, 3])
def test_parts_side_by_side_are_compared_too(server, connections):
    options = {"connections": connections}
    with gopen(server.parts("/a", LARGE, **header("Content-MD5", LARGE)), storage_options=options) as stream:
        assert stream.read() == LARGE
    with (
        gopen(server.parts("/b", LARGE, **header("Content-MD5", b"other")), storage_options=options) as stream,
        pytest.raises(StorageError, match="checksum"),
    ):
        stream.read()


def test_a_body_without_a_length_is_compared_at_its_end(server):
    def chunked(request):
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.send_header("Content-MD5", md5_of(b"other"))
        request.end_headers()
        request.wfile.write(b"5\r\n01234\r\n0\r\n\r\n")

    server.routes["/a"] = chunked
    for read in (READS["at once"], in_pieces):
        with gopen(server.url("/a")) as stream, pytest.raises(StorageError, match="checksum"):
            read(stream)


def test_the_samples_of_a_shard_with_a_wrong_checksum_end_in_an_error(server):
    url = server.whole("/bad.tar", SHARD, **header("Content-MD5", b"other"))
    with pytest.raises(StorageError, match="checksum"):
        list(wds.WebDataset(url, shardshuffle=False))


def test_what_was_cut_and_continued_is_compared_as_a_whole(server):
    url = server.cut("/a.tar", SHARD, [3000, 5000], ETag='"1"', **header("Content-MD5", SHARD))
    with gopen(url) as stream:
        assert stream.read() == SHARD
        assert stream.retried == 2


def test_a_reader_who_leaves_early_hears_nothing_of_it(server):
    with gopen(server.whole("/bad.tar", SHARD, **header("Content-MD5", b"other"))) as stream:
        assert stream.read(100) == SHARD[:100]
