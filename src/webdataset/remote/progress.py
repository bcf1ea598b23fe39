"""Where a trainer is in the epochs that producers serve, and the state to go on from."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from webdataset.base.positions import Position
from webdataset.base.reports import Report
from webdataset.base.rounds import RoundLimits
from webdataset.base.states import VERSION, check_fits
from webdataset.base.workers import pytorch_worker_info
from webdataset.epochs.share import Cut
from webdataset.errors import EmptyDatasetError, StateError
from webdataset.exact.positions import InEpoch, at_step, in_epoch, latest_position
from webdataset.exact.rounds import Rounds, restore_round, saved_round
from webdataset.exact.stages import Batching

from .asking import Arrived, AskingOptions, Producers
from .feeds import MOST_FEEDS, EpochPlace, Leftover, Outline, Remaining, feeds_of, goes_on, whole_rounds

Found = TypeVar("Found")


class RemoteProgram:
    """What producers serve, as far as rounds and states ask for it."""

    def __init__(self, progress: RemoteProgress) -> None:
        self._progress = progress
        plan = progress.plan()
        self.described: dict[str, Any] = plan["of"]
        self.batches = Batching(*plan["batches"])
        self.cut = Cut(*self.described["cut"])
        self.total = int(self.described["samples"])
        self.varies: bool = plan["varies"]

    @property
    def samples_of_an_item(self) -> int:
        """Samples of an item, over all ranks."""
        return self.batches.item * self._progress.rank_and_world()[1]

    def epoch(self, number: int) -> int:
        """An epoch."""
        return number

    def rest(self, epoch: int, where: InEpoch) -> Outline | Remaining:
        """This rank's part of what is left of it."""
        return self._progress.rest(epoch, where)

    def length(self, epoch: int = 0) -> int:
        """How many items an epoch has on this rank."""
        return self._progress.outline(epoch).items


class Dealing(NamedTuple):
    """How an epoch is dealt."""

    order: int
    """For how many feeds its samples are in order."""
    begun: int
    """To how many feeds they were dealt by those who began, ..."""
    feeds: int
    """... and now."""


class RemoteOptions(NamedTuple):
    """What a RemoteLoader was made with."""

    addresses: tuple[str, ...]
    keys: Any
    insecure: bool
    asking: AskingOptions
    ranks: tuple[int, int] | None
    feeds: int | None
    job: str
    finish: Callable[[Any], Any]
    """What is done to every item before it is given."""


class RemoteProgress:
    """The workers of a loader of batches from other machines: whom it asks, and after which item it is.

    The loader's copies share it; another process has connections of its own.
    """

    is_tracked = resumes_steps = True

    def __init__(self, options: RemoteOptions) -> None:
        self.options = options
        self.loader = RemoteSteps(self)
        self.counted: tuple[int, int, int] | None = None
        """Of the round that is under way: complete passes, items given, and its number."""
        self._place: Position | None = None
        self.report = Report()
        self._start: Position | None = None
        self._epoch = 0
        self._dealing: dict[int, Dealing] = {}
        """Epoch -> how a state has it."""
        self._producers: Producers | None = None
        self._plan: dict[str, Any] | None = None
        self._outlines: dict[tuple[int, ...], Outline] = {}
        self._lock = threading.Lock()

    # -- producers -------------------------------------------------------------------------------

    def rank_and_world(self) -> tuple[int, int]:
        """Which rank this is, of how many."""
        return self.options.ranks or pytorch_worker_info()[:2]

    def producers(self) -> Producers:
        """The connections to the producers."""
        with self._lock:
            if self._producers is None or self._producers.process != os.getpid():  # threads stay behind in a fork
                options = self.options
                rank, world = self.rank_and_world()
                self._producers = Producers(
                    options.addresses,
                    keys=options.keys,
                    insecure=options.insecure,
                    options=options.asking,
                    rank=rank,
                    world=world,
                    job=options.job,
                    plan=self._plan,
                )
                weakref.finalize(self, Producers.close, self._producers)
            return self._producers

    def counts(self) -> dict[str, int]:
        """Batches and bytes that came, batches that were asked for again, and producers that were lost."""
        return {} if self._producers is None else dict(self._producers.counts)

    def plan(self) -> dict[str, Any]:
        """What the producers serve; they are asked once."""
        if self._plan is None:
            self._plan = self._asked(lambda producers: producers.plan())
        return self._plan

    def rest(self, epoch: int, where: InEpoch) -> Outline | Remaining:
        """An epoch from a place on, as this rank takes it."""
        if not where.done:
            return self.outline(epoch, where.start)
        program = self.program()
        begun = EpochPlace(where.start, self._dealt(epoch).begun, where.done)
        rounds = whole_rounds(program.total - begun.start, begun.feeds, program.cut)
        leftover = Leftover(begun, self.rank_and_world()[1], rounds, program.total, program.cut)
        return Remaining(leftover, self.outline(epoch, leftover.end))

    def outline(self, epoch: int, start: int = 0) -> Outline:
        """An epoch, or the rest of one, as it is dealt to the ranks that there are now."""
        dealing = self._dealt(epoch)
        key = (epoch if self.plan()["varies"] else 0), start, dealing.order, dealing.feeds
        if key not in self._outlines:
            if len(self._outlines) > 64:
                self._outlines.clear()
            where = {"epoch": epoch, "start": start, "order": dealing.order, "feeds": dealing.feeds}
            found = self._asked(lambda producers: producers.outline(**where))
            if not found.steps and not start:
                hint = 'use smaller batches, fewer ranks, or remainder="pad"'
                raise EmptyDatasetError(
                    f"the samples are too few for a batch on each of {found.world} ranks", hint=hint
                )
            self._outlines[key] = found
        return self._outlines[key]

    def _dealt(self, epoch: int) -> Dealing:
        """How an epoch is dealt."""
        if epoch in self._dealing:
            return self._dealing[epoch]
        feeds = feeds_of(self.rank_and_world()[1], self.options.feeds)
        return Dealing(feeds, feeds, feeds)

    def steps(self, place: Position) -> Iterator[Arrived]:
        """The steps from a place on."""
        outline = self.rest(place.epoch, place.where)
        steps = self.producers().steps(outline, place.epoch, place.where.step)
        try:
            yield from steps
        except Exception:
            self.close()
            raise
        finally:
            steps.close()

    def close(self) -> None:
        """Close the connections; the next pass opens them again."""
        with self._lock:
            producers, self._producers = self._producers, None
        if producers is not None:
            producers.close()

    def _asked(self, ask: Callable[[Producers], Found]) -> Found:
        try:
            return ask(self.producers())
        except Exception:
            self.close()  # whoever tries again begins from the start
            raise

    # -- a pass ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """A pass is about to begin."""
        self.place = place = self.next_place()
        self._epoch = place.epoch + 1
        self.report = Report()

    @property
    def place(self) -> Position | None:
        """After which item it is; None before the first pass."""
        return latest_position(self._place, self.counted)

    @place.setter
    def place(self, place: Position | None) -> None:
        self._place, self.counted = place, None

    def items(self, steps: Iterable[Arrived]) -> Iterator[Any]:
        """The items of the steps that came."""
        start = self.place
        assert start is not None, "begin() comes before items()"
        per_step = Batching(*self.plan()["batches"]).per_step
        for arrived in steps:
            self._start = None
            self.report.add({**arrived.counts, "reasons": arrived.reasons})
            count = len(arrived.items)
            skipped = start.where.skip if arrived.number == start.where.step else 0
            for number, item in enumerate(arrived.items[skipped:], skipped + 1):
                self._place = at_step(start, arrived.number, number, even=count == per_step)
                if number == count:
                    self._place = at_step(start, arrived.number + 1)
                yield self.options.finish(item)
            if not arrived.items:
                self._place = at_step(start, arrived.number + 1)
        self._start = None
        self._place = in_epoch(start.epoch + 1)

    def rounds(self, limits: RoundLimits, *, held: bool) -> Rounds | None:
        """How epochs are repeated or cut; None where every round begins with an epoch."""
        return None if limits.is_one_pass or held else Rounds(self, limits)

    def length(self, later: list[Any], passes: int) -> int:
        """How many items the next passes give, or that which is under way."""
        from webdataset.base.behaviour import behaviour_of

        if not all(behaviour_of(stage).kind in ("each", "observes") for stage in later):
            raise TypeError("how many items stages after the loader give is not known: with_length(n) declares it")
        first = self.next_epoch()
        if self.place is not None and self.place.epoch + 1 == first:
            first -= 1
        return sum(self.outline(epoch).items for epoch in range(first, first + passes))

    # -- where it is -----------------------------------------------------------------------------

    def program(self) -> Any:
        """What the producers serve."""
        return RemoteProgram(self)

    def next_epoch(self) -> int:
        """The epoch of the next pass."""
        return self._epoch

    def loaded_place(self) -> Position | None:
        """Where the next pass is to begin, if a state was loaded that is of its epoch."""
        return self._start if self._start is not None and self._start.epoch == self._epoch else None

    def next_place(self) -> Position:
        """Where the next pass begins."""
        return self.loaded_place() or in_epoch(self._epoch)

    def seek(self, place: Position) -> None:
        """Make the next pass begin at a place."""
        self.place = self._start = place._replace(where=place.where._replace(base=0))
        self._epoch = place.epoch

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the next pass; a state that was loaded counts if it is of that epoch."""
        self._epoch = epoch
        self.place = self.next_place()

    def state(self, limits: RoundLimits) -> dict[str, Any]:
        """The state after the latest item."""
        place = self.place or self.next_place()
        program, (rank, world) = self.program(), self.rank_and_world()
        outline = self.rest(place.epoch, place.where)
        start, feeds, batches = outline.place(place.where.step)
        return {
            "version": VERSION,
            "kind": "remote",
            "of": program.described,
            "epoch": place.epoch,
            "start": start,
            "feeds": feeds,
            "order": outline.order,
            "position": batches,
            "skip": place.where.skip,
            "even": place.where.even,
            "cut": program.described["cut"],
            "topology": {"rank": rank, "world": world, "worker": 0, "workers": 1},
            "round": saved_round(program, place, limits),
        }

    def load(self, state: dict[str, Any], limits: RoundLimits) -> None:
        """Make the next pass go on where the state was saved."""
        program = self.program()
        check_fits(state, "remote", program.described)
        try:
            place = self._restored(program, state)
            place = restore_round(program, place, state.get("round"), limits)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(f"the state is damaged: {type(error).__name__} at {error}") from None
        self.seek(place)

    def _restored(self, program: RemoteProgram, state: dict[str, Any]) -> Position:
        epoch, skip = int(state["epoch"]), int(state["skip"])
        begun = EpochPlace(int(state["start"]), int(state["feeds"]), int(state["position"]))
        order, world = int(state.get("order", begun.feeds)), int(state["topology"]["world"])
        fine = min(epoch, skip, begun.start, begun.batches) >= 0 and min(order, begun.feeds, world) >= 1
        if not fine or max(order, begun.feeds) > MOST_FEEDS:
            raise StateError(f"the state is damaged: {begun.batches} batches of {begun.feeds} feeds and {world} ranks")
        here = self.rank_and_world()[1]
        feeds = next((feeds for feeds in (begun.feeds, order) if not feeds % here), None)
        feeds = feeds_of(here, self.options.feeds) if feeds is None else feeds
        self._dealing = {epoch: Dealing(order, begun.feeds, feeds)}
        if world == here:
            return in_epoch(
                epoch, self._where(program, epoch, begun, world)._replace(skip=skip, even=bool(state["even"]))
            )
        if skip:
            raise StateError(
                f"the state was saved in the middle of a step of {world} ranks; {here} ranks cannot go on there",
                hint="save it when the items of a step have all been given",
            )
        if self.plan()["tokens"]:
            raise StateError(
                f"batches by length of {world} ranks cannot be resumed by {here}", hint=f"go on with {world} ranks"
            )
        return in_epoch(epoch, self._where(program, epoch, begun, world))

    def _where(self, program: RemoteProgram, epoch: int, begun: EpochPlace, world: int) -> InEpoch:
        """Where these ranks go on after the batches of so many."""
        in_turn, here = self.plan()["in_turn"], self.rank_and_world()[1]
        where = goes_on(begun, world, here, total=program.total, cut=program.cut, in_turn=in_turn)
        steps = self.outline(epoch, begun.start).steps if where.step else 0
        if where.step > steps:
            raise StateError(f"the state is damaged: there is no step {where.step} in an epoch of {steps}")
        return where

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_producers": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


class RemoteSteps:
    """What a loader's pass reads: the steps from its place on."""

    num_workers = 0

    def __init__(self, progress: RemoteProgress) -> None:
        self._progress = progress

    def __iter__(self) -> Iterator[Arrived]:
        place = self._progress.place
        assert place is not None, "begin() comes before a pass"
        return self._progress.steps(place)
