"""Batches of samples of similar length: a share of the epoch whose steps follow from the lengths of its samples.

Every rank knows all of them without reading the samples: all ranks take the same bucket in the same
step, have as many steps, and know how many there are. Samples are sorted into buckets among some thousands that follow
each other in the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from .numbers import Array, permutation, stream
from .share import Cut, Share

AMONG = 8192
SLAB = 1 << 20
"""Samples whose lengths are looked up at the same time."""


class Bucketing(NamedTuple):
    """How batches are made by length."""

    field: str
    """The field whose bytes, or whose decoded length, are the length; empty for a function."""
    boundaries: tuple[int, ...] | None = None
    """Where buckets end; a sample is in the first one whose boundary is above its length."""
    batchsize: int = 16
    max_tokens: int | None = None
    """The most that a batch may hold on a rank, counted as its longest sample times their number."""
    scale: float = 1.0
    """Bytes that are one unit of length, for example 4 for arrays of 32-bit tokens."""
    among: int = AMONG
    """Samples of the epoch among which batches are made."""
    lengths: str | None = None
    """The name under which lengths are kept that were measured, rather than known from the index."""

    def checked(self) -> Bucketing:
        """The same, checked; ValueError says what is wrong."""
        if self.batchsize < 1 or self.among < 1 or self.scale <= 0:
            raise ValueError("batchsize=, among= and scale= must be at least 1, 1, and above 0")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if self.boundaries is not None and list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"boundaries must ascend, got {list(self.boundaries)}")
        return self


class BucketShare(Share):
    """The positions of one rank, in steps of similar length."""

    def __init__(
        self,
        total: int,
        places: list[int],
        *,
        bucketing: Bucketing,
        lengths: Callable[[Array], Array],
        seed: object,
        rank: int = 0,
        world: int = 1,
        start: int = 0,
        remainder: str | None = None,
    ) -> None:
        super().__init__(
            total, places, rank=rank, world=world, start=start, cut=Cut(bucketing.batchsize, remainder=remainder)
        )
        self._bucketing = bucketing.checked()
        self._lengths = lengths
        self._seed = seed

    @cached_property
    def _batches(self) -> list[Array]:
        """The positions of every step, over all ranks, those of one rank after those of another."""
        import numpy as np

        among, batches = self._bucketing.among, list[Array]()
        slab = among * max(1, SLAB // among)
        lengths: Array = None
        for first in range(self.start, self.total, among):
            if (first - self.start) % slab == 0:
                here = np.arange(first, min(first + slab, self.total))
                lengths = self._lengths(here)
                whole, lengths = lengths.dtype.kind == "i", lengths / self._bucketing.scale
                lengths = np.ceil(lengths).astype(np.int64) if whole else lengths
            positions = np.arange(first, min(first + among, self.total))
            place = (first - self.start) % slab
            found = self._cut(positions, lengths[place : place + len(positions)])
            for number in permutation(stream(self._seed, "buckets", first), len(found)).tolist():
                dealt = self._dealt(found[number])
                if len(dealt):
                    batches.append(dealt)
        return batches

    def _cut(self, positions: Array, lengths: Array) -> list[Array]:
        """Global batches: whole ones of one bucket, then what is left over, by length."""
        import numpy as np

        bucketing, batches = self._bucketing, []
        if bucketing.max_tokens is not None:
            return self._cut_by_tokens(positions, lengths)
        borders = () if bucketing.boundaries is None else bucketing.boundaries
        buckets = np.searchsorted(borders, lengths, side="right")
        size, left = bucketing.batchsize * self.world, []
        for bucket in np.unique(buckets):
            here = positions[buckets == bucket]
            whole = len(here) // size * size
            batches += list(here[:whole].reshape(-1, size))
            left.append(here[whole:])
        rest = np.concatenate(left) if left else positions[:0]
        return batches + [rest[first : first + size] for first in range(0, len(rest), size)]

    def _cut_by_tokens(self, positions: Array, lengths: Array) -> list[Array]:
        """As many as fit, shortest first."""
        import numpy as np

        limit, batches, first = self._bucketing.max_tokens or 0, [], 0
        order = np.lexsort((positions, lengths))
        by_length = np.maximum(lengths[order], 1)
        while first < len(order):
            counts = np.arange(1, (len(order) - first) // self.world + 1)
            fitting = counts * by_length[first + counts * self.world - 1] <= limit
            most = int(counts[fitting][-1]) if fitting.any() else 1
            batches.append(order[first : first + most * self.world])
            first += most * self.world
        return [np.sort(positions[batch]) for batch in batches]

    def _dealt(self, batch: Array) -> Array:
        """A batch with one part for each rank, sorted by lane, so that ranks read lanes of their own."""
        import numpy as np

        short = -len(batch) % self.world
        if short and self.cut.remainder == "drop":
            batch = batch[: len(batch) - len(batch) % self.world]
            short = 0
        lanes = np.asarray(self.places)[batch % len(self.places)]
        batch = batch[np.lexsort((batch, lanes))]
        if not short:
            return batch
        # the last ranks repeat a sample: as a position beyond the epoch, where it counts on from the beginning
        size = (len(batch) + short) // self.world
        whole, rest = np.split(batch, [(self.world - short) * size])
        again = np.resize(batch, short) + self.total
        return np.concatenate((whole, np.column_stack((rest.reshape(short, size - 1), again)).ravel()))

    # -- what a share knows ----------------------------------------------------------------------

    @cached_property
    def steps(self) -> int:
        return len(self._batches)

    @cached_property
    def _mine(self) -> list[Array]:
        sizes = [len(batch) // self.world for batch in self._batches]
        return [b[self.rank * n : (self.rank + 1) * n] for b, n in zip(self._batches, sizes, strict=True)]

    @cached_property
    def count(self) -> int:
        return sum(len(batch) for batch in self._mine)

    @cached_property
    def real(self) -> int:
        return sum(int((batch < self.total).sum()) for batch in self._mine)

    @property
    def dropped(self) -> int:
        """Samples that no rank takes, counted once, at rank 0."""
        taken = sum(int((batch < self.total).sum()) for batch in self._batches)
        return self.total - self.start - taken if self.rank == 0 else 0

    def span(self, step: int) -> tuple[int, int]:
        ends = self._ends
        return int(ends[step]), int(ends[step + 1])

    @cached_property
    def _ends(self) -> Array:
        import numpy as np

        return np.concatenate(([0], np.cumsum([len(batch) for batch in self._mine])))

    def positions(self, step: int) -> Array:
        return self._mine[step]

    def lowest(self, step: int) -> int:
        return min((int(batch.min()) for batch in self._mine[step:]), default=self.total)

    def each(self, first: int) -> Iterator[tuple[int, list[int]]]:
        return ((step, self._mine[step].tolist()) for step in range(first, self.steps))

    def steps_of(self, positions: Array) -> Array:
        return self._step_at[positions - self.start]

    @cached_property
    def _step_at(self) -> Array:
        import numpy as np

        steps = np.full(self.total - self.start, -1)
        for number, batch in enumerate(self._mine):
            steps[batch[batch < self.total] - self.start] = number
        return steps

    def lanes(self) -> list[int]:
        import numpy as np

        lanes = [np.unique(batch[batch < self.total] % len(self.places)) for batch in self._mine]
        return np.unique(np.concatenate(lanes)).tolist() if lanes else []
