"""The order of an epoch: which sample comes at which position, as a pure function of (shards, seed, epoch).

    shards      cut into blocks of consecutive samples, about a megabyte each, so that reading stays sequential
    line        all blocks one after the other, in random order
    lanes       the line cut into L equal pieces; position p of the epoch is the next sample of lane p % L
    windows     a lane cut into pieces of shuffle_bytes / L; inside a window the samples are in random order

Nothing here depends on the number of ranks or workers: they own lanes, see share.py. Nothing is read: a block
follows from a shard's size and number of samples alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .numbers import Array, permutation, random_bits, spread, stream

LANES = 64
BLOCK_BYTES = 1 << 20
SHUFFLE_BYTES = 256 << 20
MAX_BLOCKS = 1 << 20
"""Of a larger dataset the blocks become larger: their order is held in memory."""
BLOCKS_PER_LANE, SMALL_BLOCKS_PER_LANE = 4, 32
"""Of a smaller dataset the blocks become smaller, down to one sample, so that there is something to shuffle: much
smaller where all fits into memory, since reading does not go by blocks then."""
_FIRST_WINDOWS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Where a lane's first windows end, in windows: small, so that the first batch need not wait for whole ones."""


class OrderSettings(NamedTuple):
    """What the order depends on besides the shards."""

    seed: object = 0
    shuffle_bytes: int = SHUFFLE_BYTES
    block_bytes: int = BLOCK_BYTES
    lanes: int = LANES

    def checked(self) -> OrderSettings:
        """The same, checked; ValueError says what is wrong."""
        if self.lanes < 1:
            raise ValueError(f"lanes must be at least 1, got {self.lanes}")
        if self.block_bytes < 1:
            raise ValueError(f"block_bytes must be at least 1, got {self.block_bytes}")
        if self.shuffle_bytes < 0:
            raise ValueError(f"shuffle_bytes must not be negative, got {self.shuffle_bytes}")
        return self


class Window(NamedTuple):
    """Samples of one lane, and of some runs of consecutive samples, that are in memory at the same time."""

    lane: int
    first: int
    """Which sample of the lane is the window's first."""
    shards: Array
    """For each run of samples: its shard, ..."""
    firsts: Array
    """... which sample of the shard is its first, ..."""
    counts: Array
    """... and how many they are."""
    random: int | None
    """The stream of random numbers to shuffle by; None leaves the samples as they lie."""
    line: int
    """Where the window begins on the line: random numbers are drawn by that place."""

    @property
    def size(self) -> int:
        """How many samples the window has."""
        return int(self.counts.sum())

    def samples(self) -> tuple[Array, Array]:
        """The samples in their order: the shard each is of, and its number there."""
        return samples_of([self])


def samples_of(windows: Sequence[Window]) -> tuple[Array, Array]:
    """The samples of some windows of an order, one window after the other: the shard of each, and its number there.

    What comes out does not depend on how many windows are looked at together: more are cheaper.
    """
    import numpy as np

    counts = np.concatenate([window.counts for window in windows])
    firsts = np.concatenate([window.firsts for window in windows])
    shards = np.concatenate([window.shards for window in windows])
    runs = np.repeat(np.arange(len(counts)), counts)
    turn = np.arange(len(runs)) - (np.cumsum(counts) - counts)[runs]
    numbers = turn + firsts[runs]
    random, line = windows[0].random, windows[0].line
    if random is None:
        return shards[runs], numbers
    bits = random_bits(random, np.arange(line, line + len(runs)))
    # Each run's samples, in random order, are spread evenly over the window: neighbours are of different runs.
    drawn = np.lexsort((bits, runs))
    when = (turn + (bits & np.uint64(0xFFFFFFFF)) * 2.0**-32) / counts[runs]
    sizes = [window.size for window in windows]
    chosen = drawn[np.lexsort((when, np.repeat(np.arange(len(sizes)), sizes)))]
    return shards[runs[chosen]], numbers[chosen]


def even_lanes(total: int, lanes: int) -> list[int]:
    """How many of the positions 0..total-1 each lane has.

    >>> even_lanes(5, 3)
    [2, 2, 1]
    """
    return [(total - lane + lanes - 1) // lanes for lane in range(lanes)]


class Order:
    """One epoch's order of all samples of some shards.

    >>> import numpy as np
    >>> order = Order(np.array([3, 2]), np.array([4096, 3072]), epoch=0)
    >>> shards, numbers = order.locate(np.arange(5))
    >>> sorted(zip(shards.tolist(), numbers.tolist()))
    [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    """

    def __init__(
        self,
        counts: Array,
        sizes: Array,
        *,
        epoch: object,
        settings: OrderSettings | None = None,
        lane_lengths: list[int] | None = None,
    ) -> None:
        import numpy as np

        settings = OrderSettings().checked() if settings is None else settings.checked()
        self.settings = settings
        self.epoch = epoch
        self.shuffled = settings.shuffle_bytes > 0
        self.lanes = settings.lanes if self.shuffled else 1
        self.counts = np.asarray(counts, dtype=np.int64)
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.total = int(self.counts.sum())
        self._cut_into_blocks()
        self._line_up()
        self.places = spread(self.lanes)
        """Which piece of the line each lane is."""
        self.lane_lengths = lane_lengths or even_lanes(self.total, self.lanes)
        """How many samples each lane has; lanes of orders that are mixed need not be even."""
        self._starts = self._lane_starts()

    # -- the epoch's sequence --------------------------------------------------------------------

    def windows(self, lane: int, begin: int = 0) -> Iterator[Window]:
        """The windows of a lane, in order; those that end before its sample `begin` are left out."""
        import numpy as np

        start, stop = self._starts[lane], self._starts[lane] + self.lane_lengths[lane]
        if start == stop:
            return
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop, side="left")) + 1
        edges = np.concatenate(([start], self._ends[first : last - 1], [stop]))
        blocks = self._line[first:last]
        shards, firsts = self._block_shards(blocks), self._block_firsts(blocks)
        # the lane's first block may have begun in the lane before
        firsts[0] += start - (self._ends[first - 1] if first else 0)
        runs = np.diff(edges)
        borders = self._window_borders(lane, shards, runs)
        random = stream(self.settings.seed, self.epoch, "samples") if self.shuffled else None
        # what comes before is not walked through: a place late in a large epoch is found at once
        passed = int(np.searchsorted(edges[borders], start + begin, side="right")) - 1 if begin > 0 else 0
        borders = borders[passed:]
        for low, high in zip(borders, [*borders[1:], len(runs)], strict=True):
            line = int(edges[low])
            yield Window(lane, line - start, shards[low:high], firsts[low:high], runs[low:high], random, line)

    def locate(self, positions: Array) -> tuple[Array, Array]:
        """The shard and the number in its shard of the samples at these positions."""
        import numpy as np

        positions = np.asarray(positions, dtype=np.int64)
        shards, numbers = np.empty_like(positions), np.empty_like(positions)
        lanes, turns = positions % self.lanes, positions // self.lanes
        for lane in np.unique(lanes).tolist():
            here = lanes == lane
            shards[here], numbers[here] = self.in_lane(lane, turns[here])
        return shards, numbers

    def in_lane(self, lane: int, turns: Array) -> tuple[Array, Array]:
        """The shard and the number in its shard of these samples of a lane."""
        import numpy as np

        shards, numbers = np.empty_like(turns), np.empty_like(turns)
        for window in self.windows(lane):
            inside = (turns >= window.first) & (turns < window.first + window.size)
            if inside.any():
                at = turns[inside] - window.first
                shards[inside], numbers[inside] = (column[at] for column in window.samples())
        return shards, numbers

    @property
    def fits(self) -> bool:
        """Whether all samples can be in memory at the same time, so that each lane is one window."""
        return self.shuffled and int(self.sizes.sum()) <= self.settings.shuffle_bytes

    # -- how it is made --------------------------------------------------------------------------

    def _cut_into_blocks(self) -> None:
        import numpy as np

        bytes_in_all = int(self.sizes[self.counts > 0].sum())
        size = self.settings.block_bytes
        if self.shuffled:
            each = SMALL_BLOCKS_PER_LANE if self.fits else BLOCKS_PER_LANE
            size = min(size, bytes_in_all // (each * self.lanes))
        size = max(size, bytes_in_all // MAX_BLOCKS, 1)
        blocks = np.minimum(np.maximum((self.sizes + size // 2) // size, 1), self.counts)
        self._blocks = blocks
        """How many blocks each shard is cut into."""
        self._blocks_until = np.cumsum(blocks)
        self.sample_bytes = self.sizes / np.maximum(self.counts, 1)

    def _line_up(self) -> None:
        """Put the blocks into their order; remember where on the line each ends."""
        import numpy as np

        blocks = int(self._blocks.sum())
        order = permutation(stream(self.settings.seed, self.epoch, "blocks"), blocks) if self.shuffled else None
        self._line = np.arange(blocks) if order is None else order
        shards = np.repeat(np.arange(len(self._blocks)), self._blocks)
        inside = np.arange(blocks) - (self._blocks_until - self._blocks)[shards]
        counts, parts = self.counts[shards], self._blocks[shards]
        sizes = (inside + 1) * counts // parts - inside * counts // parts
        self._ends = np.cumsum(sizes[self._line])

    def _block_shards(self, blocks: Array) -> Array:
        import numpy as np

        return np.searchsorted(self._blocks_until, blocks, side="right")

    def _block_firsts(self, blocks: Array) -> Array:
        shards = self._block_shards(blocks)
        inside = blocks - (self._blocks_until - self._blocks)[shards]
        return inside * self.counts[shards] // self._blocks[shards]

    def _lane_starts(self) -> list[int]:
        starts, start = [0] * self.lanes, 0
        for lane in sorted(range(self.lanes), key=self.places.__getitem__):
            starts[lane] = start
            start += self.lane_lengths[lane]
        return starts

    def _window_borders(self, lane: int, shards: Array, runs: Array) -> list[int]:
        """Which of a lane's runs begin a window.

        The lanes' windows end at different times, so that reading goes on evenly and memory stays even.
        """
        import numpy as np

        bytes_of = runs * self.sample_bytes[shards]
        before = np.cumsum(bytes_of) - bytes_of
        size = max(1.0, (self.settings.shuffle_bytes if self.shuffled else self.settings.block_bytes) / self.lanes)
        if self.fits:
            return [0]
        later = 1 + (self.places[lane] + 1) / self.lanes
        windows = np.where(
            before < size * later,
            np.searchsorted(_FIRST_WINDOWS, before / size, side="right"),
            np.floor(before / size - later) + len(_FIRST_WINDOWS) + 1,
        )
        return [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist()]
