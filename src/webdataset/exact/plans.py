"""What an epoch will be, before it is run: steps, repeats, bytes, memory and how well it is shuffled.

>>> from webdataset.indices.catalogue import Catalogue, Shard
>>> shards = Catalogue([Shard("a.tar", 7, 8192), Shard("b.tar", 11, 12288), Shard("c.tar", 2, 3072)])
>>> print(plan(shards, ranks=4, workers=3, batch=2))
20 samples in 3 shards, 23.6 kB
4 ranks with 3 workers each, batches of 2
an epoch is 3 steps on each rank; every sample is seen once
a rank reads 5.6 kB to 6.5 kB, from 2 shards to 3 shards
a rank holds up to 4.8 kB of samples in memory
shuffled: the samples of a batch lie 105% as far apart as in a perfect shuffle,
  and 97% as often come from the same shard
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.stages import suggesting
from webdataset.base.units import counted, number_of_bytes, size_text
from webdataset.epochs.mixed import Mixed
from webdataset.epochs.numbers import Array, permutation, stream
from webdataset.epochs.order import BLOCK_BYTES, LANES, SHUFFLE_BYTES, Order, OrderSettings
from webdataset.epochs.share import Cut, Share
from webdataset.indices.making import catalogue_of

from .program import ExactShards, ExactSource, Program
from .run import AHEAD

if TYPE_CHECKING:
    from webdataset.base.rounds import RunnablePipeline

PAIRS = 1 << 20
"""About how many pairs of samples the quality of a shuffle is judged by."""


class ShuffleQuality(NamedTuple):
    """How the batches of an epoch compare with those of a true permutation of all samples; 1.0 is as good."""

    distance: float
    """How far apart the samples of a batch are in the dataset, on average."""
    same_shard: float
    """How often two samples of a batch are of one shard."""


class Plan:
    """One epoch of an exact dataset, over all ranks; `wds.plan` and `dataset.plan()` make it.

    Args:
        program: the datasets and stages
        ranks: the number of processes that train
        workers: the number of workers of each
        cut: how samples are cut into steps
        epoch: which epoch
    """

    def __init__(self, program: Program, *, ranks: int, workers: int, cut: Cut, epoch: int = 0) -> None:
        self.ranks = ranks
        self.workers = workers
        self.batch = cut.size
        self.epoch: Mixed = program.epoch(epoch)
        self._sources = [source.shards for source in program.sources]
        self._shares = [
            Share(self.epoch.total, self.epoch.places, rank=rank, world=ranks, cut=cut) for rank in range(ranks)
        ]

    @property
    def samples(self) -> int:
        """Samples of an epoch, each counted once."""
        return self.epoch.total

    @property
    def shards(self) -> int:
        """Shards that are read."""
        return sum(len(source.catalogue.urls) for source in self._sources)

    @property
    def bytes(self) -> int:
        """Bytes of all shards."""
        return sum(int(source.catalogue.sizes.clip(0).sum()) for source in self._sources)

    @property
    def steps(self) -> int:
        """Batches that every rank gets."""
        return self._shares[0].steps

    @property
    def repeated(self) -> int:
        """Samples that are given twice, over all ranks."""
        return sum(share.repeated for share in self._shares)

    @property
    def dropped(self) -> int:
        """Samples that are left out, over all ranks."""
        return sum(share.dropped for share in self._shares)

    def positions(self, rank: int, step: int) -> Array:
        """The positions of the epoch that a rank takes in a step; those from `samples` on are repeats.

        Args:
            rank: which rank
            step: which of its steps
        """
        return self._shares[rank].positions(step)

    def sizes(self, rank: int) -> Array:
        """How many samples a `rank` takes in each of its steps, repeated ones included."""
        return self._shares[rank].sizes()

    def sequence(self, rank: int) -> list[tuple[int, int, int]]:
        """Everything that `rank` gets, in order: dataset, shard and number in the shard of each sample."""
        import numpy as np

        share = self._shares[rank]
        positions = share.position(np.arange(share.count)) % self.epoch.total
        columns = self.epoch.locate(positions)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @cached_property
    def bytes_per_rank(self) -> list[int]:
        """About how many bytes each rank reads."""
        return [round(sum(fraction * size for fraction, size, _ in self._parts_of(rank))) for rank in range(self.ranks)]

    @cached_property
    def shards_per_rank(self) -> list[int]:
        """How many shards each rank reads something of."""
        return [len({one for _, _, found in self._parts_of(rank) for one in found}) for rank in range(self.ranks)]

    @property
    def memory_per_rank(self) -> int:
        """About how many bytes of samples a rank holds, before they are decoded."""
        windows = sum(min(one.settings.shuffle_bytes, self.bytes) for one in self._sources)
        lanes = max(len(self._shares[0].lanes()), 1)
        read_ahead = AHEAD * windows // self.epoch.lanes
        return min(windows * lanes // self.epoch.lanes + read_ahead, max(self.bytes_per_rank))

    def shuffle_quality(self, batch: int | None = None) -> ShuffleQuality:
        """How batches of `batch` samples, over all ranks, compare with those of a true permutation."""
        import numpy as np

        size = min(max(2, batch or self.batch * self.ranks), self.samples)
        if size < 2:
            return ShuffleQuality(1.0, 1.0)
        batches = np.arange(max(1, self.samples // size))
        wanted = max(1, 2 * PAIRS // (size * size))
        batches = np.sort(batches[permutation(stream("quality"), len(batches))[:wanted]])
        positions = (batches[:, None] * size + np.arange(size)).ravel()
        parts, shards, numbers = (column.reshape(len(batches), size) for column in self.epoch.locate(positions))
        before = np.cumsum([0] + [one.catalogue.total for one in self._sources])
        firsts = [one.catalogue.ends - one.catalogue.counts for one in self._sources]
        places, shard_ids = np.empty_like(parts), np.empty_like(parts)
        offset = 0
        for number, first in enumerate(firsts):
            here = parts == number
            places[here] = before[number] + first[shards[here]] + numbers[here]
            shard_ids[here] = offset + shards[here]
            offset += len(first)
        return ShuffleQuality(_distance(places, self.samples), _same_shard(shard_ids, self._counts()))

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        much = ("samples", "shards", "bytes", "ranks", "workers", "batch", "steps", "repeated", "dropped")
        names = (*much, "bytes_per_rank", "shards_per_rank", "memory_per_rank")
        return {name: getattr(self, name) for name in names} | {"shuffle_quality": self.shuffle_quality()._asdict()}

    def __str__(self) -> str:
        distance, same_shard = self.shuffle_quality()
        seen = "every sample is seen once"
        if self.repeated:
            seen = f"{counted(self.repeated, 'sample')} seen twice, so that all ranks have as many"
        elif self.dropped:
            seen = f"{counted(self.dropped, 'sample')} left out, so that all ranks have as many"
        return f"""\
{counted(self.samples, "sample")} in {counted(self.shards, "shard")}, {size_text(self.bytes)}
{counted(self.ranks, "rank")} with {counted(self.workers, "worker")} each, batches of {self.batch:,}
an epoch is {counted(self.steps, "step")} on each rank; {seen}
a rank reads {_range(self.bytes_per_rank, size_text)}, from {_range(self.shards_per_rank, _shards)}
a rank holds up to {size_text(self.memory_per_rank)} of samples in memory
shuffled: the samples of a batch lie {distance:.0%} as far apart as in a perfect shuffle,
  and {same_shard:.0%} as often come from the same shard"""

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from webdataset.display.markup import table

        quality = self.shuffle_quality()
        rows = [
            ("steps on each rank", f"{self.steps:,}"),
            ("seen twice, left out", f"{counted(self.repeated, 'sample')}, {counted(self.dropped, 'sample')}"),
            ("read by a rank", f"{_range(self.bytes_per_rank, size_text)}, {_range(self.shards_per_rank, _shards)}"),
            ("memory of a rank", size_text(self.memory_per_rank)),
            ("of a perfect shuffle", f"{quality.distance:.0%} by distance, {quality.same_shard:.0%} by shards"),
        ]
        return table(rows, title=", ".join(str(self).splitlines()[:2]))

    def _parts_of(self, rank: int) -> Iterator[tuple[float, float, set[tuple[int, int]]]]:
        """For each lane of a rank and each dataset: which fraction of how many bytes, of which shards."""
        import numpy as np

        share = self._shares[rank]
        # after as many turns as there are lanes, who takes what of a lane repeats
        turns = share.position(np.arange(self.epoch.lanes))
        for lane, count in zip(*np.unique(turns % self.epoch.lanes, return_counts=True), strict=True):
            for number, passes in enumerate(self.epoch.passes):
                for one in passes:
                    yield count / self.ranks, *self._lane_bytes(number, one.order, int(lane))

    def _lane_bytes(self, number: int, order: Order, lane: int) -> tuple[float, set[tuple[int, int]]]:
        size, found = 0.0, set[tuple[int, int]]()
        for window in order.windows(lane):
            size += float((order.sample_bytes[window.shards] * window.counts).sum())
            found.update((number, shard) for shard in window.shards.tolist())
        return size, found

    def _counts(self) -> Array:
        import numpy as np

        return np.concatenate([one.catalogue.counts for one in self._sources])


@suggesting()
def plan(
    urls: object,
    *,
    ranks: int = 1,
    workers: int = 1,
    batch: int = 1,
    partial: bool = True,
    remainder: str | None = None,
    seed: object = 0,
    epoch: int = 0,
    shuffle_bytes: int | str = SHUFFLE_BYTES,
    block_bytes: int | str = BLOCK_BYTES,
    lanes: int = LANES,
    concatenated: bool = False,
) -> Plan:
    """What an epoch over these shards will be; shards without an index get one, nothing else is read.

    `urls` may be a catalogue, or the name of one. The options are those of `WebDataset(urls, exact=True)`.

    Args:
        urls: the shards, a catalogue, or the name of one
        ranks: the number of processes that train
        workers: the number of workers of each
        batch: samples in a batch
        partial: whether the last batch may be smaller
        remainder: what to do with samples that do not divide evenly: "pad", "drop" or "uneven"; if not given, "pad",
            or "drop" with `partial=False`
        seed: the seed of the order
        epoch: which epoch
        shuffle_bytes: the data within which samples are shuffled
        block_bytes: the size of the blocks that are read at a time
        lanes: how many parts of the dataset a batch is drawn from
        concatenated: whether shards may be several archives, put together with `cat`
    """
    settings = OrderSettings(seed, number_of_bytes(shuffle_bytes), number_of_bytes(block_bytes), lanes)
    catalogue = catalogue_of(urls, concatenated=concatenated)
    shards = ExactShards(catalogue, settings=settings, remainder=remainder, rank=0, world_size=ranks)
    cut = Cut(batch, not partial, remainder).checked()
    return Plan(Program([ExactSource(shards, [])], []), ranks=ranks, workers=workers, cut=cut, epoch=epoch)


def plan_of(pipeline: RunnablePipeline, *, ranks: int | None = None, workers: int = 1, epoch: int = 0) -> Plan:
    """What an epoch of this exact pipeline will be."""
    program = pipeline.runner.program() if getattr(pipeline, "exact", False) else None
    if program is None:
        raise TypeError("only datasets with exact epochs have a plan: WebDataset(..., exact=True)")
    ranks = program.sources[0].shards.rank_and_world()[1] if ranks is None else ranks
    return Plan(program, ranks=ranks, workers=workers, cut=program.cut, epoch=epoch)


def _distance(places: Array, total: int) -> float:
    """The mean distance of two samples of a batch, against that of two samples drawn from all."""
    import numpy as np

    places = np.sort(places, axis=1)
    size = places.shape[1]
    weights = 2 * np.arange(size) - size + 1  # how often each is the larger of a pair, less how often the smaller
    mean = float((places * weights).sum(axis=1).mean()) / (size * (size - 1) / 2)
    return float(mean / ((total + 1) / 3))


def _same_shard(shards: Array, counts: Array) -> float:
    """How many pairs in a batch are of one shard, against two samples drawn from all."""
    import numpy as np

    size = shards.shape[1]
    pairs = 0
    for batch in shards:
        _, found = np.unique(batch, return_counts=True)
        pairs += int((found * (found - 1)).sum())
    total = int(counts.sum())
    expected: float = float((counts * (counts - 1)).sum()) / (total * (total - 1))
    return float(pairs / (len(shards) * size * (size - 1)) / expected) if expected else 1.0


def _shards(number: int) -> str:
    return counted(number, "shard")


def _range(values: list[int], shown: Callable[[int], object]) -> str:
    low, high = min(values), max(values)
    return str(shown(low)) if shown(low) == shown(high) else f"{shown(low)} to {shown(high)}"
