"""Rounds: epochs one after the other, cut as `with_epoch` and `repeat` say, so that each round can be resumed.

Of an exact dataset, `with_epoch(n)` cuts the endless sequence of epochs into rounds of n items, each of which begins
where the one before ended: so every sample still comes once before any comes twice. `repeat(n)` makes a round of n
epochs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from webdataset.base.positions import Position
from webdataset.base.rounds import RoundLimits, check_same, rounds
from webdataset.base.workers import is_loader_worker, pytorch_worker_info

from .positions import BEGINNING, InEpoch, in_epoch
from .program import Program


class Steered(Protocol):
    """What knows where a run is, and can go elsewhere: the runner of an exact dataset, or the workers of a loader."""

    counted: tuple[int, int, int] | None
    """Passes, items and the number of the round that is under way."""

    @property
    def place(self) -> Position | None: ...
    def program(self) -> Program: ...
    def next_epoch(self) -> int: ...
    def loaded_place(self) -> Position | None: ...
    def seek(self, place: Position) -> None: ...


class Rounds:
    """The rounds of a run."""

    def __init__(self, steered: Steered, limits: RoundLimits) -> None:
        self._steered = steered
        self._limits = limits
        _, _, worker, workers = pytorch_worker_info() if is_loader_worker() else (0, 1, 0, 1)
        self._most = (limits.items - worker + workers - 1) // workers if limits.items else sys.maxsize
        """Items of a round; those of this worker, in torch's own loader."""

    def items(self, one_pass: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The items of the next round, or of the rest of the one that was resumed; `one_pass` reads an epoch."""
        steered, start = self._steered, self.upcoming()
        number = start.round

        def begin(turn: int, given: int) -> Iterator[Any]:
            later = Position(start.epoch + turn - start.passes, turn, given, number, BEGINNING)
            steered.seek(start if turn == start.passes else later)
            return one_pass()

        def took(turn: int, given: int) -> None:
            steered.counted = turn, given, number

        passes = start.passes, self._limits.passes or sys.maxsize
        items = start.given, self._most
        yield from rounds(begin, took, passes=passes, items=items, resumed=not start.where.is_beginning)
        steered.seek(self._after(steered.place or start))

    def upcoming(self) -> Position:
        """Where the next round begins, or goes on."""
        place, latest, epoch = self._steered.loaded_place(), self._steered.place, self._steered.next_epoch()
        if place is not None:
            return place
        if latest is None or latest.epoch + 1 != epoch:
            return in_epoch(epoch, round=self._round_of(epoch))
        return self._after(latest)  # the latest round was abandoned

    def set_epoch(self, number: int) -> None:
        """Make this the next round; one that goes on, or follows on the latest, does so where that says."""
        if self.upcoming().round != number:
            self._steered.seek(self._beginning(number))

    def _after(self, place: Position) -> Position:
        """Where the round after this one begins."""
        number = place.round + 1
        # worker processes of torch's own loader may be new ones in every round: they begin with an epoch
        where = place.where
        if where.is_beginning or not self._limits.continues or is_loader_worker():
            return in_epoch(place.epoch + (not where.is_beginning), round=number)
        program = self._steered.program()
        if where.step >= program.rest(program.epoch(place.epoch), where).steps:
            return in_epoch(place.epoch + 1, round=number)
        return in_epoch(place.epoch, where, round=number)

    def _beginning(self, number: int) -> Position:
        """Where a round begins if all before it are complete."""
        passes, items = self._limits
        if passes is not None or not items:
            return in_epoch(number * (passes or 1), round=number)
        program = self._steered.program()
        left, epoch = number * items, 0
        if not program.varies:
            epoch, left = divmod(left, program.length())
        while left >= (length := program.length(epoch)):
            epoch, left = epoch + 1, left - length
        step, skip = divmod(left, program.batches.per_step)
        return in_epoch(epoch, InEpoch(0, step, skip, base=step), round=number)

    def _round_of(self, epoch: int) -> int:
        passes, items = self._limits
        if passes is not None or not items:
            return epoch // (passes or 1)
        return 0 if not epoch else epoch * self._steered.program().length() // items


def saved_round(program: Program, place: Position, limits: RoundLimits) -> dict[str, Any]:
    """What a state says of the round."""
    passes, items = limits
    given = {"number": place.round, "given": place.given, "turn": place.passes}
    return {**given, "passes": passes, "items": items, "each": program.samples_of_an_item}


def restore_round(program: Program, place: Position, saved: dict[str, Any] | None, limits: RoundLimits) -> Position:
    """A place with what a state says of its round; a StateError if rounds are others now."""
    saved = saved or {"number": 0, "given": 0, "turn": 0, "passes": 1, "items": 0, "each": 0}
    items = limits.items
    each = program.samples_of_an_item
    same = each == saved["each"] or not items or not saved["items"]
    check_same(saved["passes"], saved["items"] if same else items, limits)
    # items of another size: as many as it takes to hold the samples that were given over all ranks
    given = saved["given"] if same else min(-(-saved["given"] * saved["each"] // each), items)
    return place._replace(given=given, passes=saved["turn"], round=saved["number"])
