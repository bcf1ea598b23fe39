"""What producers make: feeds of large plans, found at once and well shuffled; and what they hold while they do it."""

from __future__ import annotations

import gc
import time
import tracemalloc

import numpy as np
import pytest

import webdataset as wds
from remote_support import dataset
from waiting import soon
from webdataset.base.reports import Report
from webdataset.base.stages import start
from webdataset.epochs.mixed import Mixing
from webdataset.epochs.order import OrderSettings
from webdataset.exact.plans import _same_shard
from webdataset.exact.program import ExactShards, ExactSource, Program
from webdataset.filters import batched
from webdataset.indices.catalogue import Catalogue
from webdataset.remote.feeds import FeedStep
from webdataset.remote.making import Asked, ServedPlan, Workshop
from webdataset.remote.wire import unpacked_batch


def synthetic(shards, samples_each, bytes_each, batch=32):
    """The plan of shards that are nowhere."""
    catalogue = Catalogue([(f"train-{n:06d}.tar", samples_each, bytes_each, None) for n in range(shards)])
    source = ExactShards(catalogue, settings=OrderSettings(seed=3), rank=0, world_size=1)
    return ServedPlan(Program([ExactSource(source, [])], [batched(batch)]), start)


def test_a_place_late_in_100_million_samples_is_found_in_half_a_second_and_100_megabytes() -> None:
    plan = synthetic(10_000, 10_000, 1_500_000_000)
    tracemalloc.start()
    try:
        begun = time.process_time()
        outline = plan.outline(epoch=0, start=0, feeds=16, order=16, rank=0, world=1)
        assert outline.steps == 100_000_000 // 32
        for feed in range(4):  # as many as one of four producers has
            at = outline.at(outline.in_rounds // 2 // 16 * 16 + feed)
            run = plan.run(16, 0, at, Report())
            wanted = next(run._feed._wanted(at.step))
            assert len(wanted.positions)
            if not feed:
                first = time.process_time() - begun
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100e6
    assert first < 3  # tracemalloc makes it several times slower; benchmarks/remote.py says how long it takes


@pytest.mark.parametrize(
    ("feeds", "shard"), [(1, 1_500_000_000), (4, 1_500_000_000), (16, 1_500_000_000), (16, 15_000_000)]
)
def test_two_samples_of_a_shard_meet_in_a_step_hardly_more_often_than_by_chance(feeds: int, shard: int) -> None:
    """Large shards, and small ones, which fit into the shuffle."""
    plan = synthetic(100, 10_000, shard)
    outline = plan.outline(epoch=0, start=0, feeds=feeds, order=feeds, rank=0, world=1)
    draw = np.random.default_rng(0).choice(outline.in_rounds, 400, replace=False)
    places = [outline.at(int(number)) for number in draw]
    positions = np.array([plan.share(feeds, 0, at.start, at.rank, at.world).positions(at.step) for at in places])
    _, shards, _ = plan.epoch(feeds, 0).locate(positions.ravel())
    quality = _same_shard(shards.reshape(positions.shape), np.full(100, 10_000))
    assert quality < 1.15


class Sent:
    """What a workshop has sent."""

    def __init__(self) -> None:
        self.messages: list = []

    def __call__(self, client, message, frames) -> None:
        self.messages.append((message, frames))

    def wait(self, count):
        assert soon(lambda: len(self.messages) >= count)
        return self.messages


@pytest.fixture
def served(shards):
    pipeline = dataset(shards)
    return ServedPlan(pipeline.runner.program(), pipeline.invoke)


@pytest.fixture
def workshop(served):
    sent = Sent()
    made = Workshop(served, sent, threads=2, ahead=100)
    yield made, sent
    made.close()


def feed(step, rank=0, world=4, stop=8):
    return FeedStep(0, rank, world, 0, 1, 0, stop, step)


def keys_of(message, frames):
    return unpacked_batch(frames[0], frames[1:])[1][0][0]


def test_a_batch_is_the_same_however_often_and_in_which_order_it_is_asked_for(workshop) -> None:
    making, sent = workshop
    for number, step in enumerate([0, 1, 2, 7, 2, 0, 1]):
        making.get("a", 0, 4, feed(step), Asked(b"c", number))
        sent.wait(number + 1)
    found = {message["id"]: keys_of(message, frames) for message, frames in sent.messages}
    assert found[0] == found[5]
    assert found[1] == found[6]
    assert found[2] == found[4]
    assert len({*map(tuple, found.values())}) == 4


def test_requests_far_ahead_in_one_feed_are_all_answered(workshop) -> None:
    making, sent = workshop
    for step in range(8):
        making.get("a", 0, 4, feed(step), Asked(b"c", step))
    sent.wait(8)
    assert sorted(message["id"] for message, _ in sent.messages) == list(range(8))


def test_what_is_made_ahead_is_bounded(workshop) -> None:
    making, sent = workshop
    for rank in range(4):
        making.get("a", 0, 4, feed(0, rank), Asked(b"c", rank))
    sent.wait(4)
    assert soon(lambda: making.queue()[1] >= 4)
    feeds, ready, size = making.queue()
    assert feeds == 4
    assert 4 <= ready <= 6  # one of each feed, and what was begun before the limit was reached
    assert size > 0


def test_another_epoch_closes_the_feeds_of_the_last_one(workshop) -> None:
    making, sent = workshop
    making.get("a", 0, 4, feed(0), Asked(b"c", 0))
    making.get("b", 0, 4, feed(0), Asked(b"c", 1))
    sent.wait(2)
    making.get("a", 1, 4, feed(0), Asked(b"c", 2))
    sent.wait(3)
    assert making.queue()[0] == 2
    making.drop("a")
    making.drop("b")
    assert making.queue() == (0, 0, 0)


def test_an_impossible_step_is_an_error_that_is_sent(workshop) -> None:
    making, sent = workshop
    making.get("a", 0, 4, feed(98, stop=99), Asked(b"c", 5))
    [(message, frames)] = sent.wait(1)
    assert message["kind"] == "error"
    assert message["id"] == 5
    assert "98" in message["text"]
    assert frames == []


def test_an_outline_is_found_and_sent(workshop) -> None:
    making, sent = workshop
    making.outline(Asked(b"c", 1), epoch=0, start=0, feeds=4, order=4, rank=0, world=2)
    making.outline(Asked(b"c", 2), epoch=0, start=0, feeds=3, order=3, rank=0, world=2)
    sent.wait(2)
    by_id = {message["id"]: message for message, _ in sent.messages}
    assert by_id[1]["steps"] == 17
    assert by_id[2]["kind"] == "error"
    assert "feeds" in by_id[2]["text"]


def test_buckets_and_shards_in_order_are_dealt_to_the_ranks_themselves(shards) -> None:
    for pipeline in (
        wds.WebDataset(shards, exact=True).bucketed("bin", [10, 30], batchsize=4),
        dataset(shards, shuffle_bytes=0),
    ):
        plan = ServedPlan(pipeline.runner.program(), pipeline.invoke)
        assert plan.in_turn
        outline = plan.outline(epoch=0, start=0, feeds=8, order=8, rank=0, world=1)
        assert outline.steps == len(pipeline)
        assert outline.rounds == 0


def test_a_mixture_of_a_small_and_a_large_dataset_has_as_many_lanes_of_both() -> None:
    sources = [
        ExactSource(
            ExactShards(Catalogue([("a.tar", 1000, size, None)]), settings=OrderSettings(seed=3), rank=0, world_size=1),
            [],
        )
        for size in (1_000_000, 1 << 40)
    ]
    program = Program(sources, [batched(4)], Mixing(longest=True))
    assert ServedPlan(program, start).epoch(16, 0).lanes == 64 * 16


def test_what_was_asked_for_with_many_numbers_of_feeds_is_not_kept() -> None:
    plan = synthetic(10, 1000, 1_500_000_000)
    for feeds in range(1, 101):
        plan.outline(epoch=0, start=0, feeds=feeds, order=feeds, rank=0, world=1)
    assert sum(type(each) is Program for each in gc.get_objects()) < 10
