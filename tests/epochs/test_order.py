"""The order of an epoch: a permutation that depends on shards, seed and epoch alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.epochs.order import Order, OrderSettings

SHARDS = st.lists(st.tuples(st.integers(0, 40), st.integers(600, 50_000)), min_size=1, max_size=8)
ORDERS = st.builds(
    OrderSettings,
    seed=st.one_of(st.integers(0, 5), st.text(max_size=3)),
    shuffle_bytes=st.sampled_from([0, 1, 10_000, 1_000_000, 10**9]),
    block_bytes=st.sampled_from([1, 5_000, 100_000]),
    lanes=st.sampled_from([1, 2, 3, 7, 8, 48, 64]),
)


def order_of(shards, chosen=None, epoch=0):
    counts = np.array([count for count, _ in shards])
    return Order(counts, counts * np.array([size for _, size in shards]) + 1024, epoch=epoch, settings=chosen)


def located(order):
    return list(zip(*(column.tolist() for column in order.locate(np.arange(order.total))), strict=True))


@given(SHARDS, ORDERS)
def test_every_sample_has_one_position(shards, chosen):
    everything = [(shard, number) for shard, (count, _) in enumerate(shards) for number in range(count)]
    assert sorted(located(order_of(shards, chosen))) == everything


@given(SHARDS, ORDERS)
def test_without_a_shuffle_the_order_is_that_of_the_shards(shards, chosen):
    found = located(order_of(shards, chosen._replace(shuffle_bytes=0)))
    assert found == sorted(found)


@given(SHARDS, ORDERS)
def test_the_windows_of_a_lane_are_the_lane_and_hold_no_more_than_their_share(shards, chosen):
    order = order_of(shards, chosen)
    for lane in range(order.lanes):
        windows = list(order.windows(lane))
        assert [window.first for window in windows] == np.cumsum([0] + [w.size for w in windows])[:-1].tolist()
        assert sum(window.size for window in windows) == order.lane_lengths[lane]
        for window in windows:
            sizes = window.counts * order.sample_bytes[window.shards]
            budget = (chosen.shuffle_bytes if order.shuffled else chosen.block_bytes) / order.lanes
            if not order.fits:
                assert sizes.sum() <= budget + sizes[-1] + 1


def test_epochs_and_seeds_differ():
    shards = [(100, 1000)] * 3
    orders = [located(order_of(shards, OrderSettings(seed=seed), epoch)) for seed in range(3) for epoch in range(3)]
    assert len({tuple(order) for order in orders}) == 9


def test_the_order_is_the_same_in_every_process_and_under_every_hash_seed():
    program = """
import numpy as np
from webdataset.epochs.order import Order, OrderSettings
order = Order(np.array([7, 11, 2]), np.array([9000, 14000, 3000]), epoch=3, settings=OrderSettings(seed="a"))
shards, numbers = order.locate(np.arange(20))
print(*(100 * shards + numbers))
"""
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert said == {"6 200 3 0 5 102 106 107 109 110 105 101 103 100 104 2 201 108 1 4\n"}


def test_a_hundred_sorted_shards_are_shuffled_as_well_as_by_a_permutation():
    from webdataset.exact.plans import plan
    from webdataset.indices.catalogue import Catalogue, Shard

    shards = Catalogue([Shard(f"{number}.tar", 1000, 1_500_000) for number in range(100)])
    large = Catalogue([Shard(f"{number}.tar", 10_000, 1_500_000_000) for number in range(100)])
    for data, budget in ((shards, "256MiB"), (large, "1GiB")):
        quality = plan(data, ranks=8, batch=32, shuffle_bytes=budget).shuffle_quality()
        assert quality.distance == pytest.approx(1, abs=0.1)
        assert quality.same_shard == pytest.approx(1, abs=0.1)
    # and the figure tells a bad shuffle from a good one
    assert plan(shards, ranks=8, batch=32, shuffle_bytes="1MiB").shuffle_quality().same_shard > 1.5
    assert plan(shards, ranks=8, batch=32, shuffle_bytes=0).shuffle_quality().distance < 0.1


def test_the_order_of_a_hundred_thousand_shards_is_made_at_once_and_small():
    import tracemalloc

    tracemalloc.start()
    order = Order(np.full(100_000, 10_000), np.full(100_000, 10**9), epoch=0)
    next(order.windows(5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert order.total == 10**9
    assert peak < 200e6


@pytest.mark.parametrize("shuffle_bytes", [0, 3000, 1 << 30])
def test_windows_from_a_sample_on_are_the_last_ones(shuffle_bytes) -> None:
    settings = OrderSettings(seed=1, shuffle_bytes=shuffle_bytes, block_bytes=500, lanes=4)
    order = Order(np.array([70, 30, 55]), np.array([7000, 3000, 5500]), epoch=0, settings=settings)
    for lane in range(order.lanes):
        whole = list(order.windows(lane))
        for begin in range(order.lane_lengths[lane]):
            later = [window.first for window in whole if window.first + window.size > begin]
            assert [window.first for window in order.windows(lane, begin)] == later
