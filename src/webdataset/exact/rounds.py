"""Rounds: epochs one after the other, cut as `with_epoch` and `repeat` say, so that each round can be taken up again.

Of an exact dataset, `with_epoch(n)` cuts the endless sequence of epochs into rounds of n items, each of which begins
where the one before ended: so every sample still comes once before any comes twice. `repeat(n)` makes a round of n
epochs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from webdataset.base.workers import is_loader_worker, pytorch_worker_info
from webdataset.errors import StateError
from webdataset.handlers import close

from .program import Place, Program


class Limits(NamedTuple):
    """How long a round is."""

    passes: int | None = 1
    """Epochs, None for any number."""
    items: int = 0
    """Items, at most; 0 for any number."""

    @property
    def is_one_pass(self) -> bool:
        """Whether nothing is cut or repeated."""
        return self == Limits()

    @property
    def continues(self) -> bool:
        """Whether a round begins where the one before has ended, rather than with an epoch."""
        return self.passes is None and self.items > 0


class Progress(Protocol):
    """What knows where a run is: an exact dataset, or a loader of one."""

    place: Any

    def program(self) -> Program: ...
    def next_epoch(self) -> int: ...
    def resume_place(self) -> Place | None: ...
    def resume_at(self, place: Place) -> None: ...


class Rounds:
    """The rounds of a run."""

    def __init__(self, progress: Progress, limits: Limits) -> None:
        self._progress = progress
        self._limits = limits
        _, _, worker, workers = pytorch_worker_info() if is_loader_worker() else (0, 1, 0, 1)
        self._most = (limits.items - worker + workers - 1) // workers if limits.items else sys.maxsize
        """Items of a round; those of this worker, in torch's own loader."""

    def items(self, one_pass: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """The items of the next round, or of the rest of the one that was taken up; `one_pass` reads an epoch."""
        place = self.upcoming()
        while not self._is_over(place):
            self._progress.resume_at(place)
            items = one_pass()
            given = place.given
            try:
                for item in items:
                    given += 1
                    at = self._progress.place
                    self._progress.place = at._replace(given=given, turn=place.turn, round=place.round)
                    yield item
                    if given == self._most:
                        break
            finally:
                close(items)
            if given == self._most:
                break
            if given == place.given and place.is_beginning:
                break  # nothing is left of an epoch: it would go on for ever
            place = Place(place.epoch + 1, given=given, turn=place.turn + 1, round=place.round)
        self._progress.resume_at(self._after(self._progress.place or place))

    def upcoming(self) -> Place:
        """Where the next round begins, or goes on."""
        place, latest, epoch = self._progress.resume_place(), self._progress.place, self._progress.next_epoch()
        if place is not None:
            return place
        if latest is None or latest.epoch + 1 != epoch:
            return Place(epoch, round=self._round_of(epoch))
        return self._after(latest)  # the latest round was abandoned

    def set_epoch(self, number: int) -> None:
        """Make this the next round; one that goes on, or follows on the latest, does so where that says."""
        if self.upcoming().round != number:
            self._progress.resume_at(self._beginning(number))

    def _is_over(self, place: Place) -> bool:
        passes = self._limits.passes
        return (passes is not None and place.turn >= passes) or place.given >= self._most

    def _after(self, place: Place) -> Place:
        """Where the round after this one begins."""
        number = place.round + 1
        # worker processes of torch's own loader may be new ones in every round: they begin with an epoch
        if place.is_beginning or not self._limits.continues or is_loader_worker():
            return Place(place.epoch + (not place.is_beginning), round=number)
        program = self._progress.program()
        if place.step >= program.share(program.epoch(place.epoch), place.start).steps:
            return Place(place.epoch + 1, round=number)
        return place._replace(given=0, turn=0, round=number)

    def _beginning(self, number: int) -> Place:
        """Where a round begins if all before it are complete."""
        passes, items = self._limits
        if passes is not None or not items:
            return Place(number * (passes or 1), round=number)
        program = self._progress.program()
        left, epoch = number * items, 0
        if not program.varies:
            epoch, left = divmod(left, program.length())
        while left >= (length := program.length(epoch)):
            epoch, left = epoch + 1, left - length
        step, skip = divmod(left, program.batches.per_step)
        return Place(epoch, 0, step, skip, base=step, round=number)

    def _round_of(self, epoch: int) -> int:
        passes, items = self._limits
        if passes is not None or not items:
            return epoch // (passes or 1)
        return 0 if not epoch else epoch * self._progress.program().length() // items


class StreamRounds:
    """The rounds of a loader of streamed data: each begins with a new pass."""

    def __init__(self) -> None:
        self._turn = self._given = 0
        self._loaded = False

    def items(self, limits: Limits, one_pass: Callable[[], Iterator[Any]], forget: Callable[[], None]) -> Iterator[Any]:
        """The items of the next round, or of the rest of the one that was taken up.

        `one_pass` begins a pass, or goes on with the one that was taken up; `forget` says that the pass is over.
        """
        loaded, self._loaded = self._loaded, False
        turn, given = (self._turn, self._given) if loaded else (0, 0)
        passes, most = limits.passes or sys.maxsize, limits.items or sys.maxsize
        while turn < passes and given < most:
            before = given
            items = one_pass()
            try:
                for item in items:
                    given += 1
                    if given == most:
                        forget()
                    self._turn, self._given = turn, given
                    yield item
                    if given == most:
                        break
            finally:
                close(items)
            if given == before and not loaded:
                break  # nothing comes of a pass: it would go on for ever
            loaded = False
            turn += 1
        self._turn = self._given = 0

    def state(self, limits: Limits) -> dict[str, Any]:
        """What a state says of the round."""
        return {"passes": limits.passes, "items": limits.items, "turn": self._turn, "given": self._given}

    def load(self, state: Any, limits: Limits, load_pass: Callable[[Any], None]) -> None:
        """Make the next round go on where the state says, and with `load_pass` its pass; all of it or nothing."""
        saved = state.get("round") if isinstance(state, dict) else None
        saved = saved or {"passes": 1, "items": 0, "turn": 0, "given": 0}
        try:
            passes, items, turn, given = (saved[name] for name in ("passes", "items", "turn", "given"))
        except (KeyError, TypeError) as exn:
            raise StateError(f"the state is damaged: {type(exn).__name__} at {exn}") from None
        _check_same(passes, items, limits)
        load_pass(state)
        self._turn, self._given, self._loaded = turn, given, True


def saved_round(program: Program, place: Place, limits: Limits) -> dict[str, Any]:
    """What a state says of the round."""
    passes, items = limits
    given = {"number": place.round, "given": place.given, "turn": place.turn}
    return {**given, "passes": passes, "items": items, "each": _samples_of_an_item(program)}


def taken_up(program: Program, place: Place, saved: dict[str, Any] | None, limits: Limits) -> Place:
    """A place with what a state says of its round; a StateError if rounds are others now."""
    saved = saved or {"number": 0, "given": 0, "turn": 0, "passes": 1, "items": 0, "each": 0}
    items = limits.items
    each = _samples_of_an_item(program)
    same = each == saved["each"] or not items or not saved["items"]
    _check_same(saved["passes"], saved["items"] if same else items, limits)
    # items of another size: as many as it takes to hold the samples that were given over all ranks
    given = saved["given"] if same else min(-(-saved["given"] * saved["each"] // each), items)
    return place._replace(given=given, turn=saved["turn"], round=saved["number"])


def _samples_of_an_item(program: Program) -> int:
    """Samples over all ranks."""
    return program.batches.item * program.sources[0].shards.rank_and_world()[1]


def _check_same(passes: int | None, items: int, limits: Limits) -> None:
    if (passes, items) != limits:
        then, now = _said(passes, items), _said(*limits)
        raise StateError(
            f"the state does not fit: it was saved with {then}, and this is a dataset with {now}",
            hint="give with_epoch() and repeat() as they were",
        )


def _said(passes: int | None, items: int) -> str:
    if passes is None:
        return f"with_epoch({items})" if items else "repeat()"
    if passes == 1 and not items:
        return "its own epochs"
    return f"repeat({passes}, nbatches={items})" if items else f"repeat({passes})"
