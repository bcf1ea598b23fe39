"""Shuffle all samples of a dataset, even if larger than memory.

Every sample gets a random number, drawn from the seed and its shard. The first pass distributes the samples over
buckets by that number; the second pass sorts one bucket after the other by it, in memory. So the order is the same for
any amount of memory and any number of processes, which share the work of both passes.

>>> samples = [{"__key__": str(n)} for n in range(6)]
>>> [sample["__key__"] for sample in shuffle_samples(seed=1)(samples)]
['0', '5', '4', '1', '2', '3']
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from typing import Any

from webdataset.base.reports import Report, current_report
from webdataset.base.stages import pipelinefilter
from webdataset.base.workers import make_seed
from webdataset.handlers import close
from webdataset.tools.parallel import call, process_pool, submitted

from .mapping import Pack, batches
from .spilling import Entry, read_entries, read_frames, size_of, temporary_folder, write_entries, write_frames

DEFAULT_MEMORY = 200_000_000
BUCKETS = 64

Sample = dict[str, Any]
_first = itemgetter(0)


@pipelinefilter
def shuffle_samples(
    data: Iterable[Sample], *, seed: object = 0, memory: int = DEFAULT_MEMORY, tmpdir: str | None = None
) -> Iterator[Sample]:
    """Shuffle a stream, in an order that depends on the seed alone; holds at most about `memory` bytes."""
    with_numbers = numbered(data, seed, 0)
    return _dealt(with_numbers, memory, tmpdir)


def shuffle_shards(
    urls: Sequence[str],
    read: Callable[[str], tuple[Iterable[Sample], Callable[[], dict[str, Any]]]],
    *,
    seed: object = 0,
    memory: int = DEFAULT_MEMORY,
    processes: int = 0,
    tmpdir: str | None = None,
    pack: Callable[[], Pack] | None = None,
    tick: Callable[[], object] = lambda: None,
) -> Iterator[Sample]:
    """Shuffle the samples of shards, in several processes if `processes` is above 1.

    `read(url)` returns a shard's samples, and a function that returns its counts afterwards. With several processes,
    the function that `pack()` returns is applied to lists of samples, and `tick` is called now and then.
    """
    report = current_report()
    if processes > 1 and len(urls) > 1:
        start = partial(_Shuffler, read, seed, memory // processes, pack)
        return _dealt_by_processes(urls, start, processes, tmpdir=tmpdir, report=report, tick=tick)
    return _dealt(_read_in_turn(urls, read, seed, report), memory, tmpdir)


def numbered(samples: Iterable[Sample], seed: object, shard: int) -> Iterator[Entry]:
    """Yield samples with their random numbers."""
    draw = random.Random(make_seed(seed, shard)).random
    source = iter(samples)
    try:
        for sample in source:
            yield draw(), sample
    finally:
        close(source)


class Buckets:
    """Entries distributed by their numbers, between `low` and `high`; what does not fit in memory goes to files."""

    def __init__(self, folder: Callable[[], str], memory: int, low: float = 0.0, high: float = 1.0) -> None:
        self.folder = folder
        self.memory = memory
        self.low, self.width = low, (high - low) / BUCKETS
        self.held: list[list[Entry]] = [[] for _ in range(BUCKETS)]
        self.sizes = [0] * BUCKETS
        self.size = 0
        self.name = f"{low!r}-{high!r}-{os.getpid()}"

    def deal(self, entries: Iterable[Entry]) -> None:
        """Distribute entries."""
        held, sizes, low, width, last = self.held, self.sizes, self.low, self.width, BUCKETS - 1
        for entry in entries:
            bucket = min(int((entry[0] - low) / width), last)
            size = size_of(entry[1])
            held[bucket].append(entry)
            sizes[bucket] += size
            self.size += size
            if self.size > self.memory:
                self.spill()

    def spill(self) -> None:
        """Write what is in memory to the buckets' files."""
        for bucket, entries in enumerate(self.held):
            if entries:
                write_entries(self.path(bucket), entries, "ab")
                self.held[bucket] = []
        self.size = 0

    def path(self, bucket: int) -> str:
        return os.path.join(self.folder(), f"{bucket:02d}-{self.name}")

    def files(self) -> list[str]:
        """Return the path of each bucket's file, empty if it has none."""
        if not any(self.sizes):
            return [""] * BUCKETS
        paths = [self.path(bucket) for bucket in range(BUCKETS)]
        return [path if os.path.exists(path) else "" for path in paths]


class BucketPart:
    """One bucket's entries from one source: those in memory, a file, and the memory that both together take."""

    def __init__(self, held: list[Entry], path: str, size: int) -> None:
        self.held, self.path, self.size = held, path, size

    def entries(self) -> Iterator[Entry]:
        yield from self.held
        self.held = []
        if self.path:
            yield from read_entries(self.path)
            os.unlink(self.path)


def _dealt(entries: Iterator[Entry], memory: int, tmpdir: str | None) -> Iterator[Sample]:
    with ExitStack() as opened:
        opened.callback(close, entries)
        folder = _Folder(opened, tmpdir)
        buckets = Buckets(folder, memory)
        buckets.deal(entries)
        yield from _in_order([_parts(buckets, folder)], folder, memory, 0.0, 1.0)


def _parts(buckets: Buckets, folder: _Folder) -> list[BucketPart]:
    files = buckets.files() if folder.path else [""] * BUCKETS
    return [BucketPart(*part) for part in zip(buckets.held, files, buckets.sizes, strict=True)]


def _in_order(
    sources: Sequence[list[BucketPart]], folder: _Folder, memory: int, low: float, high: float
) -> Iterator[Sample]:
    """Yield the samples of all buckets, in order; a bucket that is too large is distributed again."""
    width = (high - low) / BUCKETS
    for bucket in range(BUCKETS):
        begin = low + bucket * width
        yield from _bucket_in_order([parts[bucket] for parts in sources], folder, memory, begin, begin + width)


def _bucket_in_order(
    parts: Sequence[BucketPart], folder: _Folder, memory: int, low: float, high: float
) -> Iterator[Sample]:
    entries = (entry for part in parts for entry in part.entries())
    if sum(part.size for part in parts) > memory and high - low > 1e-12:
        again = Buckets(folder, memory, low, high)
        again.deal(entries)
        yield from _in_order([_parts(again, folder)], folder, memory, low, high)
    else:
        held = sorted(entries, key=_first)
        held.reverse()
        while held:  # frees each sample's memory as soon as possible
            yield held.pop()[1]


def _read_in_turn(
    urls: Sequence[str],
    read: Callable[[str], tuple[Iterable[Sample], Callable[[], dict[str, Any]]]],
    seed: object,
    report: Report,
) -> Iterator[Entry]:
    for shard, url in enumerate(urls):
        samples, counts = read(url)
        yield from numbered(samples, seed, shard)
        report.add(counts())


class _Folder:
    """The temporary folder, made when it is needed."""

    def __init__(self, opened: ExitStack, tmpdir: str | None, path: str = "") -> None:
        self.opened, self.tmpdir, self.path = opened, tmpdir, path

    def __call__(self) -> str:
        self.path = self.path or self.opened.enter_context(temporary_folder(self.tmpdir))
        return self.path


# -- processes ---------------------------------------------------------------------------------------


def _dealt_by_processes(
    urls: Sequence[str],
    start: Callable[[str], _Shuffler],
    processes: int,
    *,
    tmpdir: str | None,
    report: Report,
    tick: Callable[[], object],
) -> Iterator[Any]:
    with ExitStack() as opened:
        folder = opened.enter_context(temporary_folder(tmpdir))
        sizes: dict[str, list[int]] = {}
        with process_pool(processes, partial(start, folder)) as pool:
            for _, future in submitted(pool, call, enumerate(urls), workers=processes, tick=tick):
                name, total, counts = future.result()
                sizes[name] = total
                report.add(counts)
                tick()
            buckets = [(n, {name: total[n] for name, total in sizes.items()}) for n in range(BUCKETS)]
            for _, future in submitted(pool, call, buckets, workers=processes):
                for samples in read_frames(future.result()):
                    yield from samples
                os.unlink(future.result())


class _Shuffler:
    """Distributes shards over buckets, then puts buckets in order, in a worker process."""

    def __init__(
        self,
        read: Callable[[str], Any],
        seed: object,
        memory: int,
        pack: Callable[[], Pack] | None,
        folder: str,
    ) -> None:
        self.folder = _Folder(ExitStack(), None, folder)
        self.buckets = Buckets(self.folder, memory)
        self.read, self.seed = read, seed
        self.pack = pack() if pack is not None else None

    def __call__(self, job: tuple[int, str | dict[str, int]]) -> object:
        number, what = job
        return self._deal_shard(number, what) if isinstance(what, str) else self._order_bucket(number, what)

    def _deal_shard(self, shard: int, url: str) -> tuple[str, list[int], dict[str, Any]]:
        samples, counts = self.read(url)
        self.buckets.deal(numbered(samples, self.seed, shard))
        self.buckets.spill()
        return self.buckets.name, list(self.buckets.sizes), counts()

    def _order_bucket(self, bucket: int, sizes: dict[str, int]) -> str:
        """Write the samples of a bucket in order, packed or not, to a file."""
        paths = {name: os.path.join(self.folder.path, f"{bucket:02d}-{name}") for name in sizes}
        parts = [BucketPart([], path if os.path.exists(path) else "", sizes[name]) for name, path in paths.items()]
        low, high = bucket / BUCKETS, (bucket + 1) / BUCKETS
        samples = batches(_bucket_in_order(parts, self.folder, self.buckets.memory, low, high))
        ordered = os.path.join(self.folder.path, f"{bucket:02d}-ordered")
        write_frames(ordered, samples if self.pack is None else map(self.pack, samples))
        return ordered
