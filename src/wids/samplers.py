"""Orders in which to read a dataset by number, so that neighbouring reads are in one shard.

Every pass is a new epoch with another order; an order is a function of seed and epoch alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from webdataset.base.workers import make_seed, pytorch_worker_info


class ShardListSampler:
    """All samples, shard by shard: shards in a new order in each epoch, and the samples of each shuffled.

    The first epoch takes the shards in their own order unless `shufflefirst`.

    Args:
        dataset: a `ShardListDataset`
        lengths: the samples of each shard, if not the dataset's
        seed: the seed of the order
        shufflefirst: shuffle the shards in the first epoch, too

    >>> class Two:
    ...     lengths = [3, 2]
    >>> sampler = ShardedSampler(Two())
    >>> sorted(list(sampler)[:3]), len(sampler)
    ([0, 1, 2], 5)
    """

    def __init__(
        self, dataset: Any, *, lengths: Sequence[int] | None = None, seed: int = 0, shufflefirst: bool = False
    ) -> None:
        self.lengths = list(dataset.lengths if lengths is None else lengths)
        self.seed = seed
        self.shufflefirst = shufflefirst
        self.epoch = 0

    def __len__(self) -> int:
        return sum(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is `epoch`."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        ranges, start = [], 0
        for length in self.lengths:
            ranges.append(range(start, start + length))
            start += length
        rng = random.Random(make_seed("shards", self.seed, self.epoch))
        order = _shuffled(ranges, rng, chunks=self.shufflefirst or self.epoch > 0)
        self.epoch += 1
        return order


ShardedSampler = ShardListSampler


class ChunkedSampler:
    """A range of samples, in chunks of `chunksize`: chunks in a new order in each epoch, each of them shuffled.

    `num_samples` is how many, or `(start, stop)`; numbers beyond the dataset's end begin again at its beginning.
    `dslength_per_replica` is how many to yield in all, which repeats or cuts the range.

    Args:
        dataset: something with a length
        dslength_per_replica: how many to yield in all
        num_samples: how many, or `(start, stop)`
        chunksize: samples in a chunk
        seed: the seed of the order
        shuffle: whether to shuffle at all
        shufflefirst: shuffle the chunks in the first epoch, too

    >>> list(ChunkedSampler(range(6), chunksize=2, shuffle=False, num_samples=(4, 8)))
    [4, 5, 0, 1]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        dslength_per_replica: int = -1,
        num_samples: int | tuple[int, int] | None = None,
        chunksize: int = 2000,
        seed: int = 0,
        shuffle: bool = True,
        shufflefirst: bool = False,
    ) -> None:
        total = len(dataset)
        given = total if num_samples is None else num_samples
        self.start, self.stop = (0, given) if isinstance(given, int) else given
        if not 0 <= self.start <= self.stop or chunksize < 1 or (self.stop > self.start and not total):
            raise ValueError(f"a range of samples is 0 <= start <= stop, got {given} of {total}, in {chunksize}s")
        self.total = total
        self.length = dslength_per_replica if dslength_per_replica > 0 else self.stop - self.start
        self.chunksize = chunksize
        self.seed = seed
        self.shuffle = shuffle
        self.shufflefirst = shufflefirst
        self.epoch = 0

    def __len__(self) -> int:
        return self.length

    def set_epoch(self, epoch: int) -> None:
        """The next pass is `epoch`."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._numbers(epoch)

    def _numbers(self, epoch: int) -> Iterator[int]:
        left = self.length
        while left > 0 and self.stop > self.start:
            for number in self._once(epoch):
                if not left:
                    return
                left -= 1
                yield number % self.total

    def _once(self, epoch: int) -> Iterator[int]:
        if not self.shuffle:
            return iter(range(self.start, self.stop))
        starts = range(self.start, self.stop, self.chunksize)
        chunks = [range(start, min(start + self.chunksize, self.stop)) for start in starts]
        rng = random.Random(make_seed("chunks", self.seed, epoch))
        return _shuffled(chunks, rng, chunks=self.shufflefirst or epoch > 0)


def DistributedChunkedSampler(  # noqa: N802 - its old name
    dataset: Any,
    *,
    num_replicas: int | None = None,
    num_samples: int | None = None,
    rank: int | None = None,
    shuffle: bool = True,
    shufflefirst: bool = False,
    seed: int = 0,
    drop_last: bool | None = None,
    chunksize: int = 1_000_000,
) -> ChunkedSampler:
    """This rank's part of the samples, as large as every other rank's.

    Rank and number of ranks are those of torch.distributed or the environment unless given. If the samples do not
    divide evenly, the last ranks repeat some of the first samples, or with `drop_last` the rest is left out.

    Args:
        dataset: something with a length
        num_replicas: the number of ranks
        num_samples: how many of the samples, over all ranks
        rank: this rank
        shuffle: whether to shuffle at all
        shufflefirst: shuffle the chunks in the first epoch, too
        seed: the seed of the order
        drop_last: leave the rest out
        chunksize: samples in a chunk

    >>> [list(DistributedChunkedSampler(range(5), num_replicas=2, rank=rank, shuffle=False)) for rank in (0, 1)]
    [[0, 1, 2], [3, 4, 0]]
    """
    own_rank, world_size, _, _ = pytorch_worker_info()
    replicas = world_size if num_replicas is None else num_replicas
    rank = own_rank if rank is None else rank
    if not 0 <= rank < replicas:
        raise ValueError(f"rank {rank} of {replicas}")
    total = len(dataset) if num_samples is None else num_samples
    share = total // replicas if drop_last else -(-total // replicas)
    return ChunkedSampler(
        dataset,
        num_samples=(rank * share, (rank + 1) * share),
        chunksize=chunksize,
        seed=make_seed(seed, rank),
        shuffle=shuffle,
        shufflefirst=shufflefirst,
    )


def _shuffled(ranges: list[range], rng: random.Random, *, chunks: bool) -> Iterator[int]:
    """The numbers of the ranges, each range shuffled, and the ranges among themselves if `chunks`."""
    if chunks:
        rng.shuffle(ranges)
    for one in ranges:
        numbers = list(one)
        rng.shuffle(numbers)
        yield from numbers
