"""Simulate a distributed job: which rank and which worker gets how many shards, samples and batches.

>>> from webdataset.indices.catalogue import Catalogue, Shard
>>> shards = Catalogue([Shard(f"{n}.tar", 100, 10_000_000, None) for n in range(5)])
>>> deal = streamed_deal(shards, ranks=2, workers=1, batch=32)
>>> [(part.shards, part.samples, part.batches) for part in deal.of_ranks()], deal.is_equal
([(3, 300, 10), (2, 200, 7)], False)
>>> deal = exact_deal(shards, ranks=2, workers=1, batch=32)
>>> [(part.shards, part.samples, part.batches) for part in deal.of_ranks()], deal.is_equal
([(5, 250, 8), (5, 250, 8)], True)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from webdataset.exact.plans import plan
from webdataset.indices.catalogue import Catalogue, Shard
from webdataset.shardlists import dealt

from .histograms import drawing_package, save_figure

ASSUMED_BYTES = 100_000
"""The size of a sample of shards that are only imagined."""
MOST_ROWS = 32
BAR = 30


class DealtPart(NamedTuple):
    """What one worker gets in an epoch; what a rank gets, if the worker is None."""

    rank: int
    worker: int | None
    shards: int
    samples: int
    batches: int


class Deal:
    """An epoch as it is dealt to all workers of all ranks."""

    def __init__(self, parts: Sequence[DealtPart], shards_of_ranks: Sequence[int]) -> None:
        self.parts = list(parts)
        self._shards = list(shards_of_ranks)

    def of_ranks(self) -> list[DealtPart]:
        """What each rank gets."""
        sums = [[0, 0] for _ in self._shards]
        for part in self.parts:
            sums[part.rank][0] += part.samples
            sums[part.rank][1] += part.batches
        return [DealtPart(rank, None, self._shards[rank], *both) for rank, both in enumerate(sums)]

    @property
    def batches(self) -> tuple[int, int]:
        """The least and the most batches that a rank gets."""
        counts = [part.batches for part in self.of_ranks()]
        return min(counts), max(counts)

    @property
    def is_equal(self) -> bool:
        """Whether all ranks get as many batches."""
        least, most = self.batches
        return least == most

    @property
    def idle(self) -> list[DealtPart]:
        """Workers that get nothing."""
        return [part for part in self.parts if not part.samples]

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        ranks = [part._asdict() for part in self.of_ranks()]
        return {"equal": self.is_equal, "ranks": ranks, "workers": [part._asdict() for part in self.parts]}


def imagined_shards(urls: Sequence[str], samples: Sequence[int]) -> Catalogue:
    """A catalogue of shards that need not exist, with these numbers of samples, which are repeated as needed.

    >>> imagined_shards(["a.tar", "b.tar", "c.tar"], [10, 20]).counts.tolist()
    [10, 20, 10]
    """
    counts = [samples[n % len(samples)] for n in range(len(urls))]
    return Catalogue([Shard(url, n, n * ASSUMED_BYTES) for url, n in zip(urls, counts, strict=True)])


def streamed_deal(shards: Catalogue, *, ranks: int, workers: int, batch: int = 1, partial: bool = True) -> Deal:
    """Whole shards are dealt to ranks and workers, as by `split_by_node` and `split_by_worker`."""
    parts, shards_of_ranks = [], []
    for rank in range(ranks):
        mine = list(dealt(shards.counts.tolist(), rank, ranks))
        shards_of_ranks.append(len(mine))
        for worker in range(workers):
            counts = list(dealt(mine, worker, workers))
            samples = sum(counts)
            batches = -(-samples // batch) if partial else samples // batch
            parts.append(DealtPart(rank, worker, len(counts), samples, batches))
    return Deal(parts, shards_of_ranks)


def exact_deal(
    shards: Catalogue, *, ranks: int, workers: int, batch: int = 1, partial: bool = True, remainder: str | None = None
) -> Deal:
    """Samples are dealt to ranks, and their batches to workers in turn, as by `WebDataset(..., exact=True)`."""
    epoch = plan(shards, ranks=ranks, workers=workers, batch=batch, partial=partial, remainder=remainder)
    parts = []
    for rank in range(ranks):
        sizes = epoch.sizes(rank)
        for worker in range(workers):
            mine = sizes[worker::workers]
            parts.append(DealtPart(rank, worker, epoch.shards_per_rank[rank], int(mine.sum()), len(mine)))
    return Deal(parts, epoch.shards_per_rank)


def lines(deal: Deal) -> Iterator[str]:
    """The lines that `wl simdist` prints: a row for each worker, or for each rank if there are many workers."""
    rows = deal.parts if len(deal.parts) <= MOST_ROWS else deal.of_ranks()
    most = max(row.samples for row in rows) or 1
    shown = rows if len(rows) <= MOST_ROWS else [*rows[: MOST_ROWS // 2], None, *rows[-MOST_ROWS // 2 :]]
    for row in shown:
        if row is None:
            yield f"  ... {len(rows) - MOST_ROWS} more; --json has all"
            continue
        who = f"rank {row.rank}" + (f" worker {row.worker}" if row.worker is not None else "")
        bar = "#" * -(-row.samples * BAR // most)
        yield f"  {who:<18}{row.shards:>6} shards {row.samples:>9} samples {row.batches:>7} batches  {bar}".rstrip()
    least, most = deal.batches
    if deal.is_equal:
        yield f"  equal: every rank gets {least} batches"
    else:
        yield f"  NOT equal: ranks get {least} to {most} batches; in step {least + 1} some wait for others forever"
    if deal.idle:
        first = deal.idle[0]
        who = f"rank {first.rank} worker {first.worker}"
        others = len(deal.idle) - 1
        yield f"  {who} and {others} more get nothing" if others else f"  {who} gets nothing"


def plot(deals: dict[str, Deal], path: object, *, format: str | None = None) -> None:
    """Plot the batches of each rank, stacked by worker, one picture for each way to deal."""
    pyplot = drawing_package()
    figure, axes = pyplot.subplots(len(deals), 1, figsize=(8, 2.8 * len(deals)), squeeze=False, sharex=True)
    for axis, (name, deal) in zip(axes[:, 0], deals.items(), strict=True):
        heights = [0] * len(deal.of_ranks())
        for worker in sorted({part.worker or 0 for part in deal.parts}):
            batches = [part.batches for part in deal.parts if part.worker == worker]
            axis.bar(range(len(batches)), batches, bottom=heights, width=0.8, edgecolor="white", linewidth=0.5)
            heights = [height + more for height, more in zip(heights, batches, strict=True)]
        least, most = deal.batches
        counts = f"{least} batches on every rank" if deal.is_equal else f"{least} to {most} batches"
        axis.set_title(f"{name}: {counts}")
        axis.axhline(least, color="black", linewidth=0.8, linestyle="--")
        axis.set_ylabel("batches, by worker")
        axis.yaxis.get_major_locator().set_params(integer=True)
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[-1, 0].set_xlabel("rank")
    save_figure(figure, path, format)
