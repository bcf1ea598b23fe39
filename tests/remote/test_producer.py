"""A producer and what strangers, old programs and mistakes send to it."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import ExitStack

import pytest
import zmq

import webdataset as wds
from remote_support import dataset, keys
from waiting import soon
from webdataset.remote.making import MOST_OPEN, MOST_OPEN_IN_ALL
from webdataset.remote.producer import Producer
from webdataset.remote.wire import MAX_REQUEST_BYTES, VERSION, packed, unpacked

pytestmark = pytest.mark.xdist_group("remote")


@pytest.fixture
def producer(shards):
    """A producer in a thread of this process."""
    made = Producer(dataset(shards), "tcp://127.0.0.1:0", threads=1)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    yield made
    made.stop()
    thread.join(20)


@pytest.fixture
def client(producer):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(producer.address)
    yield socket
    socket.close()
    context.term()


def asked(client, *frames):
    client.send_multipart(list(frames))
    assert client.poll(20_000)
    return unpacked(client.recv_multipart()[0])


HELLO = {"kind": "hello", "version": VERSION, "session": "s", "name": "n", "job": "", "rank": 0, "world": 1}
JOIN = {**HELLO, "kind": "join", "turn": 1}


@pytest.mark.parametrize(
    ("frames", "match"),
    [
        ([b"GET / HTTP/1.1"], "message"),
        ([b"~TenBin~" + bytes(8), bytes(100)], "frame"),
        ([packed({"kind": "hello", "version": VERSION})], "session"),
        ([packed({**HELLO, "rank": "x"})], "rank"),
        ([packed({**HELLO, "version": 0})], "version 0"),
    ],
)
def test_what_is_not_understood_is_answered_and_counted_and_others_are_served(producer, client, frames, match) -> None:
    answer = asked(client, *frames)
    assert answer["kind"] == "error"
    assert match in answer["text"]
    with wds.RemoteLoader(producer.address, patience=60) as loader:
        assert len(keys(loader)) == 33


GET = {"kind": "get", "id": 1, "epoch": 0, "feeds": 4, "at": [0, 0, 4, 0, 1, 0, 8, 0]}
OUTLINE = {"kind": "outline", "id": 1, "epoch": 0, "start": 0, "feeds": 4, "order": 4}
LEAVE = {"kind": "leave", "epoch": 0, "feeds": 4, "feed": [0, 0, 4, 0, 1, 0, 8]}
NO_NUMBERS = [None, -1, "1", "9" * 40, 1.5, True, [1], {"1": 1}, (1 << 64) - 1]
NO_FEEDS = [0, 1 << 40, *NO_NUMBERS]
NO_STEPS = [None, 7, "8", [0] * 3, [0] * 7, ["9" * 40] * 8, [0, 0, 4, 0, 1, 0, 8, -1], [0, 9, 4, 0, 1, 0, 8, 0]]
WRONG = [
    *((HELLO | {"turn": 0}, name, NO_NUMBERS) for name in ("rank", "world")),
    *((HELLO, name, [None, 7, "x" * 1000, ["x"], {}]) for name in ("session", "name", "job")),
    (HELLO, "version", [None, -1, "9" * 40, [1]]),
    *((JOIN, name, NO_NUMBERS) for name in ("rank", "world", "turn")),
    *((JOIN, name, [None, 7, "x" * 1000, ["x"], {}]) for name in ("session", "name", "job")),
    *((GET, name, NO_NUMBERS) for name in ("id", "epoch")),
    *((OUTLINE, name, NO_NUMBERS) for name in ("id", "epoch", "start")),
    *((request, "feeds", NO_FEEDS) for request in (GET, OUTLINE, LEAVE)),
    (OUTLINE, "order", NO_FEEDS),
    (GET, "at", [*NO_STEPS, [0, 0, 1 << 40, 0, 1, 0, 8, 0], [0, 0, 4, 0, 1 << 40, 0, 8, 0]]),
    (LEAVE, "epoch", NO_NUMBERS),
    (LEAVE, "feed", NO_STEPS[:-1]),
    (GET, "kind", [None, 7, ["get"], "x" * 1000, "dance"]),
]


@pytest.mark.parametrize(("request_", "name", "values"), WRONG, ids=lambda value: str(value)[:20])
def test_every_field_of_a_request_is_checked_and_others_are_served(producer, client, request_, name, values) -> None:
    client.send(packed(JOIN))
    for value in values:
        assert asked(client, packed({**request_, name: value}))["kind"] == "error", value
        without = {key: one for key, one in request_.items() if key != name}
        assert asked(client, packed(without))["kind"] == "error"
    assert asked(client, packed({"kind": "ping"}))["kind"] == "pong"
    assert asked(client, packed(GET))["kind"] == "batch"


def test_feeds_that_are_made_up_are_closed_for_others(producer, client) -> None:
    client.send(packed(JOIN))
    for rank in range(4):
        for stop in range(1, 200):  # each of them is a feed of its own
            assert asked(client, packed({**GET, "at": [0, rank, 4, 0, 1, 0, stop, 0]}))["kind"] == "batch"
    assert producer.status().feeds <= MOST_OPEN
    with wds.RemoteLoader(producer.address, patience=60, job="honest") as loader:
        assert len(keys(loader)) == 33


def test_feeds_of_many_trainers_are_closed_for_others(producer) -> None:
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        trainers = [stack.enter_context(context.socket(zmq.DEALER)) for _ in range(6)]
        for number, trainer in enumerate(trainers):
            trainer.connect(producer.address)
            trainer.send(packed({**JOIN, "job": f"job {number}"}))
            for stop in range(1, 201):
                assert asked(trainer, packed({**GET, "at": [0, 0, 4, 0, 1, 0, stop, 0]}))["kind"] == "batch"
        assert MOST_OPEN < producer.status().feeds <= MOST_OPEN_IN_ALL
        assert all(asked(trainer, packed(GET))["kind"] == "batch" for trainer in trainers)
        assert producer.status().feeds <= MOST_OPEN_IN_ALL


def test_who_has_not_said_hello_is_asked_who_it_is(client) -> None:
    assert asked(client, packed({"kind": "ping"}))["kind"] == "who"


def test_a_message_that_is_too_large_ends_the_connection_only(producer, client) -> None:
    client.send(bytes(MAX_REQUEST_BYTES + 1))
    with wds.RemoteLoader(producer.address, patience=60) as loader:
        assert len(keys(loader)) == 33


def test_the_status_says_what_it_does(producer, client) -> None:
    with wds.RemoteLoader(producer.address, patience=60, job="mine") as loader:
        keys(loader)
        answer = asked(client, packed({"kind": "status"}))["status"]
        assert answer["batches"] == 33
        assert answer["readers"] == ["mine rank 0 of 1"]
        assert answer["bytes"] > 0
    assert soon(lambda: producer.status().readers == [])
    assert soon(lambda: producer.status().feeds == 0)
    assert "33 batches" in str(producer.status())


def test_an_address_in_use_is_told(producer, shards) -> None:
    with pytest.raises(wds.StorageError, match=os.strerror(errno.EADDRINUSE)) as raised:
        Producer(dataset(shards), producer.address)
    assert (raised.value.url, "program" in raised.value.hint) == (producer.address, True)


def test_a_socket_of_this_machine(shards, tmp_path) -> None:
    made = Producer(dataset(shards), f"ipc://{tmp_path}/s", threads=1)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    with wds.RemoteLoader(f"ipc://{tmp_path}/s", patience=60) as loader:
        assert len(keys(loader)) == 33
    made.stop()
    thread.join(20)


@pytest.mark.parametrize(
    ("make", "kind", "word"),
    [
        (lambda shards: wds.WebDataset(shards, shardshuffle=False), TypeError, "exact"),
        (lambda shards: dataset(shards).with_epoch(5), ValueError, "with_epoch"),
    ],
)
def test_what_cannot_be_served_is_told_before_anything_is_bound(shards, make, kind, word) -> None:
    with pytest.raises(kind, match=word):
        Producer(make(shards), "tcp://127.0.0.1:0")


def test_closing_twice_is_fine_and_leaves_no_descriptor(shards) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        made = Producer(dataset(shards), "tcp://127.0.0.1:0", threads=1)
        made.close()
        made.close()
    assert soon(lambda: len(os.listdir("/proc/self/fd")) <= before + 4)
