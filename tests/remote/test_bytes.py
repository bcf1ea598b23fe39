"""What all producers together read from a web server, by the server's own log, and what processes hold in memory."""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import webdataset as wds
from remote_support import CONTEXT, Fleet, Paced, flat, keys
from tests_support import tar_bytes
from waiting import soon

pytestmark = pytest.mark.xdist_group("remote")

SHARDS, EACH, SIZE = 8, 150, 20_000
MANY = dict(zip(("lanes", "shuffle_bytes", "block_bytes"), (4, 600_000, 150_000), strict=True))
"""Windows of a few blocks, several of which a feed reads one after the other."""


@pytest.fixture(scope="module")
def urls(nginx):
    found = []
    for shard in range(SHARDS):
        numbers = range(shard * EACH, (shard + 1) * EACH)
        found.append(nginx.put(f"many/{shard}.tar", tar_bytes([(f"{n:05d}.bin", bytes(SIZE)) for n in numbers])))
    return found


def served(urls, options):
    return wds.WebDataset(urls, exact=True, seed=5, **options).to_tuple("__key__").batched(10)


class Traffic:
    """The bytes of the shards that were sent since it was made, as a part of all."""

    def __init__(self, nginx) -> None:
        self._nginx, self._before = nginx, self._sent(nginx)

    def ratio(self, nginx) -> float:
        return (self._sent(nginx) - self._before) / sum(
            (nginx.files / f"many/{shard}.tar").stat().st_size for shard in range(SHARDS)
        )

    def _sent(self, nginx) -> int:
        return sum(nginx.sent(f"many/{shard}.tar") for shard in range(SHARDS))


@pytest.mark.parametrize("producers", [1, 4])
def test_producers_together_read_every_byte_once(nginx, urls, producers) -> None:
    with Fleet(producers, served, urls, MANY) as fleet, wds.RemoteLoader(fleet.urls, feeds=8, patience=60) as loader:
        traffic = Traffic(nginx)
        assert len(flat(keys(loader))) == SHARDS * EACH
        assert traffic.ratio(nginx) <= 1.02


def test_data_that_fit_into_the_shuffle_are_read_little_more_than_once(nginx, urls) -> None:
    with Fleet(2, served, urls, {}) as fleet, wds.RemoteLoader(fleet.urls, feeds=8, patience=60) as loader:
        traffic = Traffic(nginx)
        assert len(flat(keys(loader))) == SHARDS * EACH
        assert traffic.ratio(nginx) <= 1.15


def test_a_producers_death_costs_at_most_a_fifth_more(nginx, urls) -> None:
    with Fleet(4, served, urls, MANY) as fleet, wds.RemoteLoader(fleet.urls, feeds=8, patience=60) as loader:
        traffic = Traffic(nginx)
        found = []
        for number, batch in enumerate(loader):
            found += batch[0]
            if number == 60:
                fleet.kill(2)
        assert Counter(found) == Counter(f"{n:05d}" for n in range(SHARDS * EACH))
        assert traffic.ratio(nginx) <= 1.2


def paced(urls, options, seconds):
    base = wds.WebDataset(urls, exact=True, seed=5, **options).to_tuple("__key__")
    return base.batched(10, collation_fn=Paced(seconds))


def test_a_slow_producer_costs_at_most_a_third_more(nginx, urls) -> None:
    """Whoever takes over a feed reads its windows again."""
    fast, slow = Fleet(3, paced, urls, MANY, 0.02, threads=1), Fleet(1, paced, urls, MANY, 0.3, threads=1)
    with fast, slow, wds.RemoteLoader([*slow.urls, *fast.urls], feeds=8, patience=60) as loader:
        traffic = Traffic(nginx)
        found = flat(keys(loader))
        assert Counter(found) == Counter(f"{n:05d}" for n in range(SHARDS * EACH))
        assert loader.stats()["feeds_moved"] > 0
        assert traffic.ratio(nginx) <= 1.33


# -- memory ------------------------------------------------------------------------------------------

BATCH_BYTES = 4_000_000


class Large:
    """A batch of some megabytes, whatever the samples are."""

    def __call__(self, samples):
        return (np.full(BATCH_BYTES, len(samples), np.uint8),)


def large(shards):
    base = wds.WebDataset(shards, exact=True, seed=5, lanes=2, shuffle_bytes=4000, block_bytes=1000)
    return base.to_tuple("__key__").batched(1, collation_fn=Large())


def resident(pid) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def most_memory(urls, budget, sender) -> None:
    """What a trainer's process grows by while it reads an epoch, slowly at first, so that all that can wait does."""
    loader = wds.RemoteLoader(urls, budget=budget, patience=60)
    len(loader)
    before, most = resident("self"), 0
    for number, batch in enumerate(loader):
        if number in (3, 20):
            soon(lambda: False, 1.0)
        most = max(most, resident("self") - before)
        del batch
    sender.send(most)


def test_a_trainer_holds_its_budget_and_two_batches(shards) -> None:
    budget = 8 * BATCH_BYTES
    here, there = CONTEXT.Pipe(duplex=False)
    with Fleet(2, large, shards) as fleet:
        trainer = CONTEXT.Process(target=most_memory, args=(fleet.urls, budget, there), daemon=True)
        trainer.start()
        assert here.poll(60)
        most = here.recv()
        trainer.join(20)
    # eight parts of half a megabyte wait in each of two sockets; the rest is the interpreter's, in small pieces
    assert most <= budget + 2 * BATCH_BYTES + 2 * 8 * (512 << 10) + 10_000_000


def test_a_trainer_that_takes_nothing_does_not_make_producers_grow(shards) -> None:
    """Memory stops growing: what is made ahead, one batch of each feed, and what is under way."""
    ahead = 4 * BATCH_BYTES
    with Fleet(1, large, shards, ahead=ahead) as fleet:
        pid = fleet.processes[0].pid
        before = resident(pid)
        with wds.RemoteLoader(fleet.urls, feeds=4, budget=2 * BATCH_BYTES, patience=60) as loader:
            batches = iter(loader)
            for _ in range(9):
                next(batches)
            soon(lambda: False, 1.5)  # time in which it could grow
            assert resident(pid) - before <= ahead + (4 + 2 + 2) * BATCH_BYTES + 8_000_000
