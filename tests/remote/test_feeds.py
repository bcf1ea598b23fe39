"""The feeds of an epoch, as pure arithmetic: thousands of topologies, no process and no file."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webdataset.epochs.numbers import spread
from webdataset.epochs.share import Cut, Share
from webdataset.remote.feeds import Leftover, Outline, Remaining, after_steps, feeds_of, goes_on, outline, whole_rounds

TOPOLOGIES = 1200


def drawn_topology(number: int) -> tuple[int, int, int, int, Cut, int]:
    draw = random.Random(number)
    world = draw.choice([1, 2, 3, 4, 6, 8])
    feeds = world * draw.choice([1, 2, 3, 4, 8])
    lanes = draw.choice([1, 2, 4]) * feeds
    remainder = draw.choice(["pad", "drop", "uneven"])
    cut = Cut(draw.choice([1, 2, 5, 8, 32]), draw.random() < 0.3 and remainder != "uneven", remainder)
    total = draw.choice([draw.randrange(1, 50), draw.randrange(1, 800)])
    return total, lanes, world, feeds, cut, draw.randrange(total) if draw.random() < 0.3 else 0


def outlines(total, places, world, feeds, cut, start=0):  # noqa: PLR0917 - a topology
    @functools.cache
    def shares(begin, rank, ranks):
        return Share(total, places, rank=rank, world=ranks, start=begin, cut=cut)

    return shares, [
        outline(shares, total, cut, feeds=feeds, rank=rank, world=world, start=start) for rank in range(world)
    ]


def positions_of(shares, one: Outline) -> list[list[int]]:
    """The positions of every step of a rank, as producers would read them."""
    steps = [one.at(number) for number in range(one.steps)]
    return [shares(at.start, at.rank, at.world).positions(at.step).tolist() for at in steps]


def taken(batches: list[list[list[int]]], total: int) -> Counter[int]:
    return Counter(position % total for rank in batches for batch in rank for position in batch)


def test_length_repeats_and_drops_are_those_of_ranks_that_read_by_themselves_in_1200_topologies() -> None:
    for number in range(TOPOLOGIES):
        total, lanes, world, feeds, cut, start = drawn_topology(number)
        shares, found = outlines(total, spread(lanes), world, feeds, cut, start)
        local = [shares(start, rank, world) for rank in range(world)]
        batches = [positions_of(shares, one) for one in found]
        assert [one.steps for one in found] == [share.steps for share in local], number
        assert [len(rank) for rank in batches] == [share.steps for share in local], number
        counts = taken(batches, total)
        given = sum(counts.values())
        assert given == sum(share.count for share in local), number
        missing = total - start - len({p for p in counts if p >= start})
        assert missing == sum(share.dropped for share in local), number
        repeats = given - (total - start - missing)
        assert repeats == sum(share.repeated for share in local), number


def test_every_sample_comes_once_where_they_divide_evenly() -> None:
    shares, found = outlines(1536, spread(64 * 8), 4, 8, Cut(16), 0)
    assert taken([positions_of(shares, one) for one in found], 1536) == Counter(range(1536))


@pytest.mark.parametrize("other", [1, 2, 4, 8])
def test_the_batches_in_whole_rounds_do_not_depend_on_the_number_of_ranks(other: int) -> None:
    def sequence(world: int) -> list[list[int]]:
        shares, found = outlines(3000, spread(64 * 8), world, 8, Cut(10), 0)
        ranks = [positions_of(shares, one)[: one.in_rounds] for one in found]
        return [batch for step in zip(*ranks, strict=True) for batch in step]

    assert sequence(other) == sequence(1)


def steps_of(found, shares, steps: int) -> list[int]:
    """What all ranks take in so many steps."""
    ats = [one.at(step) for one in found for step in range(steps)]
    return [p for at in ats for p in shares(at.start, at.rank, at.world).positions(at.step).tolist()]


def taken_and_repeated(topology, changes: list[tuple[int, int]]) -> tuple[list[int], int, int]:
    """What ranks take of an epoch, if after each of so many steps others go on.

    Also how many ranks there were at most, and how many samples may come again between smaller last steps.
    """
    total, lanes, world, feeds, cut, _ = topology
    shares, found = outlines(total, spread(lanes), world, feeds, cut)
    taken: list[int] = []
    most, repeated = world, 0
    for steps, other in changes:
        steps = min(steps, found[0].steps)
        assert {one.steps for one in found} == {found[0].steps}
        [begun] = {one.place(steps) for one in found}
        taken += steps_of(found, shares, steps)
        rounds = whole_rounds(total - begun.start, begun.feeds, cut)
        repeated += world
        where = goes_on(begun, world, other, total=total, cut=cut)
        world, most = other, max(most, other)
        again = begun.feeds if not begun.feeds % world else -(-feeds // world) * world
        left = Leftover(begun, world, rounds, total, cut)
        start = left.end if where.done else where.start
        _, found = outlines(total, spread(lanes), world, again, cut, start)
        if where.done:
            found = [Remaining(left, one) for one in found]
        elif where.step:
            _, found = outlines(total, spread(lanes), world, begun.feeds, cut, begun.start)
            found = [After(one, where.step) for one in found]
    return taken + steps_of(found, shares, found[0].steps), most, repeated


class After(NamedTuple):
    """An outline from a step on, as a loader takes it that has loaded a state."""

    whole: Outline
    step: int

    @property
    def steps(self) -> int:
        return self.whole.steps - self.step

    def at(self, number: int):
        return self.whole.at(self.step + number)

    def place(self, step: int):
        return self.whole.place(self.step + step)


def check_that_every_sample_comes_once(number: int, changes: list[tuple[int, int]]) -> None:
    total, *_, cut, _ = topology = drawn_topology(number)
    found, most, repeated = taken_and_repeated(topology, changes)
    counts = Counter(position % total for position in found)
    if cut.remainder == "drop":
        assert max(counts.values(), default=0) <= 1
        assert total - len(counts) <= most * cut.size
    else:
        assert len(counts) == total
        assert len(found) - total <= most * cut.size + (repeated if cut.remainder == "uneven" else 0)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=4))
@example(6506, [(0, 1), (1, 8)])  # those that fill the last step of a round take smaller steps than they could
def test_any_ranks_go_on_after_any_batch_and_every_sample_comes_once(
    number: int, changes: list[tuple[int, int]]
) -> None:
    """Some ranks begin, others go on, and others after them, and so on to the end."""
    check_that_every_sample_comes_once(number, changes)


@pytest.mark.parametrize(("world", "other"), [(2, 1), (2, 3), (3, 2)])
def test_nothing_is_lost_where_other_ranks_go_on_between_smaller_last_steps(world: int, other: int) -> None:
    cut = Cut(4, remainder="uneven")
    for total in range(6, 60):
        shares, found = outlines(total, spread(12), world, 6, cut)
        tail, rest = found[0].tail, found[0].steps - found[0].in_rounds
        for steps in range(1, rest):
            _, then = outlines(
                total, spread(12), other, 6, cut, after_steps(tail, steps, world=world, total=total, cut=cut)
            )
            before = [positions_of(shares, one)[: one.in_rounds + steps] for one in found]
            counts = taken([*before, *(positions_of(shares, one) for one in then)], total)
            assert len(counts) == total, (total, steps)
            assert sum(counts.values()) - total <= world + other


def test_feeds_that_take_turns_give_the_steps_of_a_rank() -> None:
    def shares(begin, rank, ranks):
        return Share(100, [0], rank=rank, world=ranks, start=begin, cut=Cut(8))

    found = outline(shares, 100, Cut(8), feeds=4, rank=1, world=2, in_turn=True)
    steps = [found.at(number) for number in range(found.steps)]
    assert [at.step for at in steps] == list(range(7))
    assert [at.worker for at in steps] == [0, 1, 0, 1, 0, 1, 0]
    assert steps[0].after == steps[2]


def test_each_feed_has_lanes_of_its_own_for_any_number_of_ranks() -> None:
    for feeds in (1, 2, 6, 16, 18, 24):
        places = spread(16 * feeds)
        owned = [Share(16 * feeds * 50, places, rank=feed, world=feeds).lanes() for feed in range(feeds)]
        assert Counter(lane for lanes in owned for lane in lanes) == Counter(range(16 * feeds)), feeds


def test_the_number_of_feeds_is_a_multiple_of_the_ranks() -> None:
    assert [feeds_of(world) for world in (1, 2, 3, 5, 8, 16, 24)] == [16, 16, 18, 20, 16, 16, 24]


@pytest.mark.parametrize("wrong", [{"rank": 2}, {"feeds": 3}, {"start": 101}, {"start": -1}])
def test_a_wrong_topology_is_refused(wrong: dict[str, int]) -> None:
    def shares(*_):
        raise AssertionError

    with pytest.raises(ValueError, match=r"feeds|position"):
        outline(shares, 100, Cut(8), **{"feeds": 4, "rank": 0, "world": 2, **wrong})
