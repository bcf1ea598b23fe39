"""Positions in exact epochs: steps, the items of a step, and which of them was the latest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import length_hint
from typing import Any, NamedTuple

from webdataset.base.positions import Position
from webdataset.handlers import close


class InEpoch(NamedTuple):
    """A place in an exact epoch."""

    start: int = 0
    """The position of the epoch from which steps are counted."""
    step: int = 0
    skip: int = 0
    """Items of that step that were given already, ..."""
    even: bool = True
    """... and whether each was made of as many samples, so that these are known."""
    base: int = 0
    """The step from which on steps are dealt to the workers in turn."""
    done: int = 0
    """Batches that other ranks had taken from `start` on, and after which these count their steps."""

    @property
    def is_beginning(self) -> bool:
        """Whether nothing of the epoch was given before."""
        return not (self.start or self.step or self.skip or self.done)


BEGINNING = InEpoch()


def in_epoch(epoch: int, where: InEpoch = BEGINNING, *, round: int = 0) -> Position:
    """A position in an epoch: its beginning, if no place is given."""
    return Position(epoch, round=round, where=where)


def at_step(position: Position, step: int, skip: int = 0, *, even: bool = True) -> Position:
    """A position moved to another step of its epoch."""
    epoch, passes, given, number, (start, _, _, _, base, done) = position
    return Position(epoch, passes, given, number, InEpoch(start, step, skip, even, base, done))


def latest_position(
    at: Position | Callable[[], Position | None] | None, counted: tuple[int, int, int] | None
) -> Position | None:
    """A position, or that which a function tells, with the counts of the round that is under way."""
    position: Position | None = at() if callable(at) else at
    if position is None or counted is None:
        return position
    passes, given, number = counted
    return position._replace(passes=passes, given=given, round=number)


class StepItems:
    """The items of steps, one after the other, and the position after the latest.

    An item costs nothing here: the iterators of the interpreter give them, and know how many of a step are left.
    """

    def __init__(self, steps: Iterable[tuple[Position, list[Any]]], start: Position, per_step: int) -> None:
        self._steps = steps
        self._start = start
        self._per_step = per_step
        self._at = start
        """The step of the latest item; where the pass begins, before there was one."""
        self._count = 0
        self._left: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._parts())

    def _parts(self) -> Iterator[Iterator[Any]]:
        first = self._start.where
        try:
            for at, items in self._steps:
                skipped = first.skip if at.where.step == first.step else 0
                self._at, self._count = at, len(items)
                self._left = iter(items[skipped:] if skipped else items)
                yield self._left
        finally:
            close(self._steps)  # whoever asks for the position keeps this object, but no shards and no pipeline
        self._at, self._left = in_epoch(self._start.epoch + 1), None

    def close(self) -> None:
        """Stop reading."""
        close(self._steps)

    def position(self) -> Position:
        """The position after the latest item."""
        if self._left is None:
            return self._at
        number, step = self._count - length_hint(self._left), self._at.where.step
        if number == self._count:
            return at_step(self._at, step + 1)
        return at_step(self._at, step, number, even=self._count == self._per_step)
