"""The share of one rank in an epoch, cut into steps: which positions, in which step, by which worker.

The positions that are still to come are taken W at a time, W being the number of ranks. Of each W the rank gets the one
whose lane comes in its place on the line: so a rank reads one stretch of the line, and any W ranks together get the
same samples in the same step as one rank would with W times the batch. Steps go to the workers in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from .numbers import Array

REMAINDERS = ("pad", "drop", "uneven")
TOGETHER = 64
"""Steps that are looked up at the same time."""


class Cut(NamedTuple):
    """How a rank's samples become steps."""

    size: int = 1
    """Samples in a step."""
    whole: bool = False
    """Whether a step with fewer is left out (`batched(n, partial=False)`)."""
    remainder: str | None = None
    """What to do when the samples do not suffice for all ranks: see REMAINDERS. If not given, whole steps drop what
    is left over, and others are padded."""
    is_batch: bool = True
    """Whether a step is a batch, rather than some samples that are yielded one by one."""

    def checked(self) -> Cut:
        """The same with its remainder, checked; ValueError says what is wrong."""
        if self.size < 1:
            raise ValueError(f"a batch has at least one sample, got {self.size}")
        if self.remainder is None:
            return self._replace(remainder="drop" if self.whole else "pad")
        if self.remainder not in REMAINDERS:
            raise ValueError(f"remainder is one of {', '.join(REMAINDERS)}, got {self.remainder!r}")
        return self


class Share:
    """The positions of one rank, from `start` on.

    >>> shares = [Share(20, [0, 2, 1, 3], rank=rank, world=2, cut=Cut(4)) for rank in range(2)]
    >>> [share.positions(0).tolist() for share in shares]
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    >>> [share.steps for share in shares], shares[0].positions(2).tolist()
    ([3, 3], [16, 18])
    """

    def __init__(
        self, total: int, places: list[int], *, rank: int = 0, world: int = 1, start: int = 0, cut: Cut | None = None
    ) -> None:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} is not one of the {world} ranks")
        if not 0 <= start <= total:
            raise ValueError(f"position {start} is not in an epoch of {total} samples")
        self.total = total
        self.places = places
        self.rank = rank
        self.world = world
        self.start = start
        self.cut = (cut or Cut()).checked()

    # -- how much --------------------------------------------------------------------------------

    @cached_property
    def real(self) -> int:
        """How many samples of the epoch this rank has, each of them once."""
        return self._real(self.rank)

    @cached_property
    def count(self) -> int:
        """How many samples this rank yields, repeated ones included."""
        left = self.total - self.start
        size = self.cut.size if self.cut.whole else 1
        if self.cut.remainder == "drop":
            return left // (self.world * size) * size
        if self.cut.remainder == "pad":
            return -(-left // (self.world * size)) * size
        if self._uneven_steps is not None:
            return self.real
        return -(-left // self.world)

    @property
    def repeated(self) -> int:
        """How many samples are given a second time, so that all ranks have as many steps."""
        return max(0, self.count - self.real)

    @property
    def dropped(self) -> int:
        """How many samples of this rank are left out."""
        return max(0, self.real - self.count)

    @cached_property
    def steps(self) -> int:
        """How many steps the rank takes: the same on every rank."""
        if self._uneven_steps is not None:
            return self._uneven_steps
        return -(-self.count // self.cut.size)

    @cached_property
    def _uneven_steps(self) -> int | None:
        """With remainder="uneven": the steps, if every rank has a sample for each of them."""
        if self.cut.remainder != "uneven" or not self.cut.is_batch:
            return None
        most, least = (-(-(self.total - self.start) // self.world)), (self.total - self.start) // self.world
        steps = -(-most // self.cut.size)
        return steps if least >= steps else None

    def _real(self, rank: int) -> int:
        left = self.total - self.start
        whole, rest = divmod(left, self.world)
        if not rest:
            return whole
        slot = int(self._slots[(self.start + whole * self.world) % len(self.places)][rank])
        return whole + (slot < rest)

    # -- which -----------------------------------------------------------------------------------

    def span(self, step: int) -> tuple[int, int]:
        """Which of the rank's samples are in a step: from, up to."""
        first = step * self.cut.size
        if self._uneven_steps is None:
            return first, min(first + self.cut.size, self.count)
        # the last steps are smaller, so that there is a sample for each
        return self._uneven(step), self._uneven(step + 1)

    def sizes(self) -> Array:
        """How many samples are in each step."""
        import numpy as np

        steps = np.arange(self.steps + 1)
        left = 0 if self._uneven_steps is None else self.steps - steps  # one for each step that is still to come
        return np.diff(np.minimum(steps * self.cut.size, self.count - left))

    def positions(self, step: int) -> Array:
        """The positions of the step's samples; one that is not below `total` repeats an earlier sample."""
        import numpy as np

        return self.position(np.arange(*self.span(step)))

    def each(self, first: int) -> Iterator[tuple[int, list[int]]]:
        """The steps from this one on, with their positions: many are looked up at a time."""
        import numpy as np

        for low in range(first, self.steps, TOGETHER):
            spans = [self.span(step) for step in range(low, min(low + TOGETHER, self.steps))]
            start = spans[0][0]
            positions = self.position(np.arange(start, spans[-1][1])).tolist()
            for step, (begin, end) in enumerate(spans, low):
                yield step, positions[begin - start : end - start]

    def position(self, turn: Any) -> Any:
        """The position of the rank's n-th sample."""
        group = self.start + turn * self.world
        return group + self._slots[group % len(self.places), self.rank]

    def lowest(self, step: int) -> int:
        """A position before which there is no sample of this step, or of later ones."""
        return self.start + self.span(step)[0] * self.world

    def owner(self, positions: Array) -> tuple[Array, Array]:
        """For positions from `start` on: the rank that gets each, and the sample's number on that rank."""
        turn, slot = (positions - self.start) // self.world, (positions - self.start) % self.world
        group = self.start + turn * self.world
        return self._ranks[group % len(self.places), slot], turn

    def steps_of(self, positions: Array) -> Array:
        """For each position the step in which this rank yields its sample; -1 for those of other ranks, or of none."""
        import numpy as np

        rank, turns = self.owner(positions)
        steps = turns // self.cut.size
        if self._uneven_steps is not None:
            steps = np.maximum(steps, self.steps - (self.count - turns))
        return np.where((positions >= self.start) & (rank == self.rank) & (turns < self.count), steps, -1)

    def lanes(self) -> list[int]:
        """The lanes in which this rank has samples."""
        import numpy as np

        turns = min(self.real, len(self.places))
        return sorted(set((self.position(np.arange(turns)) % len(self.places)).tolist()))

    def _uneven(self, step: int) -> int:
        return min(step * self.cut.size, self.count - (self.steps - step))

    @cached_property
    def _slots(self) -> Array:
        """For each lane at which a group of W positions can begin: the slot in the group that each rank gets."""
        import numpy as np

        lanes = len(self.places)
        group = (np.arange(lanes)[:, None] + np.arange(self.world)) % lanes
        return np.argsort(np.asarray(self.places)[group], axis=1, kind="stable")

    @cached_property
    def _ranks(self) -> Array:
        """The inverse of `_slots`: the rank that gets each slot."""
        import numpy as np

        return np.argsort(self._slots, axis=1, kind="stable")
