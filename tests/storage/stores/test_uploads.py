"""Uploads: parts in the background, bounded, all or nothing; and files put to web servers."""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest

import webdataset as wds
from servers.doubles import Double, Reply
from webdataset.errors import StorageError
from webdataset.gopen import gopen
from webdataset.storage.stores.uploads import IN_FLIGHT_BYTES, FileUpload, Parts, PartsUpload, part_size

PART = 1000


class Memory(Parts):
    """A store in memory, slow where `gate` is closed."""

    def __init__(self) -> None:
        self.parts = {}
        self.object = None
        self.aborted = 0
        self.fails = set()
        self.gate = threading.Event()
        self.gate.set()
        self.flying = self.most_flying = 0
        self.lock = threading.Lock()

    def whole(self, data):
        self.object = data

    def begin(self):
        self.parts = {}

    def part(self, number, data, last):
        with self.lock:
            self.flying += len(data)
            self.most_flying = max(self.most_flying, self.flying)
        self.gate.wait(60)
        with self.lock:
            self.flying -= len(data)
        if number in self.fails:
            raise StorageError("a part failed")
        self.parts[number] = data
        return str(number)

    def complete(self, names):
        assert names == [str(number) for number in sorted(self.parts)]
        self.object = b"".join(self.parts[number] for number in sorted(self.parts))

    def abort(self):
        self.parts.clear()
        self.aborted += 1


@pytest.fixture
def store():
    return Memory()


def upload(store):
    return PartsUpload("mem://a", store, part_bytes=PART)


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 1])
@pytest.mark.parametrize("step", [1, 7, PART, 10 * PART])
def test_any_size_in_any_steps_is_the_same_bytes(store, size, step):
    data = os.urandom(size)
    with upload(store) as stream:
        for start in range(0, size, step):
            assert stream.write(data[start : start + step]) == len(data[start : start + step])
    assert store.object == data
    assert all(0 < len(part) <= PART for part in store.parts.values())
    assert store.aborted == 0


def test_parts_grow_so_that_ten_thousand_hold_the_largest_object():
    sizes = [part_size(number) for number in range(10_000)]
    assert sizes[0] == 8 << 20
    assert sizes == sorted(sizes)
    assert sum(sizes) > 5 << 40
    assert max(sizes) <= 5 << 30


def test_no_more_than_a_few_parts_are_on_their_way():
    store = Memory()
    store.gate.clear()
    stream = PartsUpload("mem://a", store, part_bytes=IN_FLIGHT_BYTES // 4)
    writer = threading.Thread(target=lambda: stream.write(bytes(3 * IN_FLIGHT_BYTES)))
    writer.start()
    writer.join(0.3)
    assert writer.is_alive()
    store.gate.set()
    writer.join()
    stream.close()
    assert len(store.object) == 3 * IN_FLIGHT_BYTES
    assert store.most_flying <= IN_FLIGHT_BYTES


def test_a_failed_part_fails_the_next_write_and_the_rest_is_forgotten(store):
    store.fails = {2}
    stream = upload(store)
    with pytest.raises(StorageError, match="a part failed"):
        stream.writelines(bytes(PART) for _ in range(10_000))
    assert stream.closed
    assert (store.object, store.parts, store.aborted) == (None, {}, 1)
    stream.close()
    stream.abort()
    assert store.aborted == 1


def test_a_failed_last_part_fails_the_end(store):
    store.fails = {3}
    stream = upload(store)
    stream.write(bytes(2 * PART + 1))
    with pytest.raises(StorageError, match="a part failed"):
        stream.close()
    assert (store.object, store.aborted) == (None, 1)


def test_an_exception_in_a_with_block_aborts(store):
    def fail():
        with upload(store) as stream:
            stream.write(bytes(5 * PART))
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert (store.object, store.parts, store.aborted) == (None, {}, 1)


def test_what_is_closed_takes_no_more(store):
    stream = upload(store)
    stream.close()
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"x")
    assert store.object == b""


def _in_child(stream, queue):
    try:
        stream.write(b"x")
    except OSError as exn:
        queue.put(str(exn))
    stream.close()


def test_a_forked_copy_of_an_upload_changes_nothing(store):
    stream = upload(store)
    stream.write(bytes(5 * PART))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(stream, queue))
    child.start()
    assert "belongs to the process" in queue.get()
    child.join()
    stream.close()
    assert store.object == bytes(5 * PART)


def test_no_thread_is_left(store):
    before = threading.active_count()
    for _ in range(20):
        with upload(store) as stream:
            stream.write(bytes(5 * PART))
    names = [thread for thread in threading.enumerate() if thread.name.startswith("upload")]
    for thread in names:
        thread.join(60)
    assert threading.active_count() <= before


# -- files put to web servers ----------------------------------------------------------------------


class WebDav:
    """Takes files, and can be told to stumble."""

    def __init__(self) -> None:
        self.files = {}
        self.answers = []
        self.double = Double(self.answer)

    def answer(self, question):
        if self.answers:
            return self.answers.pop(0)
        if question.method == "PUT":
            self.files[question.raw_path] = question.body
            return Reply(201)
        return Reply(200, self.files[question.raw_path]) if question.raw_path in self.files else Reply(404)


@pytest.fixture
def dav():
    server = WebDav()
    with server.double:
        yield server


def test_a_file_put_to_a_web_server_is_there_when_it_is_closed(dav):
    data = os.urandom(3_000_000)
    stream = gopen(f"{dav.double.url}/d/a.tar", "wb")
    stream.write(data[:1000])
    stream.write(data[1000:])
    assert dav.files == {}
    stream.close()
    assert dav.files == {"/d/a.tar": data}
    assert dav.double.questions[0].headers["content-length"] == "3000000"


def test_shards_are_written_to_a_web_server(dav):
    with wds.ShardWriter(f"{dav.double.url}/a-%02d.tar", maxcount=2, verbose=0) as sink:
        for i in range(4):
            sink.write({"__key__": str(i), "txt": str(i)})
    keys = [s["__key__"] for s in wds.WebDataset(f"{dav.double.url}/a-{{00..01}}.tar", shardshuffle=False)]
    assert keys == ["0", "1", "2", "3"]


def test_nginx_takes_shards(nginx):
    with wds.ShardWriter(nginx.url("/new/folder/a-%02d.tar"), maxcount=2, verbose=0) as sink:
        for i in range(4):
            sink.write({"__key__": str(i), "bin": bytes(1_500_000)})
    assert sorted(path.name for path in (nginx.files / "new" / "folder").iterdir()) == ["a-00.tar", "a-01.tar"]
    found = wds.WebDataset(nginx.url("/new/folder/a-{00..01}.tar"), shardshuffle=False)
    assert [(sample["__key__"], len(sample["bin"])) for sample in found] == [(str(i), 1_500_000) for i in range(4)]


def test_a_file_is_put_again_after_an_error_of_the_moment_and_a_redirect(dav):
    dav.answers = [Reply(503), Reply(307, b"", {"Location": f"{dav.double.url}/b.tar"})]
    with gopen(f"{dav.double.url}/a.tar", "wb", first_pause=0.01) as stream:
        stream.write(b"data")
    assert dav.files == {"/b.tar": b"data"}


@pytest.mark.parametrize(("status", "cure"), [(403, "password"), (405, "WebDAV"), (409, "folder"), (413, "size")])
def test_a_refusal_is_one_line_with_the_cure(dav, status, cure):
    dav.answers = [Reply(status)]
    stream = gopen(f"{dav.double.url}/a.tar", "wb")
    with pytest.raises(StorageError) as raised:
        stream.close()
    assert raised.value.status == status
    assert cure in raised.value.hint


def test_an_exception_puts_nothing(dav):
    def fail():
        with gopen(f"{dav.double.url}/a.tar", "wb") as stream:
            stream.write(b"half")
            raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert dav.double.questions == []


def test_a_password_goes_with_the_file_and_into_no_message(dav):
    dav.answers = [Reply(401)]
    stream = gopen(f"http://me:hush@127.0.0.1:{dav.double.port}/a.tar", "wb")
    with pytest.raises(StorageError) as caught:
        stream.close()
    assert caught.value.status == 401
    assert "hush" not in str(caught.value)
    assert dav.double.questions[0].headers["authorization"].startswith("Basic ")


def test_the_temporary_file_has_no_name_and_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    stream = FileUpload("x://y", lambda file, size: None)
    stream.write(b"secret")
    assert list(tmp_path.iterdir()) == []
    stream.close()
