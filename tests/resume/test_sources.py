"""Where the samples of a streamed pass come from, counted so that it can be read again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.errors import StateError
from webdataset.resume.sources import Count, _packed, _unpacked, passed_over


@given(st.integers(0, 9), st.integers(0, 20), st.integers(0, 30))
def test_a_count_is_that_of_the_items_that_passed(start, items, taken):
    count = Count(start)
    passing = count.over(range(items))
    for _ in zip(range(taken), passing, strict=False):
        pass
    # zip() takes no item after the last number
    assert count() == start + min(items, taken)


def test_items_are_left_out_but_for_those_that_are_wanted():
    stream = iter("abcdefgh")
    assert passed_over(stream, 10, 15, [11, 14, 17]) == {11: "b", 14: "e"}
    assert next(stream) == "f"
    with pytest.raises(StateError, match="changed"):
        passed_over(stream, 0, 9, [])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5000)), min_size=1))
def test_the_history_of_shards_is_packed(steps):
    shards, samples, shard, sample = [], [], 0, 0
    for more, there in steps:
        shard, sample = shard + more, sample + there
        shards.append(shard)
        samples.append(sample)
    assert _unpacked(_packed(shards, samples)) == (shards, samples)
