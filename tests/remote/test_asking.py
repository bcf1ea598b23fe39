"""What dies, hangs, lies or comes back while a trainer asks: real processes, killed for good."""

from __future__ import annotations

import errno
import os
import random
import re
import socket
import threading
from collections import Counter
from contextlib import ExitStack
from queue import Queue

import numpy as np
import pytest
import zmq

import webdataset as wds
from remote_support import (
    Fleet,
    Paced,
    dataset,
    flat,
    is_done,
    keys,
    noted,
    repair,
    trainer,
    wait_for_batches,
    write_shards,
)
from servers.faults import Reset, Stall
from waiting import soon
from webdataset.remote.feeds import Outline
from webdataset.remote.keys import make_keys
from webdataset.remote.wire import VERSION, packed, unpacked

pytestmark = pytest.mark.xdist_group("remote")


def loader(urls, **options):
    return wds.RemoteLoader(urls, **{"timeout": 20, "patience": 60, **options})


@pytest.fixture(scope="module")
def reference(fleet):
    with loader(fleet.urls) as one:
        return keys(one)


def test_nothing_is_lost_or_repeated_after_100_random_kills(tmp_path) -> None:
    """Producers and the trainer are killed at random, at all times; the trainer goes on with its last state."""
    shards = write_shards(tmp_path / "many", [400] * 5)
    draw, journal, kills = random.Random(7), str(tmp_path / "journal"), 0
    with Fleet(3, dataset, shards) as fleet:
        with loader(fleet.urls) as one:
            whole = keys(one)
        running = trainer(fleet.urls, journal)
        while kills < 100:
            wait_for_batches(journal, min(4 * kills + draw.randrange(6), len(whole) - 20))
            victim = draw.choice([0, 1, 2, "trainer"])
            if victim == "trainer":
                running.kill()
                running.join()
                repair(journal)
                running = trainer(fleet.urls, journal)
            else:
                fleet.kill(victim)
                fleet.start(victim)
            kills += 1
        assert soon(lambda: is_done(journal))
        running.join(20)
    assert [line["keys"] for line in noted(journal)] == whole


def test_a_killed_producers_batches_are_made_by_the_others(shards, reference) -> None:
    with Fleet(3, dataset, shards) as fleet, loader(fleet.urls, timeout=1000) as one:
        found = []
        for number, (names, _) in enumerate(one):
            found.append(list(names))
            if number == 3:
                fleet.kill(0)
            if number == 10:
                fleet.kill(1)
        assert found == reference
        assert soon(lambda: one.producers() == [fleet.urls[2]])  # what had come ahead may outlast the second one
        assert one.stats()["producers_lost"] == 2
        assert one.stats()["batches_received"] == len(reference)


def test_a_hung_producer_is_given_up_after_the_timeout_and_takes_part_again(shards, reference) -> None:
    with Fleet(2, dataset, shards) as fleet, loader(fleet.urls, timeout=1, budget=1) as one:
        found = []
        for number, (names, _) in enumerate(one):
            found.append(list(names))
            if number == 2:
                fleet.pause(0)
            if number == 20:
                fleet.resume(0)
        assert found == reference
        assert soon(lambda: len(one.producers()) == 2)


def port_of(url) -> int:
    return int(url.rpartition(":")[2])


class Wide:
    """A batch of some megabytes, whatever the samples are."""

    def __call__(self, samples):
        return [name for (name,) in samples], np.full(1_500_000, len(samples), np.uint8), np.arange(100_000)


def wide(shards):
    base = wds.WebDataset(shards, exact=True, seed=5, lanes=2, shuffle_bytes=4000, block_bytes=1000)
    return base.to_tuple("__key__").batched(50, collation_fn=Wide())


def test_a_batch_whose_transfer_takes_longer_than_the_timeout_arrives(shards, make_fault_proxy) -> None:
    with Fleet(1, wide, shards) as fleet:
        way = make_fault_proxy(port_of(fleet.urls[0]), bytes_per_second=2_000_000)
        with loader(f"tcp://127.0.0.1:{way.port}", timeout=0.5, patience=5) as one:
            found = list(one)
    assert len({*flat(names for names, _, _ in found)}) == 129
    for names, large, numbers in found:
        assert large.shape == (1_500_000,)
        assert {*large.tolist()} == {len(names)}
        assert numbers.tolist() == list(range(100_000))


def test_a_batch_that_stops_coming_is_asked_for_elsewhere(shards, make_fault_proxy) -> None:
    with Fleet(2, wide, shards) as fleet:
        way = make_fault_proxy(port_of(fleet.urls[0]), [Stall(after=1_000_000)] * 9)
        with loader([f"tcp://127.0.0.1:{way.port}", fleet.urls[1]], timeout=1) as one:
            assert len({*flat(names for names, _, _ in one)}) == 129
            assert one.stats()["producers_lost"] >= 1


def test_an_array_that_is_larger_than_allowed_is_an_error_that_says_so(shards) -> None:
    told = pytest.raises(wds.WorkerError, match="1500000 bytes")
    with Fleet(1, wide, shards) as fleet, loader(fleet.urls, largest=1_000_000) as one, told:
        list(one)


def test_a_producer_that_is_started_later_takes_part(shards, reference) -> None:
    with Fleet(2, dataset, shards) as fleet:
        fleet.kill(1)
        with loader(fleet.urls, budget=1) as one:
            batches = iter(one)
            found = [list(next(batches)[0])]
            assert one.producers() == fleet.urls[:1]
            fleet.start(1)
            assert soon(lambda: len(one.producers()) == 2)
            fleet.kill(0)
            assert found + keys(batches) == reference


def test_no_producer_at_all_is_an_error_that_names_the_addresses(shards) -> None:
    with Fleet(2, dataset, shards) as fleet:
        urls = fleet.urls
    with loader(urls, patience=0.5) as one, pytest.raises(wds.UnavailableError) as raised:
        len(one)
    assert all(url in str(raised.value) for url in urls)
    assert "0.5 s" in str(raised.value)


def resets(connection) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))


def answers_as_a_web_server(connection) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def ends(_) -> None:
    pass


@pytest.mark.parametrize("meet", [resets, answers_as_a_web_server, ends])
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_program_that_is_no_producer_is_an_error_after_the_patience(meet, has_keys, tmp_path) -> None:
    make_keys(str(tmp_path / "serve.key"), [str(tmp_path / "train.key")])
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    meet(connection)

        threading.Thread(target=accept, daemon=True).start()
        url = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        own = tmp_path / "train.key" if has_keys else None
        with loader(url, patience=2, keys=own) as one, pytest.raises(wds.UnavailableError) as raised:
            len(one)
        listener.shutdown(socket.SHUT_RDWR)
    assert url in str(raised.value)
    assert "connection" in str(raised.value)


def test_a_way_whose_end_is_not_up_yet_is_tried_again(shards, make_fault_proxy, reference) -> None:
    with Fleet(1, dataset, shards) as fleet:
        way = make_fault_proxy(port_of(fleet.urls[0]), [Reset()] * 4)
        with loader(f"tcp://127.0.0.1:{way.port}") as one:
            assert keys(one) == reference


def test_all_producers_gone_in_the_middle_is_an_error_and_the_state_goes_on(shards, reference) -> None:
    with Fleet(1, dataset, shards) as fleet, loader(fleet.urls, patience=0.5) as one:
        batches = iter(one)
        found = [list(next(batches)[0])]
        fleet.kill(0)
        with pytest.raises(wds.UnavailableError, match=fleet.urls[0]):
            found.extend(list(names) for names, _ in batches)
        fleet.start(0)
        one.load_state_dict(one.state_dict())
        assert found + keys(one) == reference


@pytest.mark.parametrize("has_keys", [False, True])
def test_an_only_producer_that_stops_is_waited_for_and_is_no_matter_of_keys(
    shards, reference, tmp_path, has_keys
) -> None:
    """The system still takes connections for it, and nobody answers on them."""
    make_keys(str(tmp_path / "serve.key"), [str(tmp_path / "train.key")])
    own = tmp_path / "train.key" if has_keys else None
    with Fleet(1, dataset, shards, keys=str(tmp_path / "serve.key") if has_keys else None) as fleet:
        with loader(fleet.urls, keys=own, timeout=1, patience=4, budget=1) as one:
            batches = iter(one)
            found = [list(next(batches)[0])]
            fleet.pause(0)
            with pytest.raises(wds.UnavailableError) as raised:
                found.extend(list(names) for names, _ in batches)
            state = one.state_dict()
        assert fleet.urls[0] in str(raised.value)
        fleet.resume(0)
        with loader(fleet.urls, keys=own) as one:
            one.load_state_dict(state)
            assert found + keys(one) == reference


def other_seed(shards):
    return dataset(shards, seed=6)


def test_producers_that_serve_something_else_are_refused_with_what_differs(shards, reference) -> None:
    with Fleet(1, dataset, shards) as right, Fleet(1, other_seed, shards) as wrong:
        with loader(right.urls + wrong.urls) as one, pytest.raises(wds.StateError, match=r"seed .*[56] .*[56]"):
            len(one)
        right.kill(0)
        with loader(wrong.urls) as one:
            other = keys(one)
        wrong.kill(0)
        with loader(right.urls + wrong.urls, budget=1) as one:
            right.start(0)
            batches = iter(one)
            found = [list(next(batches)[0])]
            wrong.start(0)  # too late to be asked whether it agrees
            assert found + keys(batches) == reference != other


def failing(shards, when):
    def check(sample):
        if sample["__key__"] == when:
            raise RuntimeError(f"cannot augment {when}")
        return sample

    base = wds.WebDataset(shards, exact=True, seed=5, lanes=2, shuffle_bytes=4000, block_bytes=1000).decode()
    return base.map(check).to_tuple("__key__", "cls").batched(4)


def test_an_error_of_the_pipeline_reaches_the_trainer_in_its_place(shards) -> None:
    with Fleet(2, failing, shards, "00077") as fleet, loader(fleet.urls) as one:
        found = []
        with pytest.raises(wds.WorkerError, match=r"RuntimeError: .*cannot augment 00077"):
            found.extend(key for names, _ in one for key in names)
        assert "00077" not in found
        with loader(fleet.urls) as again, pytest.raises(wds.WorkerError):
            list(again)


def test_of_two_trainers_of_one_rank_the_newer_counts(fleet, reference) -> None:
    with loader(fleet.urls, budget=1, job="twice") as one, loader(fleet.urls, budget=1, job="twice") as other:
        batches = iter(one)
        next(batches)
        assert keys(other) == reference
        with pytest.raises(wds.StateError, match=r"trainer.* twice rank 0 of 1") as raised:
            list(batches)
        assert raised.value.url in fleet.urls


def test_of_two_trainers_that_start_together_one_remains(fleet, reference) -> None:
    """Producers hear of them in different orders."""

    def read(url, outcomes):
        with loader(url, budget=1, job="together") as one:
            try:
                outcomes.put(keys(one))
            except wds.StateError as error:
                outcomes.put(error)

    for number in range(24):
        outcomes: Queue = Queue()
        orders = fleet.urls, fleet.urls[number % 4 :] + fleet.urls[: number % 4]
        threads = [threading.Thread(target=read, args=(order, outcomes)) for order in orders]
        for thread in threads:
            thread.start()
        found = [outcomes.get(timeout=100) for _ in threads]
        for thread in threads:
            thread.join()
        assert reference in found  # the other is told, or is done before this one has started


def test_an_older_trainer_that_comes_back_does_not_replace_the_newer(shards, reference, make_fault_proxy) -> None:
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(2, dataset, shards))
        ways = [make_fault_proxy(port_of(url)) for url in fleet.urls]
        urls = [f"tcp://127.0.0.1:{way.port}" for way in ways]
        old = stack.enter_context(loader(urls, budget=1))
        batches = iter(old)
        next(batches)
        for way in ways:  # it hears of nothing for a while
            way.down()
        assert soon(lambda: not old.producers())
        new = stack.enter_context(loader(fleet.urls, budget=1))
        newer = iter(new)
        found = [list(next(newer)[0])]
        for way in ways:
            way.up()
        with pytest.raises(wds.StateError, match="trainer") as raised:
            list(batches)
        assert raised.value.url in urls
        assert found + keys(newer) == reference


def paced(shards, seconds):
    base = wds.WebDataset(shards, exact=True, seed=5, lanes=2, shuffle_bytes=4000, block_bytes=1000)
    return base.to_tuple("__key__").batched(4, collation_fn=Paced(seconds))


def test_the_feeds_of_a_slow_producer_are_made_by_the_others_in_the_same_order(tmp_path) -> None:
    shards = write_shards(tmp_path / "many", [400] * 5)
    with Fleet(1, paced, shards, 0.0) as alone, loader(alone.urls) as one:
        whole = keys(one)
    fast, slow = Fleet(3, paced, shards, 0.01, threads=1), Fleet(1, paced, shards, 0.3, threads=1)
    with fast, slow, loader([*slow.urls, *fast.urls]) as one:
        assert keys(one) == whole
        moved = one.stats()["feeds_moved"]
        assert 2 <= moved <= 16
        assert asked(slow.urls[0], {"kind": "status"})["status"]["batches"] < len(whole) // 8  # a quarter if they stay
        one.set_epoch(0)  # it begins with fewer feeds
        assert keys(one) == whole
        assert asked(slow.urls[0], {"kind": "status"})["status"]["batches"] < len(whole) // 4


def test_the_order_stays_while_feeds_move_and_producers_are_killed(tmp_path) -> None:
    shards, draw = write_shards(tmp_path / "many", [400] * 4), random.Random(3)
    with Fleet(1, paced, shards, 0.0) as alone, loader(alone.urls) as one:
        whole = keys(one)
    fast, slow = Fleet(2, paced, shards, 0.005, threads=1), Fleet(1, paced, shards, 0.1, threads=1)
    with fast, slow, loader([*slow.urls, *fast.urls]) as one:
        found = []
        for number, (names,) in enumerate(one):
            found.append(list(names))
            if number % 60 == 30:
                fleet, victim = draw.choice([(fast, 0), (fast, 1), (slow, 0)])
                fleet.kill(victim)
                fleet.start(victim)
        assert found == whole
        assert one.stats()["feeds_moved"] > 0


def test_producers_come_and_go_in_a_file_that_is_looked_up_again(shards, reference, tmp_path) -> None:
    place = tmp_path / "producers.txt"
    with Fleet(3, dataset, shards) as fleet, loader(f"@{place}", budget=1) as one:
        threading.Timer(1.0, place.write_text, [f"# none was there\n{fleet.urls[0]}\n"]).start()
        batches = iter(one)
        found = [list(next(batches)[0])]
        assert one.producers() == fleet.urls[:1]
        place.write_text("\n".join(fleet.urls[1:]))
        assert soon(lambda: len(one.producers()) == 3)  # who is still there is not left
        fleet.kill(0)
        found += [list(next(batches)[0])]
        place.write_text("this is being writ")  # what was known counts
        assert found + keys(batches) == reference
        assert one.producers() == fleet.urls[1:]


def test_a_file_without_producers_or_none_is_told_after_the_patience(tmp_path) -> None:
    told = pytest.raises(wds.UnavailableError, match=rf"none\.txt .*{os.strerror(errno.ENOENT)}")
    with loader(f"@{tmp_path}/none.txt", patience=1) as one, told:
        len(one)
    (tmp_path / "far.txt").write_text("tcp://cpu-0:7880")
    with loader(f"@{tmp_path}/far.txt", patience=60) as one, pytest.raises(wds.SecurityError, match="keys"):
        len(one)


def test_all_addresses_of_a_name_are_asked(shards, reference) -> None:
    with Fleet(1, dataset, shards) as fleet, loader(f"dns://localhost:{port_of(fleet.urls[0])}") as one:
        assert keys(one) == reference
        assert one.producers() == fleet.urls


def test_producers_without_a_feed_are_told_of(fleet, reference, caplog) -> None:
    with loader(fleet.urls, feeds=2) as one:
        assert len(flat(keys(one))) == 129
        keys(one)
    [told] = [record.message for record in caplog.records if "feeds=" in record.message]
    assert re.search("4 producers .*2 feeds.*feeds=4", told)
    caplog.clear()
    with loader(fleet.urls) as one:
        assert keys(one) == reference
    assert not [record for record in caplog.records if "feeds=" in record.message]


def test_jobs_with_names_of_their_own_share_producers(fleet, reference) -> None:
    with loader(fleet.urls, job="a") as one, loader(fleet.urls, job="b") as other:
        pairs = [(list(a[0]), list(b[0])) for a, b in zip(one, other, strict=True)]
    assert [a for a, _ in pairs] == [b for _, b in pairs] == reference


# -- producers that lie ------------------------------------------------------------------------------


class Liar:
    """A socket in the place of a producer that says what a test tells it to."""

    def __init__(self, answer) -> None:
        self._answer = answer
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        self.url = f"tcp://127.0.0.1:{port}"
        self._is_closed = False
        self.asked: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_closed:
            if self._socket.poll(20):
                client, frame = self._socket.recv_multipart()
                message = unpacked(frame)
                self.asked[message["kind"]] += 1
                answer = self._answer(message)
                if answer is not None:
                    self._socket.send_multipart([client, *answer])
        self._socket.close(linger=0)
        self._context.term()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._is_closed = True
        self._thread.join(10)


def plan_of(url):
    """What a producer says of its plan."""
    hello = {"kind": "hello", "version": VERSION, "session": "s", "name": "n", "job": "asks", "rank": 0, "world": 1}
    return asked(url, hello)


def asked(url, message):
    """What a producer answers."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(url)
    socket.send(packed(message))
    answer = unpacked(socket.recv())
    socket.close()
    context.term()
    return answer


@pytest.mark.parametrize(
    "garbage",
    [
        [b"\xc1 no msgpack"],
        [packed({"kind": "batch", "id": "x"})],
        [packed({"kind": "batch", "id": float("inf")})],
        [packed({"kind": "plan", "plan": "none"})],
        [],
        None,
    ],
    ids=[
        "no message",
        "a strange number",
        "an endless number",
        "no plan",
        "a header that lies",
        "frames that were not announced",
    ],
)
def test_damaged_messages_are_asked_for_elsewhere(fleet, reference, garbage) -> None:
    plan = plan_of(fleet.urls[0])

    def answer(message):
        if message["kind"] == "hello":
            return [packed(plan)]
        if message["kind"] != "get":
            return None
        header = packed({"kind": "batch", "items": [["a", "|O", [1]]], "sizes": []})
        envelope = packed({"kind": "batch", "id": message["id"], "sizes": [len(header)]})
        if garbage is None:
            return [envelope, header, b"one frame more"]
        return garbage or [envelope, header]

    with Liar(answer) as liar, loader([fleet.urls[0], liar.url], job=f"liar{garbage}") as one:
        assert keys(one) == reference
        assert liar.asked["get"] >= 1


def test_a_batch_that_is_always_damaged_is_an_error_that_names_the_producer(fleet) -> None:
    plan, steps = plan_of(fleet.urls[0]), Outline(1, 0, 1, 0, 9, 36, 9, 9, in_turn=False, order=1)._asdict()

    def answer(message):
        if message["kind"] == "hello":
            return [packed(plan)]
        if message["kind"] == "outline":
            return [packed({"kind": "outline", "id": message["id"], **steps})]
        envelope = packed({"kind": "batch", "id": message["id"], "sizes": [4]}) if message["kind"] == "get" else None
        return None if envelope is None else [envelope, b"junk"]

    with Liar(answer) as liar, loader(liar.url) as one, pytest.raises(wds.WorkerError, match="damaged") as raised:
        list(one)
    assert liar.url in str(raised.value)


def test_a_producer_of_another_version_is_refused(fleet) -> None:
    plan = plan_of(fleet.urls[0])
    plan["plan"]["version"] = 99
    told = pytest.raises(wds.StateError, match="version 99")
    with Liar(lambda message: [packed(plan)] if message["kind"] == "hello" else None) as old, told:
        len(loader(old.url))
    with loader([old.url, *fleet.urls], job="versions") as one:
        assert len(flat(keys(one))) == 129
