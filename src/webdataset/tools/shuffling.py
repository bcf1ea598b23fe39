"""All samples of a dataset in random order, also when they are larger than memory.

Every sample gets a random number, drawn from the seed and its shard. Pass one deals the samples into buckets by that
number; pass two sorts one bucket after the other by it, in memory. So the order is the same for any amount of memory
and any number of processes.

>>> samples = [{"__key__": str(n)} for n in range(6)]
>>> [sample["__key__"] for sample in shuffle_samples(seed=1)(samples)]
['0', '5', '4', '1', '2', '3']
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from operator import itemgetter
from typing import Any

from webdataset.handlers import close
from webdataset.reports import Report, current_report
from webdataset.stages import pipelinefilter
from webdataset.workers import make_seed

from .parallel import process_pool, submitted
from .spilling import Entry, read_entries, size_of, temporary_folder, write_entries

DEFAULT_MEMORY = 200_000_000
BUCKETS = 64

Sample = dict[str, Any]
_first = itemgetter(0)


@pipelinefilter
def shuffle_samples(
    data: Iterable[Sample], *, seed: Any = 0, memory: int = DEFAULT_MEMORY, tmpdir: str | None = None
) -> Iterator[Sample]:
    """All samples of a stream in an order that is a function of the seed; at most about `memory` bytes are held."""
    with_numbers = numbered(data, seed, 0)
    return _dealt(with_numbers, memory, tmpdir)


def shuffle_shards(
    urls: Sequence[str],
    read: Callable[[str], tuple[Iterable[Sample], Callable[[], dict[str, Any]]]],
    *,
    seed: Any = 0,
    memory: int = DEFAULT_MEMORY,
    processes: int = 0,
    tmpdir: str | None = None,
) -> Iterator[Sample]:
    """All samples of some shards in random order; `processes` read them at once.

    `read(url)` gives a shard's samples, and a function that gives its counts when it was read.
    """
    report = current_report()
    if processes > 1 and len(urls) > 1:
        return _dealt_by_processes(urls, read, seed, memory, processes, tmpdir=tmpdir, report=report)
    return _dealt(_read_in_turn(urls, read, seed, report), memory, tmpdir)


def numbered(samples: Iterable[Sample], seed: Any, shard: int) -> Iterator[Entry]:
    """Samples with their random numbers."""
    draw = random.Random(make_seed(seed, shard)).random
    source = iter(samples)
    try:
        for sample in source:
            yield draw(), sample
    finally:
        close(source)


class Buckets:
    """Entries dealt by their numbers, which lie between `low` and `high`; what is too much for memory goes to files."""

    def __init__(self, folder: Callable[[], str], memory: int, low: float = 0.0, high: float = 1.0) -> None:
        self.folder = folder
        self.memory = memory
        self.low, self.width = low, (high - low) / BUCKETS
        self.held: list[list[Entry]] = [[] for _ in range(BUCKETS)]
        self.sizes = [0] * BUCKETS
        self.size = 0
        self.name = f"{low!r}-{high!r}-{os.getpid()}"

    def deal(self, entries: Iterable[Entry]) -> None:
        """Take entries in."""
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
        """Write all that is held to the buckets' files."""
        for bucket, entries in enumerate(self.held):
            if entries:
                write_entries(self.path(bucket), entries, "ab")
                self.held[bucket] = []
        self.size = 0

    def path(self, bucket: int) -> str:
        return os.path.join(self.folder(), f"{bucket:02d}-{self.name}")

    def files(self) -> list[str]:
        """The file of each bucket, empty if it has none."""
        if not any(self.sizes):
            return [""] * BUCKETS
        paths = [self.path(bucket) for bucket in range(BUCKETS)]
        return [path if os.path.exists(path) else "" for path in paths]


class Part:
    """One bucket's entries from one source: what is in memory, a file, and how much memory all of it takes."""

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


def _parts(buckets: Buckets, folder: _Folder) -> list[Part]:
    files = buckets.files() if folder.path else [""] * BUCKETS
    return [Part(*part) for part in zip(buckets.held, files, buckets.sizes, strict=True)]


def _in_order(sources: Sequence[list[Part]], folder: _Folder, memory: int, low: float, high: float) -> Iterator[Sample]:
    """The samples of all buckets, one bucket after the other; one that is too large is dealt again."""
    width = (high - low) / BUCKETS
    for bucket in range(BUCKETS):
        parts = [parts[bucket] for parts in sources]
        begin = low + bucket * width
        entries = (entry for part in parts for entry in part.entries())
        if sum(part.size for part in parts) > memory and width > 1e-12:
            again = Buckets(folder, memory, begin, begin + width)
            again.deal(entries)
            yield from _in_order([_parts(again, folder)], folder, memory, begin, begin + width)
        else:
            held = sorted(entries, key=_first)
            held.reverse()
            while held:  # each sample's memory is free as soon as it is gone
                yield held.pop()[1]


def _read_in_turn(urls: Sequence[str], read: Any, seed: Any, report: Report) -> Iterator[Entry]:
    for shard, url in enumerate(urls):
        samples, counts = read(url)
        yield from numbered(samples, seed, shard)
        report.add(counts())


class _Folder:
    """The temporary folder, made when it is first needed."""

    def __init__(self, opened: ExitStack, tmpdir: str | None) -> None:
        self.opened, self.tmpdir, self.path = opened, tmpdir, ""

    def __call__(self) -> str:
        self.path = self.path or self.opened.enter_context(temporary_folder(self.tmpdir))
        return self.path


# -- processes ---------------------------------------------------------------------------------------


def _dealt_by_processes(
    urls: Sequence[str], read: Any, seed: Any, memory: int, processes: int, *, tmpdir: str | None, report: Report
) -> Iterator[Sample]:
    with ExitStack() as opened:
        folder = _Folder(opened, tmpdir)
        sizes: dict[str, list[int]] = {}
        share = memory // processes
        with process_pool(processes, _start, folder(), read, seed, share) as pool:
            for _, future in submitted(pool, _deal_shard, enumerate(urls), workers=processes):
                name, total, counts = future.result()
                sizes[name] = total
                report.add(counts)
        sources = [_parts_of(folder(), name, total) for name, total in sizes.items()]
        yield from _in_order(sources, folder, memory, 0.0, 1.0)


def _parts_of(folder: str, name: str, sizes: list[int]) -> list[Part]:
    paths = [os.path.join(folder, f"{bucket:02d}-{name}") for bucket in range(BUCKETS)]
    return [Part([], path if os.path.exists(path) else "", size) for path, size in zip(paths, sizes, strict=True)]


class _Worker:
    """What a worker process was started with."""

    buckets: Buckets
    read: Callable[[str], Any]
    seed: Any


def _start(folder: str, read: Callable[[str], Any], seed: Any, memory: int) -> None:
    _Worker.buckets = Buckets(lambda: folder, memory)
    _Worker.read = staticmethod(read)
    _Worker.seed = seed


def _deal_shard(job: tuple[int, str]) -> tuple[str, list[int], dict[str, Any]]:
    shard, url = job
    samples, counts = _Worker.read(url)
    buckets = _Worker.buckets
    buckets.deal(numbered(samples, _Worker.seed, shard))
    buckets.spill()
    return buckets.name, list(buckets.sizes), counts()
