"""What dies, hangs, lies or comes back while a trainer asks: real processes, killed for good."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import zmq

import webdataset as wds
from remote_support import (
    Fleet,
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
from waiting import soon
from webdataset.remote.feeds import Outline
from webdataset.remote.wire import packed, unpacked

pytestmark = pytest.mark.together("remote")


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
    assert "no producer answered for 0.5 s" in str(raised.value)


def test_all_producers_gone_in_the_middle_is_an_error_and_the_state_goes_on(shards, reference) -> None:
    with Fleet(1, dataset, shards) as fleet, loader(fleet.urls, patience=0.5) as one:
        batches = iter(one)
        found = [list(next(batches)[0])]
        fleet.kill(0)
        with pytest.raises(wds.UnavailableError, match="no producer answered"):
            found.extend(list(names) for names, _ in batches)
        fleet.start(0)
        one.load_state_dict(one.state_dict())
        assert found + keys(one) == reference


def other_seed(shards):
    return dataset(shards, seed=6)


def test_producers_that_serve_something_else_are_refused_with_what_differs(shards, reference) -> None:
    with Fleet(1, dataset, shards) as right, Fleet(1, other_seed, shards) as wrong:
        with loader(right.urls + wrong.urls) as one, pytest.raises(wds.StateError, match=r"seed was [56] and is [56]"):
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
        with pytest.raises(wds.WorkerError, match=r"cannot be made.*RuntimeError: .*cannot augment 00077"):
            found.extend(key for names, _ in one for key in names)
        assert "00077" not in found
        with loader(fleet.urls) as again, pytest.raises(wds.WorkerError):
            list(again)


def test_of_two_trainers_of_one_rank_the_newer_counts(fleet, reference) -> None:
    with loader(fleet.urls, budget=1, job="twice") as one, loader(fleet.urls, budget=1, job="twice") as other:
        batches = iter(one)
        next(batches)
        assert keys(other) == reference
        with pytest.raises(wds.StateError, match=r"another trainer, .* is twice rank 0 of 1, too"):
            list(batches)


def test_jobs_with_names_of_their_own_share_producers(fleet, reference) -> None:
    with loader(fleet.urls, job="a") as one, loader(fleet.urls, job="b") as other:
        pairs = [(list(a[0]), list(b[0])) for a, b in zip(one, other, strict=True)]
    assert [a for a, _ in pairs] == [b for _, b in pairs] == reference


# -- producers that lie ------------------------------------------------------------------------------


class Liar:
    """A socket in the place of a producer that says what a test tells it to."""

    def __init__(self, answer) -> None:
        import threading

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
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(url)
    hello = {"kind": "hello", "version": 1, "session": "s", "job": "asks", "rank": 0, "world": 1}
    socket.send(packed(hello))
    answer = unpacked(socket.recv())
    socket.close()
    context.term()
    return answer


@pytest.mark.parametrize(
    "garbage",
    [
        [b"\xc1 no msgpack"],
        [packed({"kind": "batch", "id": "x"})],
        [],
        None,
    ],
    ids=["no message", "a strange number", "a header that lies", "frames that are cut"],
)
def test_damaged_messages_are_asked_for_elsewhere(fleet, reference, garbage) -> None:
    plan = plan_of(fleet.urls[0])

    def answer(message):
        if message["kind"] == "hello":
            return [packed(plan)]
        if message["kind"] != "get":
            return None
        envelope = packed({"kind": "batch", "id": message["id"]})
        if garbage is None:
            return [envelope, packed({"kind": "batch", "items": [["a", "<f4", [4, 9]]], "sizes": [144]}), b"short"]
        return garbage or [envelope, packed({"kind": "batch", "items": [["a", "|O", [1]]], "sizes": []})]

    with Liar(answer) as liar, loader([fleet.urls[0], liar.url], job=f"liar{garbage}") as one:
        assert keys(one) == reference
        assert liar.asked["get"] >= 1


def test_a_batch_that_is_always_damaged_is_an_error_that_names_the_producer(fleet) -> None:
    plan, steps = plan_of(fleet.urls[0]), Outline(1, 0, 1, 0, 9, 36, 9, 9, in_turn=False)._asdict()

    def answer(message):
        if message["kind"] == "hello":
            return [packed(plan)]
        if message["kind"] == "outline":
            return [packed({"kind": "outline", "id": message["id"], **steps})]
        return [packed({"kind": "batch", "id": message["id"]}), b"junk"] if message["kind"] == "get" else None

    with Liar(answer) as liar, loader(liar.url) as one, pytest.raises(wds.WorkerError, match="damaged") as raised:
        list(one)
    assert liar.url in str(raised.value)


def test_a_producer_of_another_version_is_refused(fleet) -> None:
    plan = plan_of(fleet.urls[0])
    plan["plan"]["version"] = 99
    told = pytest.raises(wds.StateError, match="it speaks version 99 of the protocol, and this trainer 1")
    with Liar(lambda message: [packed(plan)] if message["kind"] == "hello" else None) as old, told:
        len(loader(old.url))
    with loader([old.url, *fleet.urls], job="versions") as one:
        assert len(flat(keys(one))) == 129
