"""Which producer makes which feed, without any."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.remote.placing import Placing


def dealt(placing, producers, feeds=16):
    return Counter(placing.home(feed, feed, producers) for feed in range(feeds))


def gives(placing, seconds, batches=40, now=0.0):
    """Each producer gives so many batches, one after the other."""
    for one, each in seconds.items():
        for number in range(batches):
            placing.asked(one, now + number * each)
            placing.came(one, now + (number + 1) * each, more=False)


def test_feeds_are_dealt_evenly_at_first_and_ranks_begin_with_different_producers() -> None:
    assert dealt(Placing(), ["a", "b", "c"]) == {"a": 6, "b": 5, "c": 5}
    assert [Placing().home("feed", rank, ["a", "b", "c"]) for rank in range(4)] == ["a", "b", "c", "a"]


def test_a_feed_stays_until_its_producer_is_gone() -> None:
    placing = Placing()
    homes = {feed: placing.home(feed, feed, ["a", "b"]) for feed in range(8)}
    placing.asked("a", 0)
    placing.came("a", 100, more=False)
    assert {feed: placing.home(feed, feed, ["a", "b", "c"]) for feed in range(8)} == homes
    placing.lost("a")
    assert dealt(placing, ["b", "c"], 8) == {"b": 4, "c": 4}


def test_the_next_pass_deals_as_the_producers_are_fast() -> None:
    placing = Placing()
    dealt(placing, ["slow", "fast"])
    gives(placing, {"slow": 1.0, "fast": 0.1})
    placing.begin()
    assert dealt(placing, ["slow", "fast"]) == {"slow": 1, "fast": 15}


def test_who_gave_nothing_in_a_pass_is_tried_again() -> None:
    placing = Placing()
    gives(placing, {"slow": 1.0, "fast": 0.1})
    placing.begin()
    gives(placing, {"fast": 0.1})
    placing.begin()
    assert dealt(placing, ["slow", "fast"]) == {"slow": 8, "fast": 8}


@given(st.lists(st.floats(0.9, 1.1), min_size=2, max_size=6))
def test_producers_that_are_about_as_fast_keep_their_feeds(speeds) -> None:
    placing, producers = Placing(), [str(number) for number in range(len(speeds))]
    dealt(placing, producers)
    gives(placing, dict(zip(producers, speeds, strict=True)))
    for slow in producers:
        assert placing.moved(slow, producers, 50.0) == {}


@pytest.mark.parametrize("fast", [1, 3, 7])
def test_after_feeds_were_moved_a_round_takes_hardly_longer_than_without_the_slow_one(fast) -> None:
    placing, producers = Placing(), ["slow", *(f"fast-{number}" for number in range(fast))]
    dealt(placing, producers)
    gives(placing, {one: 1.0 if one == "slow" else 0.1 for one in producers})
    placing.moved("slow", producers, 50.0)
    counts = dealt(placing, producers)  # where they are now
    assert counts["slow"] <= 1
    alone = -(-16 // fast) * 0.1
    assert max(counts["slow"] * 1.0, *(counts[one] * 0.1 for one in producers[1:])) <= max(1.25 * alone, 1.0)


def test_one_that_gives_what_it_made_ahead_is_no_faster_than_it_says() -> None:
    placing = Placing()
    dealt(placing, ["a", "b"])
    for number in range(40):
        for one, seconds in (("a", 1.0), ("b", 0.01)):  # which had time
            placing.asked(one, number)
            placing.came(one, number + seconds, more=False, making=1.0)
    assert placing.moved("a", ["a", "b"], 50.0) == {}


def test_one_that_hangs_is_slow_although_it_was_fast() -> None:
    placing = Placing()
    dealt(placing, ["a", "b"])
    gives(placing, {"a": 0.1, "b": 0.1})
    placing.asked("a", 10)
    assert placing.moved("a", ["a", "b"], 10.1) == {}
    assert len(placing.moved("a", ["a", "b"], 20)) == 8


def test_one_that_gives_many_at_once_after_silences_is_not_fast() -> None:
    """As one does that reads slowly, or behind a slow link."""
    placing = Placing()
    dealt(placing, ["bursts", "steady"])
    gives(placing, {"steady": 0.02})
    for silence in range(0, 40, 8):
        placing.asked("bursts", silence)
        for number in range(100):
            placing.came("bursts", silence + 8 + number * 0.001, more=True)
        placing.unasked("bursts")
        placing.moved("bursts", ["bursts", "steady"], silence + 9.0)
        assert dealt(placing, ["bursts", "steady"])["bursts"] <= 4
        assert placing.moved("steady", ["bursts", "steady"], silence + 9.0) == {}


def test_a_silence_that_nobody_waits_for_to_its_end_counts() -> None:
    placing = Placing()
    dealt(placing, ["bursts", "steady"])
    gives(placing, {"bursts": 0.001, "steady": 0.02})
    placing.asked("bursts", 10)
    assert len(placing.moved("bursts", ["bursts", "steady"], 12)) == 8
    placing.unasked("bursts")
    assert placing.moved("steady", ["bursts", "steady"], 12) == {}
