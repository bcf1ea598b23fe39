"""Mixtures of orders: every sample once, or by weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webdataset.epochs.mixed import Mixed, Mixing, MixturePart
from webdataset.epochs.order import Order, OrderSettings

SHARDS = st.lists(st.tuples(st.integers(0, 40), st.integers(600, 50_000)), min_size=1, max_size=8)


ORDERS = st.builds(
    OrderSettings,
    seed=st.one_of(st.integers(0, 5), st.text(max_size=3)),
    shuffle_bytes=st.sampled_from([0, 1, 10_000, 1_000_000, 10**9]),
    block_bytes=st.sampled_from([1, 5_000, 100_000]),
    lanes=st.sampled_from([1, 2, 3, 7, 8, 48, 64]),
)


def part(shards, chosen, repeats=1):
    total = sum(count for count, _ in shards)
    counts = np.array([count for count, _ in shards])
    sizes = counts * np.array([size for _, size in shards]) + 1024

    def order(epoch, lane_lengths):
        return Order(counts, sizes, epoch=epoch, settings=chosen, lane_lengths=lane_lengths)

    return MixturePart(total, chosen.lanes if chosen.shuffle_bytes else 1, order, repeats)


def drawn(mixed):
    return list(zip(*(column.tolist() for column in mixed.locate(np.arange(mixed.total))), strict=True))


@settings(max_examples=60)
@given(st.lists(SHARDS, min_size=1, max_size=3), ORDERS, st.booleans())
def test_a_mixture_that_goes_on_to_the_end_has_every_sample_once(datasets, chosen, weighted):
    weights = (0.7, 0.2, 0.1)[: len(datasets)] if weighted else None
    mixed = Mixed([part(one, chosen) for one in datasets], Mixing(weights, longest=True), epoch=1)
    everything = [
        (number, shard, sample)
        for number, shards in enumerate(datasets)
        for shard, (count, _) in enumerate(shards)
        for sample in range(count)
    ]
    assert sorted(drawn(mixed)) == everything


@settings(max_examples=60)
@given(st.lists(SHARDS, min_size=2, max_size=3), ORDERS, st.booleans())
def test_a_mixture_that_ends_with_the_first_has_no_sample_twice_and_the_right_shares(datasets, chosen, weighted):
    weights = (0.5, 0.25, 0.25)[: len(datasets)] if weighted else None
    mixed = Mixed([part(one, chosen) for one in datasets], Mixing(weights), epoch=1)
    found = drawn(mixed)
    assert len(set(found)) == len(found)
    shares = np.array(weights or [1.0] * len(datasets))
    expected = mixed.total * shares / shares.sum()
    counts = [sum(number == one for number, _, _ in found) for one in range(len(datasets))]
    assert np.abs(np.array(counts) - expected).max() <= 1


def test_an_epoch_of_a_fixed_size_repeats_the_small_dataset_evenly():
    small, large = [(10, 1000)], [(1000, 1000)]
    mixed = Mixed(
        [part(small, OrderSettings()), part(large, OrderSettings())], Mixing((0.5, 0.5), samples=500), epoch=0
    )
    found = drawn(mixed)
    per_sample = np.bincount([number for dataset, _, number in found if dataset == 0], minlength=10)
    assert per_sample.tolist() == [25] * 10
    assert len({number for dataset, _, number in found if dataset == 1}) == 250


def test_a_mixture_is_well_mixed_from_the_beginning():
    mixed = Mixed(
        [part([(500, 1000)], OrderSettings()), part([(500, 1000)], OrderSettings())], Mixing(longest=True), epoch=0
    )
    first = [dataset for dataset, _, _ in drawn(mixed)[:100]]
    assert sum(first) == 50


def test_datasets_of_different_lanes_cannot_be_mixed():
    parts = [part([(5, 1000)], OrderSettings(lanes=8)), part([(5, 1000)], OrderSettings(lanes=4))]
    with pytest.raises(ValueError, match="lanes"):
        Mixed(parts, Mixing(longest=True), epoch=0)
