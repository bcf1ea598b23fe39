"""The items of steps, and the position after each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.base.positions import Position
from webdataset.exact.positions import InEpoch, StepItems, at_step, in_epoch, latest_position

STEPS = st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=5)


def steps_from(start: Position, steps: list[list[int]]) -> list[tuple[Position, list[int]]]:
    return [(at_step(start, number), items) for number, items in enumerate(steps) if number >= start.where.step]


@given(STEPS)
def test_from_the_position_after_any_item_the_rest_comes(steps: list[list[int]]) -> None:
    start = in_epoch(3)
    whole = StepItems(steps_from(start, steps), start, 4)
    items = iter(whole)
    every = [item for step in steps for item in step]
    for number in range(len(every)):
        assert next(items) == every[number]
        position = whole.position()
        assert list(StepItems(steps_from(position, steps), position, 4)) == every[number + 1 :]
    assert next(items, None) is None
    assert whole.position() == in_epoch(4)


def test_before_the_first_item_the_position_is_where_it_begins() -> None:
    start = in_epoch(1, InEpoch(10, 2, 1))
    items = StepItems([], start, 4)
    iter(items)
    assert items.position() == start


@pytest.mark.parametrize(("size", "even"), [(4, True), (3, False)])
def test_a_position_within_a_step_says_whether_items_are_even(size: int, even: bool) -> None:
    items = StepItems([(in_epoch(0), list(range(size)))], in_epoch(0), 4)
    next(iter(items))
    assert items.position().where == InEpoch(0, 0, 1, even)


def test_the_counts_of_a_round_are_part_of_the_position() -> None:
    position = latest_position(lambda: in_epoch(2), (1, 7, 3))
    assert position == Position(2, 1, 7, 3, InEpoch())
    assert latest_position(None, (1, 7, 3)) is None


def test_a_pass_that_is_abandoned_stops_reading() -> None:
    def steps() -> Iterator[tuple[Position, list[int]]]:
        try:
            yield in_epoch(0), [1, 2]
            yield at_step(in_epoch(0), 1), [3]
        finally:
            ended.append(True)

    ended: list[bool] = []
    whole = StepItems(steps(), in_epoch(0), 2)
    items = iter(whole)
    next(items)
    assert ended == []
    del items
    assert ended == [True]
    assert whole.position().where == InEpoch(0, 0, 1)
