"""The next shard is opened before the current one ends."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import webdataset as wds
from tests_support import numbered, tar_bytes
from webdataset.base.reports import Report
from webdataset.storage.opening import OpenedShards

SHARD = tar_bytes(numbered(20))


class Served(ThreadingHTTPServer):
    """Serves the same shard under any name, notes what was asked for, and can hold names back or answer 503 first."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked = []
        self.busy = set()
        self.held = {}
        self.address = f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Served

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path in self.server.held:
            self.server.held[self.path].wait()
        if self.path in self.server.busy:
            self.server.busy.remove(self.path)
            self.send_error(503)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(SHARD)))
        self.end_headers()
        self.wfile.write(SHARD)

    def log_message(self, *args):
        """Keep quiet."""


@pytest.fixture
def server():
    server = Served()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    for held in server.held.values():
        held.set()
    server.shutdown()
    thread.join()
    server.server_close()


def urls(server, *names):
    return [f"{server.address}/{name}.tar" for name in names]


def test_the_next_remote_shard_is_asked_for_while_the_current_one_is_read(server):
    samples = iter(wds.WebDataset(urls(server, "a", "b", "c")))
    next(samples)
    for thread in threading.enumerate():
        if thread.name == "webdataset-open":
            thread.join()
    assert server.asked == ["/a.tar", "/b.tar"]
    assert len(list(samples)) == 59
    assert server.asked == ["/a.tar", "/b.tar", "/c.tar"]


def test_stopping_early_does_not_wait_for_the_shard_being_opened(server):
    server.held["/b.tar"] = threading.Event()
    samples = iter(wds.WebDataset(urls(server, "a", "b")))
    next(samples)
    samples.close()
    assert not server.held["/b.tar"].is_set()


def test_an_error_of_the_next_shard_comes_after_the_samples_of_this_one(server, closed_port):
    shards = [*urls(server, "a"), f"http://127.0.0.1:{closed_port}/b.tar"]
    dataset = wds.WebDataset(shards, handler=wds.ignore_and_continue)
    assert len(list(dataset)) == 20
    assert dataset.stats()["shards_skipped"] == 1


def test_retries_are_counted_where_the_dataset_tells_them(server):
    server.busy = {"/a.tar", "/b.tar"}
    dataset = wds.WebDataset(urls(server, "a", "b", "c"))
    assert len(list(dataset)) == 60
    assert dataset.stats()["shards_retried"] == 2


def test_local_shards_are_opened_one_at_a_time(make_shards):
    opened = []

    def open_url(url):
        opened.append(url)
        return open(url, "rb")

    shards = make_shards(2)
    source = OpenedShards([{"url": url} for url in shards], open_url, wds.reraise_exception, Report())
    first = next(source)
    source.look_ahead()
    assert opened == shards[:1]
    first["stream"].close()
    source.close()
    source.close()
    assert list(source) == []


def test_errors_say_which_shard_in_the_order_of_reading(make_shards):
    shards = make_shards(3)
    with open(shards[1], "r+b") as file:
        file.truncate(700)
    with pytest.raises(wds.ShardError) as raised:
        list(wds.WebDataset(shards))
    assert (raised.value.url, raised.value.shard) == (shards[1], 1)
    with pytest.raises(wds.MissingShardError) as raised:
        list(wds.WebDataset([shards[0], "gone.tar"]))
    assert (raised.value.url, raised.value.shard) == ("gone.tar", 1)


def test_web_servers_are_reached_through_the_given_proxy_and_files_without_it(server, make_shard):
    local = make_shard(samples=1)
    dataset = wds.WebDataset(["http://nowhere.invalid/a.tar", local], proxy=server.address)
    assert len(list(dataset)) == 21
    assert server.asked == ["http://nowhere.invalid/a.tar"]


@pytest.mark.parametrize("kind", ["path", "file:", "pipe:", "http", "ssh", "gzip", "cached", "cached before"])
def test_every_stream_counts_its_bytes(kind, make_shard, nginx, ssh, tmp_path):
    path = make_shard(samples=100)
    data = gzip.compress(Path(path).read_bytes()) if kind == "gzip" else Path(path).read_bytes()
    Path(path).write_bytes(data)
    web = nginx.put("counted.tar", data)
    urls = {"file:": f"file:{path}", "pipe:": f"pipe:cat {path}", "ssh": ssh.url(path), "path": path, "gzip": path}
    options = {"cache_dir": str(tmp_path / "cache")} if kind.startswith("cached") else {}
    for _ in range(2 if kind == "cached before" else 1):
        dataset = wds.WebDataset(urls.get(kind, web), shardshuffle=False, **options)
        assert len(list(dataset)) == 100
        assert dataset.stats()["bytes_read"] == len(data)
