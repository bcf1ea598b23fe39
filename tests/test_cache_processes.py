"""The cache under several processes and a server that holds back, breaks off and counts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import webdataset as wds
from tests_support import tar_bytes
from waiting import soon
from webdataset.cache import FileCache, clear, entries, unique_cache_name, verify
from webdataset.errors import StorageError
from webdataset.storage.cache.contents import beside
from webdataset.storage.cache.folder import CacheRequest, Folder

HELD = 28 * (512 + 3072)  # whole members


def shard(number, samples=40, size=3000):
    """About 200 kB that no other shard begins with."""
    return tar_bytes([(f"{number}-{i:04d}.bin", bytes([number + 1, i % 256]) * (size // 2)) for i in range(samples)])


class Server:
    """Serves `files`; a request for a path in `held` gets that many bytes, and the rest when `release` is set."""

    def __init__(self):
        self.files = {}
        self.held = {}
        self.headers = {}
        self.release = threading.Event()
        self.requests = Counter()
        self.sent = Counter()
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.close_connection = True
                with contextlib.suppress(OSError):
                    outer.answer(self)

            def log_message(self, *args):
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *args):
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def put(self, path, data, held=None):
        self.files[path] = data
        if held is not None:
            self.held[path] = held
        return f"http://127.0.0.1:{self.http.server_address[1]}{path}"

    def answer(self, request):
        path = request.path
        data = self.files[path]
        with self.lock:
            self.requests[path] += 1
            held = self.held.get(path, len(data))
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.send_header("ETag", f'"{hashlib.md5(data).hexdigest()}"')
        request.send_header("Accept-Ranges", "none")
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.end_headers()
        self.send(request, path, data[:held])
        if held < len(data):
            self.release.wait()
            self.send(request, path, data[held:])

    def send(self, request, path, data):
        for start in range(0, len(data), 10_000):
            request.wfile.write(data[start : start + 10_000])
            with self.lock:
                self.sent[path] += len(data[start : start + 10_000])

    def close(self):
        self.release.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server():
    found = Server()
    yield found
    found.close()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "cache")


@pytest.fixture
def start():
    """Start a reader; what is still running at the end is killed."""
    started = []

    def start(*args, program=None):
        command = [sys.executable, "-c", program or READ, *map(str, args)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


# Prints a line after the first sample, and one with a digest of all samples at the end.
READ = """
import hashlib, sys, warnings
import webdataset as wds
warnings.simplefilter("error")
digest = hashlib.sha256()
urls = sys.argv[2:]
for i, sample in enumerate(wds.WebDataset(urls, cache_dir=sys.argv[1], nodesplitter=None, shardshuffle=False)):
    if i == 0:
        print("first", flush=True)
    digest.update(sample["__key__"].encode() + sample["bin"])
print(digest.hexdigest())
"""


def digest_of(*urls):
    digest = hashlib.sha256()
    for sample in wds.WebDataset(list(urls), shardshuffle=False):
        digest.update(sample["__key__"].encode() + sample["bin"])
    return digest.hexdigest()


def ended(process):
    out, err = process.communicate(timeout=60)
    assert err == ""
    assert process.returncode == 0
    return out.split()


def visible(folder):
    """The complete files, and that there is nothing half done."""
    assert soon(lambda: not [name for name in os.listdir(folder) if name.endswith((".temp", ".lock"))])
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def local_copies(tmp_path, shards):
    paths = [tmp_path / f"{i}.tar" for i in range(len(shards))]
    for path, data in zip(paths, shards, strict=True):
        path.write_bytes(data)
    return [str(path) for path in paths]


def test_eight_processes_read_along_and_every_byte_is_fetched_once(server, folder, start, tmp_path):
    shards = [shard(i) for i in range(4)]
    urls = [server.put(f"/{i}.tar", data, held=HELD if i == 0 else None) for i, data in enumerate(shards)]
    readers = [start(folder, *urls) for _ in range(8)]
    # every process has a sample while the server still holds back most of the first shard
    assert [reader.stdout.readline() for reader in readers] == ["first\n"] * 8
    assert not os.path.exists(f"{folder}/{unique_cache_name(urls[0])}")
    assert {problem for _, problem in verify(folder)} == {None}
    server.release.set()
    expected = digest_of(*local_copies(tmp_path, shards))
    assert [ended(reader) for reader in readers] == [[expected]] * 8
    assert server.requests == {f"/{i}.tar": 1 for i in range(4)}
    assert sum(server.sent.values()) == sum(map(len, shards))
    assert visible(folder) == sorted(map(unique_cache_name, urls))


def test_when_the_fetching_process_is_killed_those_who_read_along_go_on(server, folder, start, tmp_path):
    data = shard(0)
    url = server.put("/0.tar", data, held=HELD)
    first = start(folder, url)
    assert first.stdout.readline() == "first\n"
    others = [start(folder, url) for _ in range(2)]
    assert [other.stdout.readline() for other in others] == ["first\n"] * 2
    assert server.requests["/0.tar"] == 1
    server.held.clear()
    first.send_signal(signal.SIGKILL)
    expected = digest_of(*local_copies(tmp_path, [data]))
    assert [ended(other) for other in others] == [[expected]] * 2
    assert server.requests["/0.tar"] == 2
    assert visible(folder) == [unique_cache_name(url)]


def test_what_was_given_out_is_compared_with_what_comes_after_a_kill(server, folder, start):
    url = server.put("/0.tar", shard(0), held=HELD)
    first = start(folder, url)
    assert first.stdout.readline() == "first\n"
    other = start(folder, url)
    assert other.stdout.readline() == "first\n"
    server.held.clear()
    server.put("/0.tar", shard(1))
    first.send_signal(signal.SIGKILL)
    _, err = other.communicate(timeout=60)
    assert (other.returncode, "changed" in err) == (1, True)


def test_a_killed_process_leaves_nothing_that_a_later_one_reads(server, folder, start):
    data, other = shard(0), shard(1)
    url = server.put("/0.tar", data, held=HELD)
    first = start(folder, url)
    assert first.stdout.readline() == "first\n"
    first.kill()
    first.wait()
    assert [entry.complete for entry in entries(folder)] == [False]
    assert ["incomplete" in problem for _, problem in verify(folder)] == [True]
    server.held.clear()
    # fetching another shard removes what was left of this one
    with FileCache(folder, streaming=True).open(server.put("/1.tar", other))["stream"] as stream:
        assert stream.read() == other
    assert visible(folder) == [unique_cache_name(server.put("/1.tar", other))]
    with FileCache(folder, streaming=True).open(url)["stream"] as stream:
        assert stream.read() == data


def test_shards_of_the_same_name_in_two_places_are_two_files(server, folder):
    urls = [server.put("/one/train.tar", shard(1)), server.put("/two/train.tar", shard(2))]
    for _ in range(2):
        keys = [sample["__key__"] for sample in wds.WebDataset(urls, cache_dir=folder, shardshuffle=False)]
        assert keys == [f"{number}-{i:04d}" for number in (1, 2) for i in range(40)]
    assert len(visible(folder)) == 2


@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_workers_of_a_loader_fetch_a_shard_once(server, folder, context):
    shards = [shard(i) for i in range(3)]
    urls = [server.put(f"/{i}.tar", data) for i, data in enumerate(shards)]
    dataset = wds.WebDataset(urls, cache_dir=folder, workersplitter=None, shardshuffle=False)
    loader = wds.WebLoader(dataset, num_workers=2, batch_size=None, multiprocessing_context=context)
    keys = Counter(sample["__key__"] for sample in loader)
    assert set(keys.values()) == {2}
    assert len(keys) == 120
    assert server.requests == {f"/{i}.tar": 1 for i in range(3)}


# Reads the shards over and over, one after the other, from a place of its own.
ROUND = """
import sys, webdataset as wds
folder, limit, start, *urls = sys.argv[1:]
urls = urls[int(start):] + urls[:int(start)]
for _ in range(3):
    for sample in wds.WebDataset(urls, cache_dir=folder, cache_size=int(limit), shardshuffle=False):
        pass
"""


def total(folder):
    found = 0
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found += os.path.getsize(os.path.join(folder, name)) if not name.endswith(".facts") else 0
    return found


def test_the_folder_stays_within_its_limit_and_one_shard(server, folder, start):
    shards = [shard(i) for i in range(12)]
    urls = [server.put(f"/{i}.tar", data) for i, data in enumerate(shards)]
    limit = 6 * len(shards[0])  # each process reads one shard and has the next one open
    os.mkdir(folder)
    readers = [start(folder, limit, place, *urls, program=ROUND) for place in (0, 4, 8)]
    most = 0
    while any(reader.poll() is None for reader in readers):
        most = max(most, total(folder))
    for reader in readers:
        assert reader.communicate() == ("", "")
    assert 4 * len(shards[0]) < most <= limit + len(shards[0])
    assert total(folder) <= limit


def test_a_reader_that_leaves_early_leaves_nothing_and_does_not_wait_for_the_server(server, folder):
    url = server.put("/0.tar", shard(0), held=HELD)
    dataset = wds.WebDataset(url, cache_dir=folder, shardshuffle=False)
    samples = iter(dataset)
    assert next(samples)["__key__"] == "0-0000"
    samples.close()
    for thread in threading.enumerate():
        if thread.name.startswith("webdataset"):
            thread.join(60)
    assert visible(folder) == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("webdataset")] == []


def test_a_stream_that_nobody_closes_stops_fetching_when_it_is_collected(server, folder):
    url = server.put("/0.tar", shard(0), held=HELD)
    stream = FileCache(folder, streaming=True).open(url)["stream"]
    assert len(stream.read1(10)) == 10
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "webdataset-cache")
    del stream
    thread.join(60)
    assert not thread.is_alive()
    assert visible(folder) == []


class Anything:
    """Takes any file for a good one."""

    def check_start(self, data):
        pass

    def is_complete(self, head, tail):
        return True

    def check_file(self, path):
        pass


def wanted(url, told=None):
    return CacheRequest("a.tar", lambda: wds.gopen(url), Anything(), (told if told is not None else []).append)


def test_waiting_for_another_process_has_a_limit(server, folder):
    data = shard(0)
    url = server.put("/0.tar", data, held=HELD)
    told = []
    with Folder(folder).open(wanted(url)) as first:
        assert first.read(1000) == data[:1000]
        with Folder(folder, wait_seconds=0.1).open(wanted(url, told)) as second:
            assert second.read(HELD) == data[:HELD]
            assert told == []
            server.held.clear()
            assert second.read() == data[HELD:]
            assert "too long" in str(told[0])
        with pytest.raises(OSError, match="too long"):
            Folder(folder, wait_seconds=0.1).get(wanted(url))
        server.release.set()
        assert first.read() == data[1000:]
    assert Folder(folder).get(wanted(url)) == f"{folder}/a.tar"
    assert server.requests["/0.tar"] == 2


def test_a_second_reader_in_the_same_thread_reads_along(server, folder):
    data = shard(0)
    url = server.put("/0.tar", data, held=HELD)
    cache = FileCache(folder, streaming=True)
    with cache.open(url)["stream"] as first, cache.open(url)["stream"] as second:
        assert first.read(HELD) == second.read(HELD) == data[:HELD]
        server.release.set()
        assert second.read() == first.read() == data[HELD:]
    assert server.requests["/0.tar"] == 1


def test_when_the_first_reader_leaves_the_second_reads_on(server, folder):
    data = shard(0)
    url = server.put("/0.tar", data, held=HELD)
    cache = FileCache(folder, streaming=True)
    first = cache.open(url)["stream"]
    with cache.open(url)["stream"] as second:
        assert second.read(HELD) == data[:HELD]
        first.close()
        server.release.set()
        assert second.read() == data[HELD:]
    assert visible(folder) == [unique_cache_name(url)]
    assert server.requests["/0.tar"] == 1


def test_when_all_readers_leave_the_file_is_given_up(server, folder):
    data = shard(0, samples=1000)
    url = server.put("/0.tar", data, held=HELD)
    cache = FileCache(folder, streaming=True)
    first = cache.open(url)["stream"]
    with cache.open(url)["stream"] as second:
        assert second.read(HELD) == data[:HELD]
        first.close()
    server.release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("webdataset"):
            thread.join(60)
    assert visible(folder) == []


def test_a_forked_copy_of_a_reader_reads_along_and_leaves_the_file_to_its_parent(server, folder):
    data = shard(0)
    url = server.put("/0.tar", data, held=HELD)
    with FileCache(folder, streaming=True).open(url)["stream"] as stream:
        assert stream.read(1000) == data[:1000]
        child = os.fork()
        if child == 0:
            status = 1
            try:
                good = stream.read(50_000) == data[1000:51_000]
                stream.close()
                status = 0 if good else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        server.release.set()
        assert stream.read() == data[1000:]
    assert visible(folder) == [unique_cache_name(url)]


def test_an_answer_shorter_than_announced_is_an_error_and_not_kept(server, folder):
    def cut(request, path, data, send=server.send):
        send(request, path, data[:-5000])

    server.send = cut
    url = server.put("/0.tar", shard(0))
    with (
        FileCache(folder, streaming=True).open(url)["stream"] as stream,
        pytest.raises(StorageError, match="early") as raised,
    ):
        stream.read()
    assert raised.value.url == url
    assert visible(folder) == []


@pytest.mark.parametrize("header", ["Content-MD5", "x-goog-hash"])
def test_a_checksum_that_the_server_gives_is_compared_before_the_shard_is_kept(server, folder, header):
    url = server.put("/a.tar", shard(1))
    start = "crc32c=AAAAAA==,md5=" if header == "x-goog-hash" else ""
    server.headers[header] = start + base64.b64encode(hashlib.md5(shard(1)).digest()).decode()
    with FileCache(folder, streaming=True).open(url)["stream"] as stream:
        assert stream.read() == shard(1)
    assert [entry.complete for entry in entries(folder)] == [True]
    server.headers[header] = start + base64.b64encode(hashlib.md5(b"other").digest()).decode()
    other = server.put("/b.tar", shard(2))
    with (
        FileCache(folder, streaming=True).open(other)["stream"] as stream,
        pytest.raises(StorageError, match="checksum") as raised,
    ):
        stream.read()
    assert raised.value.url == other
    assert [entry.complete for entry in entries(folder)] == [True]


def test_what_the_server_says_is_noted_and_damage_is_found(server, folder):
    data = shard(0)
    url = server.put("/0.tar", data)
    cache = FileCache(folder, streaming=True)
    path = cache.get_file(url)
    (entry,) = entries(folder)
    assert (entry.path, entry.url, entry.size, entry.complete) == (path, url, len(data), True)
    assert list(verify(folder)) == [(entry, None)]
    with open(path, "r+b") as file:
        file.seek(1000)
        file.write(b"!")
    assert ["checksum" in problem for _, problem in verify(folder)] == [True]
    os.truncate(path, 51_200)
    [(_, problem)] = verify(folder)
    assert (" 51200 " in problem, problem.endswith(f" {len(data)}")) == (True, True)
    with cache.open(url)["stream"] as stream:
        assert stream.read() == data
    assert [problem for _, problem in verify(folder)] == [None]
    with open(beside(path, "facts"), "w") as file:
        file.write("{")
    assert ["facts" in problem for _, problem in verify(folder)] == [True]
    with cache.open(url)["stream"] as stream:
        assert stream.read() == data
    assert server.requests["/0.tar"] == 3


def test_clearing_spares_what_is_in_use_or_was_put_there_by_somebody_else(server, folder):
    urls = [server.put(f"/{i}.tar", shard(i)) for i in range(3)]
    cache = FileCache(folder, streaming=True)
    paths = [cache.get_file(url) for url in urls]
    with open(f"{folder}/mine.tar", "wb") as file:
        file.write(shard(4))
    os.utime(paths[1], (1, 1))
    assert clear(folder, unused_for=3600) == [paths[1]]
    with cache.open(urls[0])["stream"]:
        assert clear(folder) == [paths[2]]
    assert clear(folder) == [paths[0]]
    assert visible(folder) == ["mine.tar"]
    assert clear(folder, foreign=True) == [f"{folder}/mine.tar"]
    assert [name for name in os.listdir(folder) if name.endswith(".facts")] == []


def test_when_the_shards_in_use_are_more_than_the_limit_others_are_streamed(server, folder):
    shards = [shard(i) for i in range(4)]
    urls = [server.put(f"/{i}.tar", data) for i, data in enumerate(shards)]
    cache = FileCache(folder, cache_size=len(shards[0]), streaming=True)
    with cache.open(urls[0])["stream"] as one, cache.open(urls[1])["stream"] as two:
        assert (one.read(), two.read()) == (shards[0], shards[1])
        # a shard appears a moment after its last byte was read
        assert soon(lambda: not any(name.endswith(".temp") for name in os.listdir(folder)))
        with pytest.warns(UserWarning, match="in use"):
            opened = cache.open(urls[2])
        assert "local_path" not in opened
        with opened["stream"] as three:
            assert three.read() == shards[2]
    with cache.open(urls[3])["stream"] as four:
        assert four.read() == shards[3]
    assert visible(folder) == [unique_cache_name(urls[3])]


def test_facts_about_a_file_that_is_gone_go_too(server, folder):
    path = FileCache(folder).get_file(server.put("/0.tar", shard(0)))
    os.unlink(path)
    assert clear(folder) == [beside(path, "facts")]
    assert os.listdir(folder) == []


def test_making_room_spares_what_was_put_there_by_somebody_else(server, folder):
    os.mkdir(folder)
    with open(f"{folder}/thesis.tar", "wb") as file:
        file.write(shard(4))
    cache = FileCache(folder, cache_size=10, streaming=True)
    paths = [cache.get_file(server.put(f"/{i}.tar", shard(i))) for i in range(2)]
    assert visible(folder) == sorted([os.path.basename(paths[1]), "thesis.tar"])
