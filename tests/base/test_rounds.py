"""Rounds: passes that are repeated and cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import webdataset as wds
from webdataset.base.rounds import RoundLimits, check_same, one_after_the_other, rounds


def numbers(passes: int, given: int) -> Iterator[int]:
    return iter(range(10 * passes, 10 * passes + 3))


@pytest.mark.parametrize(
    ("passes", "items", "expected"),
    [
        ((0, 2), (0, 99), [0, 1, 2, 10, 11, 12]),
        ((0, 9), (0, 4), [0, 1, 2, 10]),
        ((1, 2), (3, 99), [10, 11, 12]),
        ((0, 9), (4, 4), []),
        ((2, 2), (0, 4), []),
    ],
)
def test_a_round_has_its_passes_and_its_items(
    passes: tuple[int, int], items: tuple[int, int], expected: list[int]
) -> None:
    taken = []
    given = list(rounds(numbers, lambda *at: taken.append(at), passes=passes, items=items, resumed=False))
    assert given == expected
    assert [count for _, count in taken] == list(range(items[0] + 1, items[0] + 1 + len(expected)))


def test_an_empty_pass_ends_a_round_unless_it_is_the_rest_of_one() -> None:
    def begin(passes: int, given: int) -> Iterator[int]:
        return iter(range(1, 3) if passes == 1 else ())

    def take(resumed: bool) -> list[int]:
        return list(rounds(begin, lambda *_: None, passes=(0, 9), items=(0, 9), resumed=resumed))

    assert (take(resumed=False), take(resumed=True)) == ([], [1, 2])
    finished: list[bool] = []
    assert list(one_after_the_other(lambda: ([iter(""), iter("a")], False), lambda: finished.append(True))) == []
    assert list(one_after_the_other(lambda: ([iter(""), iter("a"), iter("b")], True))) == ["a", "b"]
    assert finished == [True]


def test_a_pass_is_closed_when_the_round_is_given_up() -> None:
    closed = []

    def items() -> Iterator[int]:
        try:
            yield from range(9)
        finally:
            closed.append(True)

    taken = rounds(lambda *_: items(), lambda *_: None, passes=(0, 1), items=(0, 9), resumed=False)
    next(taken)
    taken.close()  # type: ignore[attr-defined]
    assert closed


def test_lengths_follow_from_the_limits() -> None:
    assert RoundLimits(2).length(lambda passes: 5 * passes) == 10
    assert RoundLimits(2, 7).length(lambda passes: 5 * passes) == 7
    assert RoundLimits(None, 7).length(lambda passes: 0) == 7
    with pytest.raises(TypeError, match="repeats without end"):
        RoundLimits(None).length(lambda passes: 0)


def test_rounds_of_another_length_are_named() -> None:
    check_same(None, 4, RoundLimits(None, 4))
    with pytest.raises(wds.StateError, match=r"saved with repeat\(2\), and this is a dataset with with_epoch\(3\)"):
        check_same(2, 0, RoundLimits(None, 3))
