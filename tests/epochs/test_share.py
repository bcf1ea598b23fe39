"""The shares of the ranks: a partition of the epoch into steps, whatever the topology."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.epochs.numbers import spread
from webdataset.epochs.share import REMAINDERS, Cut, Share

TOTALS = st.integers(0, 300)
LANES = st.sampled_from([1, 2, 6, 8, 48, 64])
WORLDS = st.integers(1, 9)
CUTS = st.builds(Cut, st.integers(1, 9), st.booleans(), st.sampled_from(REMAINDERS), st.booleans())


def shares(total, lanes, world, cut, start=0):
    return [Share(total, spread(lanes), rank=rank, world=world, start=start, cut=cut) for rank in range(world)]


@given(TOTALS, LANES, WORLDS, CUTS, st.data())
def test_every_rank_takes_as_many_steps_and_every_sample_comes_once(total, lanes, world, cut, data):
    start = data.draw(st.integers(0, total))
    everyone = shares(total, lanes, world, cut, start)
    assert len({share.steps for share in everyone}) == 1
    taken = [[share.positions(step).tolist() for step in range(share.steps)] for share in everyone]
    counts = Counter(position for steps in taken for step in steps for position in step)
    real = {position: n for position, n in counts.items() if position < total}
    assert set(real.values()) <= {1}
    assert sum(share.dropped for share in everyone) == total - start - len(real)
    assert sum(share.repeated for share in everyone) == sum(n for p, n in counts.items() if p >= total)
    if cut.remainder != "drop":
        assert set(real) == set(range(start, total))
    assert all(1 <= len(step) <= cut.size for steps in taken for step in steps)
    if cut.whole and cut.remainder != "uneven":
        assert all(len(step) == cut.size for steps in taken for step in steps)


@given(TOTALS, LANES, WORLDS, CUTS, st.data())
def test_the_sizes_of_steps_are_those_of_their_positions(total, lanes, world, cut, data):
    for share in shares(total, lanes, world, cut, data.draw(st.integers(0, total))):
        assert share.sizes().tolist() == [len(share.positions(step)) for step in range(share.steps)]


@given(TOTALS, LANES, WORLDS, CUTS)
def test_who_owns_a_position_is_who_takes_it(total, lanes, world, cut):
    for share in shares(total, lanes, world, cut):
        owned = share.steps_of(np.arange(total)).tolist()
        for step in range(share.steps):
            for position in share.positions(step).tolist():
                assert position >= total or owned[position] == step
        assert sum(step >= 0 for step in owned) == share.count - share.repeated


@given(TOTALS, LANES, st.integers(1, 8), st.integers(1, 8))
def test_padding_repeats_as_few_samples_as_possible(total, lanes, world, size):
    partial = shares(total, lanes, world, Cut(size))
    assert sum(share.repeated for share in partial) == -total % world
    whole = shares(total, lanes, world, Cut(size, whole=True, remainder="pad"))
    assert sum(share.repeated for share in whole) == -total % (world * size)


@given(TOTALS, LANES, st.integers(1, 8), st.integers(2, 8))
def test_uneven_repeats_nothing_where_every_rank_has_a_sample_for_each_step(total, lanes, world, size):
    everyone = shares(total, lanes, world, Cut(size, remainder="uneven"))
    if min(share.real for share in everyone) >= everyone[0].steps:
        assert sum(share.repeated for share in everyone) == 0


@given(TOTALS, LANES, st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]))
def test_the_global_batches_are_the_same_on_any_number_of_ranks(total, lanes, world):
    size = 24
    together = [set(shares(total, lanes, 1, Cut(size))[0].positions(step).tolist()) for step in range(total // size)]
    everyone = shares(total, lanes, world, Cut(size // world))
    for step, batch in enumerate(together):
        assert batch == {p for share in everyone for p in share.positions(step).tolist()}


@given(TOTALS, LANES, st.lists(st.tuples(WORLDS, st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=4))
def test_changing_the_topology_in_the_middle_loses_and_repeats_nothing(total, lanes, runs):
    start, seen = 0, []
    for world, size, steps in runs:
        everyone = shares(total, lanes, world, Cut(size), start)
        for step in range(min(steps, everyone[0].steps)):
            for share in everyone:
                seen += share.positions(step).tolist()
        done = min(steps, everyone[0].steps)
        turns = everyone[0].span(done)[0] if done < everyone[0].steps else everyone[0].count
        start = min(start + turns * world, total)
    real = [position for position in seen if position < total]
    assert sorted(real) == list(range(start))


def test_a_rank_reads_lanes_of_its_own_where_their_number_divides():
    for world in (1, 2, 4, 8, 16, 32, 64):
        lanes = [set(share.lanes()) for share in shares(10_000, 64, world, Cut(4))]
        assert [len(one) for one in lanes] == [64 // world] * world
        assert len(set.union(*lanes)) == 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2, "world": 2}, "rank 2 is not one of the 2 ranks"),
        ({"start": 11}, "position 11 is not in an epoch of 10"),
        ({"cut": Cut(0)}, "at least one sample"),
        ({"cut": Cut(1, remainder="wrap")}, "pad, drop, uneven"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Share(10, spread(4), **arguments)
