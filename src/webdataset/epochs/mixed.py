"""Several orders as one: which dataset the next sample of a lane is drawn from.

Each lane of the mixture is made of the same lane of every dataset, so ranks own lanes of mixtures as they own lanes of
one dataset, and a mixture has every property that an order has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import Any, NamedTuple

from .numbers import Array, permutation, stream, uniform
from .order import Order


class MixturePart(NamedTuple):
    """One dataset of a mixture."""

    total: int
    """How many samples it has."""
    lanes: int
    order: Callable[[Any, list[int] | None], Order]
    """`order(epoch, lane_lengths)`: the order of one pass over it."""
    repeats: int = 1
    """How often it is read in an epoch."""


class Mixing(NamedTuple):
    """How the datasets of a mixture take turns."""

    weights: tuple[float, ...] | None = None
    """How often each is drawn; None for one after the other."""
    longest: bool = False
    """Whether to go on until all have ended, rather than one."""
    samples: int | None = None
    """An epoch of this many samples, for which every dataset is repeated as often as it takes."""
    seed: object = 0


class Pass(NamedTuple):
    """One pass over one dataset, of which the first samples of every lane are taken."""

    order: Order
    lengths: list[int]
    """How many of each lane."""


class LaneTurns:
    """At which samples of a lane a dataset is drawn: `drawn`, or all `count` of them if that is None.

    >>> turns = LaneTurns(10)
    >>> turns[2:4].tolist(), turns.before(7), len(turns)
    ([2, 3], 7, 10)
    """

    def __init__(self, count: int, drawn: Array = None) -> None:
        self._count = count
        self._drawn = drawn  # not made if it is all of them: a lane of a large dataset would take a lot of memory

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, some: slice) -> Array:
        import numpy as np

        return np.arange(*some.indices(self._count)) if self._drawn is None else self._drawn[some]

    def before(self, turn: int) -> int:
        """How many come before a sample of the lane."""
        import numpy as np

        return min(max(turn, 0), self._count) if self._drawn is None else int(np.searchsorted(self._drawn, turn))


class Mixed:
    """One epoch of a mixture.

    >>> import numpy as np
    >>> def dataset(count):
    ...     shard = np.array([count]), np.array([4096])
    ...     return MixturePart(count, 64, lambda epoch, lengths: Order(*shard, epoch=epoch, lane_lengths=lengths))
    >>> mixed = Mixed([dataset(3), dataset(2)], Mixing(longest=True), epoch=0)
    >>> mixed.total, sorted(mixed.drawn(lane).tolist() for lane in range(5))
    (5, [[0], [0], [0], [1], [1]])
    """

    def __init__(self, parts: Sequence[MixturePart], mixing: Mixing, *, epoch: int) -> None:
        if not parts:
            raise ValueError("a mixture needs at least one dataset")
        self.mixing = mixing
        self.epoch = epoch
        self._shares = _shares(mixing.weights, len(parts))
        self.lanes = parts[0].lanes
        if any(part.lanes != self.lanes for part in parts):
            raise ValueError("datasets that are mixed must have the same number of lanes, and all shuffle or none")
        counts = self._counts(parts)
        self.total = sum(counts)
        self.passes = self._passes(parts, counts)
        """For each dataset its passes, one after the other."""
        self.places = self.passes[0][0].order.places

    @classmethod
    def only(cls, part: MixturePart, *, epoch: int) -> Mixed:
        """One dataset by itself."""
        return cls([part], Mixing(longest=True), epoch=epoch)

    def drawn(self, lane: int) -> Array:
        """For each sample of the lane the dataset it is drawn from."""
        return self._drawn(lane, [sum(one.lengths[lane] for one in passes) for passes in self.passes])

    def _drawn(self, lane: int, lengths: list[int]) -> Array:
        import numpy as np

        if self.mixing.weights is None or self.mixing.longest:
            return self._until_all_end(lane, lengths)
        # each dataset exactly as often as its weight says, in random order
        drawn = np.repeat(np.arange(len(lengths), dtype=np.int16), lengths)
        return drawn[permutation(self._stream(lane), len(drawn))]

    @property
    def fits(self) -> bool:
        """Whether all samples can be in memory at the same time."""
        return all(one.order.fits for passes in self.passes for one in passes)

    def turns_of(self, number: int, lane: int) -> LaneTurns:
        """At which samples of the lane this dataset is drawn."""
        import numpy as np

        if len(self.passes) == 1:
            return LaneTurns(self.lane_length(lane))
        turns = np.flatnonzero(self.drawn(lane) == number)
        return LaneTurns(len(turns), turns)

    def lane_length(self, lane: int) -> int:
        """How many samples a lane has."""
        return (self.total - lane + self.lanes - 1) // self.lanes

    def locate(self, positions: Array) -> tuple[Array, Array, Array]:
        """The dataset, the shard in it and the number in its shard of the samples at these positions."""
        import numpy as np

        positions = np.asarray(positions, dtype=np.int64)
        parts, shards, numbers = np.zeros_like(positions), np.empty_like(positions), np.empty_like(positions)
        lanes, turns = positions % self.lanes, positions // self.lanes
        for lane in np.unique(lanes).tolist():
            drawn = self.drawn(lane)
            for number, passes in enumerate(self.passes):
                here = np.flatnonzero((lanes == lane) & (drawn[turns.clip(0, len(drawn) - 1)] == number))
                turn = np.searchsorted(np.flatnonzero(drawn == number), turns[here])
                parts[here] = number
                for one in passes:
                    inside = (turn >= 0) & (turn < one.lengths[lane])
                    shards[here[inside]], numbers[here[inside]] = one.order.in_lane(lane, turn[inside])
                    turn = turn - one.lengths[lane]
        return parts, shards, numbers

    def _passes(self, parts: Sequence[MixturePart], counts: list[int]) -> list[list[Pass]]:
        """The passes over each dataset. Every lane takes as many samples of a pass, but for those that are left over:
        these are drawn as if they were a lane of their own, and dealt to the lanes in turn."""
        lanes = self.lanes
        used = [_in_passes(count, part.total) for part, count in zip(parts, counts, strict=True)]
        rests = [[count % lanes for count in passes] for passes in used]
        lengths = [[[count // lanes] * lanes for count in passes] for passes in used]
        for slot, number in enumerate(self._drawn(lanes, [sum(rest) for rest in rests]).tolist()):
            turn = next(turn for turn, rest in enumerate(rests[number]) if rest)
            rests[number][turn] -= 1
            lengths[number][turn][slot % lanes] += 1
        return [
            [
                Pass(part.order((self.epoch, turn) if turn else self.epoch, _completed(taken, part.total)), taken)
                for turn, taken in enumerate(lengths[number])
            ]
            for number, part in enumerate(parts)
        ]

    def _counts(self, parts: Sequence[MixturePart]) -> list[int]:
        """How many samples of each dataset there are in an epoch."""
        totals = [part.total * part.repeats for part in parts]
        if self.mixing.samples is not None:
            counts = self._quota(self.mixing.samples)
            for number, (part, count) in enumerate(zip(parts, counts, strict=True)):
                if count and not part.total:
                    raise ValueError(f"dataset {number} of the mixture has no sample, but a weight")
            return counts
        if self.mixing.longest:
            return totals
        pairs = [(total, share) for total, share in zip(totals, self._shares, strict=True) if share > 0]
        count = min(floor(total / share) for total, share in pairs)
        while any(quota > total for quota, total in zip(self._quota(count), totals, strict=True)):
            count -= 1
        return self._quota(count)

    def _quota(self, count: int) -> list[int]:
        """The samples of each dataset out of `count`, by weight, the largest fractions rounded up."""
        exact = [share * count for share in self._shares]
        whole = [floor(part) for part in exact]
        by_fraction = sorted(range(len(exact)), key=lambda number: (whole[number] - exact[number], number))
        for number in by_fraction[: count - sum(whole)]:
            whole[number] += 1
        return whole

    def _until_all_end(self, lane: int, left: list[int]) -> Array:
        """Draw by weight, or take turns; a dataset that has ended no longer counts."""
        import numpy as np

        length = sum(left)
        drawn = np.empty(length, dtype=np.int16)
        chance = uniform(self._stream(lane), np.arange(length))
        done = 0
        while done < length:
            active = [number for number, n in enumerate(left) if n > 0]
            chosen = np.asarray(active)[self._choices(active, chance[done:], lane + done)]
            taken = length - done
            for number in active:
                turns = np.flatnonzero(chosen == number)
                if len(turns) > left[number]:
                    taken = min(taken, int(turns[left[number]]))
            drawn[done : done + taken] = chosen[:taken]
            for number in active:
                left[number] -= int(np.count_nonzero(chosen[:taken] == number))
            done += taken
        return drawn

    def _choices(self, active: list[int], chance: Array, first: int) -> Array:
        """Which of the active datasets comes each time, as long as none ends."""
        import numpy as np

        if self.mixing.weights is None:
            return (first + np.arange(len(chance))) % len(active)
        heavy = [self._shares[number] for number in active]
        # what has no weight comes when nothing else is left
        borders = np.cumsum(heavy if sum(heavy) > 0 else [1.0] * len(active))
        return np.minimum(np.searchsorted(borders, chance * borders[-1], side="right"), len(active) - 1)

    def _stream(self, lane: int) -> int:
        return stream(self.mixing.seed, self.epoch, "mix", lane)


def _in_passes(count: int, total: int) -> list[int]:
    """How `count` samples are split into passes over a dataset with `total`, at least one pass."""
    whole, rest = divmod(count, total) if total else (0, 0)
    return [total] * whole + ([rest] if rest or not whole else [])


def _completed(taken: list[int], total: int) -> list[int]:
    """Lanes that hold all samples of a pass, each at least as many as are taken of it."""
    left, lanes = total - sum(taken), len(taken)
    return [length + (left - lane + lanes - 1) // lanes for lane, length in enumerate(taken)]


def _shares(weights: tuple[float, ...] | None, count: int) -> list[float]:
    weights = (1.0,) * count if weights is None else weights
    return [weight / sum(weights) for weight in weights]
