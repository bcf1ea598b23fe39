"""The feeds of an epoch: which batch of a rank is which step of which feed. Nothing is read, and nothing is sent.

A feed is one sequence of batches that is read from beginning to end, so that reading stays sequential. The epoch is
dealt to G feeds as exact epochs are dealt to ranks:

    whole rounds    batch m of the epoch is step m // G of feed m % G; rank r of W takes the m with m % W == r
    the rest        what is left after the whole rounds is dealt to the W ranks themselves

So the batches depend on G, not on the number of ranks, which divides G, nor on who makes them; while the number of
batches and the samples that are repeated or dropped at the end are those of W ranks that read by themselves.

Batches by length, and those of shards in their own order, are dealt to the ranks by themselves: there feeds take
turns with the steps of a rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from webdataset.epochs.share import Cut, Share

FEEDS = 16
"""The number of feeds, unless there are more ranks: as many producers have something to do at the same time."""

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


class Outline(NamedTuple):
    """An epoch, or the rest of one, as one rank takes it: how many steps there are, and where each comes from.

    >>> outline = Outline(feeds=4, rank=1, world=2, start=0, rounds=3, tail=96, steps=8, items=8, in_turn=False)
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

    def number(self, step: int, world: int) -> int | None:
        """The step of this rank that comes after as many batches of all ranks as `step` of `world` ranks; or None."""
        done, rest = divmod(step * world, self.world)
        return None if rest or done > self.in_rounds or self.in_turn else done

    def position(self, step: int, size: int) -> int:
        """The position of the epoch up to which all ranks have taken their samples, from the rest on."""
        first, steps = (self.start, step) if self.in_turn else (self.tail, step - self.in_rounds)
        return first + steps * self.world * size


def feeds_of(world: int, feeds: int | None = None) -> int:
    """The number of feeds for this number of ranks, or the given one, checked.

    >>> feeds_of(1), feeds_of(3), feeds_of(64)
    (16, 18, 64)
    """
    if feeds is None:
        return -(-FEEDS // world) * world
    if feeds < 1 or feeds % world:
        raise ValueError(f"feeds= must be a multiple of the number of ranks, which is {world}, got {feeds}")
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
    per_step: int = 1,
    items_in: Callable[[Share], int] | None = None,
) -> Outline:
    """The outline of an epoch of `total` samples for a rank.

    `per_step` is how many items a whole step gives, and `items_in(share)` how many those of a share do.
    """
    if not 0 <= rank < world or feeds % world:
        raise ValueError(f"rank {rank} of {world} cannot have {feeds} feeds: their number is a multiple of the ranks'")
    if not 0 <= start <= total:
        raise ValueError(f"position {start} is not in an epoch of {total} samples")
    items = items_in or (lambda share: share.steps)
    if in_turn:
        share = shares(start, rank, world)
        return Outline(feeds, rank, world, start, 0, start, share.steps, items(share), in_turn=True)
    rounds = _rounds(total - start, feeds * cut.size, cut)
    tail = start + rounds * feeds * cut.size
    rest, before = shares(tail, rank, world), rounds * feeds // world
    steps, count = before + rest.steps, before * per_step + items(rest)
    return Outline(feeds, rank, world, start, rounds, tail, steps, count, in_turn=False)


def _rounds(left: int, size: int, cut: Cut) -> int:
    """How many whole rounds there are; smaller batches at the end need something to be made of."""
    rounds = left // size
    return max(0, rounds - 1) if cut.remainder == "uneven" else rounds
