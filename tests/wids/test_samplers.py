"""Orders in which to read by number."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wids


def test_shards_are_shuffled_one_after_the_other(shards):
    sampler = wids.ShardedSampler(wids.ShardListDataset(shards))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(15))
    assert [sorted(first[n : n + 5]) for n in (0, 5, 10)] == [list(range(n, n + 5)) for n in (0, 5, 10)]
    assert first != second
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert wids.ShardListSampler is wids.ShardedSampler


@given(
    total=st.integers(1, 60),
    chunk=st.integers(1, 70),
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
    first=st.booleans(),
)
def test_a_chunked_sampler_gives_each_number_once(total, chunk, seed, epoch, first):
    sampler = wids.ChunkedSampler(range(total), chunksize=chunk, seed=seed, shufflefirst=first)
    sampler.set_epoch(epoch)
    numbers = list(sampler)
    assert (sorted(numbers), len(sampler)) == (list(range(total)), total)
    if epoch == 0 and not first:
        assert [number // chunk for number in numbers] == [number // chunk for number in range(total)]


def test_a_range_and_a_length_can_be_chosen():
    assert sorted(wids.ChunkedSampler(range(20), num_samples=(5, 12), chunksize=3)) == list(range(5, 12))
    assert sorted(wids.ChunkedSampler(range(20), num_samples=7)) == list(range(7))
    longer = wids.ChunkedSampler(range(4), dslength_per_replica=10, shuffle=False)
    assert (list(longer), len(longer)) == ([0, 1, 2, 3, 0, 1, 2, 3, 0, 1], 10)
    with pytest.raises(ValueError, match="start"):
        wids.ChunkedSampler(range(4), num_samples=(3, 2))


@given(total=st.integers(1, 50), ranks=st.integers(1, 7), shuffle=st.booleans())
def test_ranks_have_equal_parts_that_cover_all(total, ranks, shuffle):
    parts = [
        list(wids.DistributedChunkedSampler(range(total), num_replicas=ranks, rank=rank, shuffle=shuffle, chunksize=3))
        for rank in range(ranks)
    ]
    counts = Counter(chain.from_iterable(parts))
    assert len({len(part) for part in parts}) == 1
    assert set(counts) == set(range(total))
    assert sum(counts.values()) - total < ranks


def test_the_rest_can_be_dropped(monkeypatch):
    parts = [
        list(wids.DistributedChunkedSampler(range(20), num_replicas=3, rank=rank, shuffle=False, drop_last=True))
        for rank in range(3)
    ]
    assert parts == [[*range(6)], [*range(6, 12)], [*range(12, 18)]]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert list(wids.DistributedChunkedSampler(range(20), shuffle=False)) == [*range(5, 10)]
