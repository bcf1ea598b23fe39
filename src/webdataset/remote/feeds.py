"""The feeds of an epoch: which batch of a rank is which step of which feed. Nothing is read, and nothing is sent.

A feed is one sequence of batches that is read from beginning to end, so that reading stays sequential. The epoch is
dealt to G feeds as exact epochs are dealt to ranks:

    whole rounds    batch m of the epoch is step m // G of feed m % G; rank r of W takes the m with m % W == r
    the rest        what is left after the whole rounds is dealt to the W ranks themselves

So the batches depend on G, not on the number of ranks, which divides G, nor on who makes them; while the number of
batches and the samples that are repeated or dropped at the end are those of W ranks that read by themselves.

Any other number of ranks goes on after any batch: they finish the round that was begun, fill their last step of it
with batches of what comes next, and deal the rest anew. The order of the samples stays that of the epoch's beginning.

Batches by length, and those of shards in their own order, are dealt to the ranks by themselves: there feeds take
turns with the steps of a rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from webdataset.epochs.share import Cut, Share
from webdataset.exact.positions import InEpoch

FEEDS = 16
"""The number of feeds, unless there are more ranks: as many producers have something to do at the same time."""

MOST_FEEDS = 2048
"""The most feeds of an epoch, and the most ranks: their lanes alone take a producer 6 GB."""

Shares = Callable[[int, int, int], Share]
"""`shares(start, rank, world)` is the share of one rank."""


class FeedStep(NamedTuple):
    """A batch as a producer is asked for it: what is read, and which step of it."""

    start: int
    """The position of the epoch from which samples are dealt, ..."""
    rank: int
    world: int
    """... to whom."""
    worker: int
    workers: int
    base: int
    """Those that take turns with its steps, from a step on."""
    stop: int
    """The step after the last."""
    step: int

    @property
    def feed(self) -> tuple[int, ...]:
        """What is the same for all steps of a feed."""
        return self[:-1]

    @property
    def after(self) -> FeedStep:
        """The next step of the feed."""
        return self._replace(step=self.step + self.workers)


def feed_step(numbers: object) -> FeedStep:
    """A step of a feed as a request names it; a ValueError if there is no such step.

    >>> feed_step([0, 3, 4, 0, 1, 0, 8, 7]).step
    7
    """
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers) or len(numbers) != 8:
        raise ValueError(f"a step of a feed is 8 numbers, not {str(numbers)[:80]}")
    at = FeedStep(*numbers)
    fine = min(at) >= 0 and max(at) < 1 << 63 and at.worker < at.workers <= MOST_FEEDS and at.rank < at.world
    if not fine or at.world > MOST_FEEDS or at.step >= at.stop:
        raise ValueError(f"there is no such batch: {at}")
    return at


class Outline(NamedTuple):
    """An epoch, or the rest of one, as one rank takes it: how many steps there are, and where each comes from.

    >>> outline = Outline(feeds=4, rank=1, world=2, start=0, rounds=3, tail=96, steps=8, items=8,
    ...                   in_turn=False, order=4)
    >>> [(at.rank, at.step) for at in map(outline.at, range(6))]
    [(1, 0), (3, 0), (1, 1), (3, 1), (1, 2), (3, 2)]
    >>> outline.at(7)
    FeedStep(start=96, rank=1, world=2, worker=0, workers=1, base=0, stop=2, step=1)
    """

    feeds: int
    rank: int
    world: int
    start: int
    rounds: int
    """Whole rounds of all feeds."""
    tail: int
    """The position from which on ranks take the rest."""
    steps: int
    """How many steps the rank has."""
    items: int
    """How many items they are."""
    in_turn: bool
    """Whether feeds take turns with the steps of a rank."""
    order: int
    """For how many feeds the samples of the epoch were put in order."""

    @property
    def in_rounds(self) -> int:
        """How many of the rank's steps are in whole rounds."""
        return self.rounds * self.feeds // self.world

    def at(self, number: int) -> FeedStep:
        """Where the rank's step comes from."""
        workers = self.feeds // self.world
        if self.in_turn:
            return FeedStep(self.start, self.rank, self.world, number % workers, workers, 0, self.steps, number)
        if number < self.in_rounds:
            step, feed = divmod(number * self.world + self.rank, self.feeds)
            return FeedStep(self.start, feed, self.feeds, 0, 1, 0, self.rounds, step)
        stop = self.steps - self.in_rounds
        return FeedStep(self.tail, self.rank, self.world, 0, 1, 0, stop, number - self.in_rounds)

    def place(self, step: int) -> EpochPlace:
        """Where all ranks are after a step."""
        return EpochPlace(self.start, self.feeds, step * self.world)


class EpochPlace(NamedTuple):
    """A place in an epoch, whatever the number of ranks."""

    start: int
    """The position from which samples were dealt ..."""
    feeds: int
    """... to so many feeds."""
    batches: int
    """How many batches all ranks have taken since."""


class Leftover(NamedTuple):
    """What other ranks have left of a round, as so many ranks take it: they finish it, and fill their last step.

    >>> left = Leftover(EpochPlace(0, feeds=4, batches=5), world=2, rounds=3, total=100, cut=Cut(8))
    >>> left.steps, left.end
    (2, 72)
    >>> [(at.start, at.world, at.rank, at.step) for at in (left.at(step, rank) for step in (0, 1) for rank in (0, 1))]
    [(0, 4, 1, 1), (0, 4, 2, 1), (0, 4, 3, 1), (64, 1, 0, 0)]
    """

    begun: EpochPlace
    world: int
    rounds: int
    """Whole rounds that there were in all."""
    total: int
    """Samples of the epoch."""
    cut: Cut

    @property
    def left(self) -> int:
        """Batches that are left of the round."""
        return -self.begun.batches % self.begun.feeds

    @property
    def after(self) -> int:
        """The position up to which there is nothing left after it."""
        return self.begun.start + (self.begun.batches + self.left) * self.cut.size

    @property
    def missing(self) -> int:
        """Batches that are missing for a whole last step."""
        return -self.left % self.world

    @property
    def is_short(self) -> bool:
        """Whether the epoch has less left than is missing."""
        return self.total - self.after < self.missing * self.cut.size

    @property
    def steps(self) -> int:
        """How many steps each rank has."""
        drops = self.is_short and self.cut.remainder == "drop"
        return self.left // self.world if drops else -(-self.left // self.world)

    @property
    def end(self) -> int:
        """The position from which the rest is dealt anew."""
        if self.is_short or not self.missing:
            return self.total if self.is_short else self.after
        return after_steps(self.after, 1, world=self.missing, total=self.total, cut=self.cut)

    def at(self, step: int, rank: int) -> FeedStep:
        """Where a rank's step comes from."""
        number = step * self.world + rank
        if number >= self.left and self.after < self.total:
            return FeedStep(self.after, number - self.left, self.missing, 0, 1, 0, 1, 0)
        # nothing is there to fill the last step: some get what others have, too
        start, feeds, batches = self.begun
        turn, feed = divmod(batches + (number if number < self.left else number % self.left), feeds)
        return FeedStep(start, feed, feeds, 0, 1, 0, self.rounds, turn)


class Remaining(NamedTuple):
    """What remains of an epoch that other ranks have begun, as one rank takes it; used like an `Outline`."""

    leftover: Leftover
    rest: Outline

    @property
    def steps(self) -> int:
        """How many steps the rank has."""
        return self.leftover.steps + self.rest.steps

    @property
    def feeds(self) -> int:
        """To how many feeds the rest is dealt."""
        return self.rest.feeds

    @property
    def order(self) -> int:
        """For how many feeds the samples were put in order."""
        return self.rest.order

    @property
    def world(self) -> int:
        """How many ranks there are."""
        return self.rest.world

    def at(self, number: int) -> FeedStep:
        """Where the rank's step comes from."""
        before = self.leftover.steps
        return self.leftover.at(number, self.rest.rank) if number < before else self.rest.at(number - before)

    def place(self, step: int) -> EpochPlace:
        """Where all ranks are after a step."""
        left, begun = self.leftover, self.leftover.begun
        if step < left.steps:
            return begun._replace(batches=begun.batches + step * left.world)
        return self.rest.place(step - left.steps)


def after_steps(start: int, steps: int, *, world: int, total: int, cut: Cut) -> int:
    """The position before which all was taken, after steps of ranks that each read the rest of an epoch by themselves.

    >>> after_steps(0, 2, world=2, total=17, cut=Cut(4))
    16
    >>> [after_steps(0, steps, world=2, total=17, cut=Cut(4, remainder="uneven")) for steps in (2, 3)]
    [14, 17]
    """
    taken, (least, rest) = steps * cut.size, divmod(total - start, world)
    whole = -(-(least + bool(rest)) // cut.size)
    if cut.remainder == "uneven" and cut.is_batch and steps < whole <= least:
        # the last steps are smaller where a rank would have none otherwise; what only some have taken comes again
        taken = min(taken, least - (whole - steps))
    return min(start + taken * world, total)


def goes_on(begun: EpochPlace, before: int, world: int, *, total: int, cut: Cut, in_turn: bool = False) -> InEpoch:
    """Where so many ranks go on after those that were there before.

    >>> goes_on(EpochPlace(0, feeds=4, batches=6), 1, 2, total=100, cut=Cut(8)).step
    3
    >>> goes_on(EpochPlace(0, feeds=4, batches=5), 1, 2, total=100, cut=Cut(8)).done
    5
    """
    start, feeds, batches = begun
    rounds = 0 if in_turn else whole_rounds(total - start, feeds, cut)
    if batches <= rounds * feeds:
        if batches % feeds and (feeds % world or batches % world):
            return InEpoch(start, done=batches)
        return InEpoch(start + batches * cut.size) if feeds % world else InEpoch(start, batches // world)
    if batches % before:
        raise ValueError(f"{before} ranks have not taken {batches} batches")
    if world == before:
        return InEpoch(start, batches // world)
    # the ranks have taken the rest of the epoch by themselves
    tail = start + rounds * feeds * cut.size
    steps = batches // before - rounds * feeds // before
    return InEpoch(after_steps(tail, steps, world=before, total=total, cut=cut))


def feeds_of(world: int, feeds: int | None = None) -> int:
    """The number of feeds for this number of ranks, or the given one, checked.

    >>> feeds_of(1), feeds_of(3), feeds_of(64)
    (16, 18, 64)
    """
    if feeds is None:
        return -(-FEEDS // world) * world
    if not 1 <= feeds <= MOST_FEEDS or feeds % world:
        raise ValueError(
            f"feeds= must be a multiple of the number of ranks, which is {world}, and at most {MOST_FEEDS}, got {feeds}"
        )
    return feeds


def outline(
    shares: Shares,
    total: int,
    cut: Cut,
    *,
    feeds: int,
    rank: int,
    world: int,
    start: int = 0,
    in_turn: bool = False,
    order: int | None = None,
    per_step: int = 1,
    items_in: Callable[[Share], int] | None = None,
) -> Outline:
    """The outline of an epoch of `total` samples for a rank.

    `per_step` is how many items a whole step gives, and `items_in(share)` how many those of a share do.
    """
    if not 0 <= rank < world or feeds < world or feeds % world:
        raise ValueError(f"rank {rank} of {world} cannot have {feeds} feeds: their number is a multiple of the ranks'")
    if not 0 <= start <= total:
        raise ValueError(f"position {start} is not in an epoch of {total} samples")
    order = feeds if order is None else order
    items = items_in or (lambda share: share.steps)
    if in_turn:
        share = shares(start, rank, world)
        return Outline(feeds, rank, world, start, 0, start, share.steps, items(share), in_turn=True, order=order)
    rounds = whole_rounds(total - start, feeds, cut)
    tail = start + rounds * feeds * cut.size
    rest, before = shares(tail, rank, world), rounds * feeds // world
    steps, count = before + rest.steps, before * per_step + items(rest)
    return Outline(feeds, rank, world, start, rounds, tail, steps, count, in_turn=False, order=order)


def whole_rounds(left: int, feeds: int, cut: Cut) -> int:
    """How many whole rounds there are; smaller batches at the end need something to be made of."""
    rounds = left // (feeds * cut.size)
    return max(0, rounds - 1) if cut.remainder == "uneven" else rounds
