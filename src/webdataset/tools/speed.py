"""How fast a dataset is read, decoded, mapped, shuffled and batched, and what bounds it.

One pass is timed at the borders of its stages, so that each stage's own time is known; and in the reads of the
streams, where the time that passes without work for the CPU is time spent waiting for the network or the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from webdataset.dataset import WebDataset
from webdataset.filters import batched, decode, map, shuffle, to_tuple
from webdataset.gopen import gopen
from webdataset.loader import WebLoader
from webdataset.shardlists import SimpleShardList
from webdataset.storage.urls import is_local, local_path, scheme_of
from webdataset.tariterators import tarfile_samples

MOSTLY = 0.5
"""A share of the time above this is what bounds a pipeline."""


@dataclass(frozen=True)
class Plan:
    """What is done with the samples."""

    decode: str | None = None
    function: Callable[[Any], Any] | None = None
    fields: str = ""
    shuffle: int = 0
    batchsize: int = 0
    count: int = 0
    seconds: float = 10.0

    def stages(self) -> dict[str, Any]:
        """The stages after reading, by name."""
        stages = {}
        if self.decode is not None:
            stages["decode"] = decode() if self.decode == "basic" else decode(self.decode)
        if self.function is not None:
            stages["map"] = map(self.function)
        if self.fields:
            stages["fields"] = to_tuple(self.fields)
        if self.shuffle:
            stages["shuffle"] = shuffle(self.shuffle)
        if self.batchsize:
            stages["batch"] = batched(self.batchsize) if self.fields else batched(self.batchsize, collation_fn=list)
        return stages


class StageSpeed(NamedTuple):
    """What one stage took by itself."""

    name: str
    seconds: float
    samples_per_second: float
    megabytes_per_second: float


class Speed(NamedTuple):
    """What was measured, in this process or with workers."""

    workers: int
    samples: int
    bytes: int
    seconds: float
    open_seconds: float
    first_byte_seconds: float
    first_sample_seconds: float
    wait_seconds: float
    cpu_seconds: float
    stages: list[StageSpeed]
    source: str
    """"network", "disk" or "command": what the bytes come from."""

    @property
    def samples_per_second(self) -> float:
        return self.samples / max(self.seconds, 1e-9)

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / 1e6 / max(self.seconds, 1e-9)

    def bound(self) -> tuple[str, str]:
        """What bounds it, and in which stage: ("network", "read"), ("cpu", "map") and so on."""
        if not self.stages:
            # a worker that waits for its source uses no CPU
            cores = min(self.workers, os.cpu_count() or 1)
            busy = self.cpu_seconds / max(self.seconds * cores, 1e-9)
            return ("cpu", "workers") if busy > MOSTLY else (self.source, "read")
        if self.wait_seconds > MOSTLY * self.seconds:
            return self.source, "read"
        own = {stage.name: stage.seconds for stage in self.stages}
        own["read"] = max(own["read"] - self.wait_seconds, 0.0)
        return "cpu", max(own, key=lambda name: own[name])

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        bound_by, stage = self.bound()
        return self._asdict() | {
            "stages": [stage._asdict() for stage in self.stages],
            "samples_per_second": self.samples_per_second,
            "megabytes_per_second": self.megabytes_per_second,
            "bound_by": bound_by,
            "bound_in": stage,
        }


def measure(urls: list[str], plan: Plan, *, clock: Callable[[], float] = time.perf_counter) -> Speed:
    """Read in this process, with a look at every stage."""
    watch = _Watch(clock)
    source: Iterator[Any] = tarfile_samples(({"url": url} for url in urls), opener=watch.opened)
    timed = {"read": _Timed(watch.weighed(source), clock)}
    last: Iterator[Any] = timed["read"]
    for name, stage in plan.stages().items():
        timed[name] = _Timed(iter(stage(last)), clock)
        last = timed[name]
    start, cpu = clock(), time.process_time()
    try:
        samples, first = _drained(last, plan, watch, clock, start)
    finally:
        source.close()  # type: ignore[attr-defined]
    seconds = clock() - (watch.start or start)
    cpu = time.process_time() - cpu
    stages = _own_times(timed, samples, watch.bytes)
    return Speed(
        0, samples, watch.bytes, seconds, watch.open_seconds, watch.first_byte, first, watch.wait, cpu, stages,
        source_of(urls),
    )  # fmt: skip


def measure_workers(urls: list[str], plan: Plan, workers: int) -> Speed:
    """Read with the workers of a DataLoader."""
    dataset = WebDataset(SimpleShardList(urls), empty_check=False, shardshuffle=False, nodesplitter=None)
    loader = WebLoader(dataset.compose(_Worker(plan)), batch_size=None, num_workers=workers)
    before = os.times()
    start = time.perf_counter()
    first, samples, size = 0.0, 0, 0
    batches = iter(loader)
    try:
        for _, count, weighed in batches:
            first = first or time.perf_counter() - start
            samples += count
            size += weighed
            if time.perf_counter() - start > plan.seconds or (plan.count and samples >= plan.count):
                break
    finally:
        seconds = time.perf_counter() - start
        batches.close()  # type: ignore[attr-defined]  # ends the workers
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Speed(workers, samples, size, seconds, 0.0, 0.0, first, 0.0, cpu, [], source_of(urls))


def source_of(urls: Iterable[str]) -> str:
    """What the bytes come from.

    >>> source_of(["a.tar"]), source_of(["https://host/a.tar"]), source_of(["pipe:cat a.tar"])
    ('disk', 'network', 'command')
    """
    schemes = {"" if is_local(url) else scheme_of(url) or "pipe" for url in urls}
    return "disk" if schemes <= {""} else "command" if schemes <= {"", "pipe"} else "network"


def verdict(speed: Speed) -> str:
    """What bounds it, in a sentence, with the cure."""
    bound_by, stage = speed.bound()
    if bound_by == "cpu":
        where = "with all workers busy" if stage == "workers" else f"in the stage {stage!r}"
        advice = "more cores, or less work a sample" if speed.workers else "workers (-P) share it between cores"
        return f"bound by the CPU, {where}; {advice}"
    waited = f", waiting for it {speed.wait_seconds / max(speed.seconds, 1e-9):.0%} of the time" if speed.stages else ""
    advice = "a faster disk or larger reads" if bound_by == "disk" else "more workers (-P) help if each gets a share"
    return f"bound by the {bound_by}{waited}; {advice}"


class _Watch:
    """Sees streams being opened and read, and samples passing."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.start: float | None = None
        self.open_seconds = self.first_byte = self.wait = 0.0
        self.bytes = 0
        self.opens = 0

    def opened(self, shards: Iterable[Any], handler: Any) -> Iterator[Any]:  # noqa: ARG002 - as url_opener is called
        for shard in shards:
            before, cpu = self.clock(), time.thread_time()
            self.start = self.start or before
            stream = gopen(shard["url"])
            taken = self.clock() - before
            if not self.opens:
                self.open_seconds = taken
            self.opens += 1
            self.wait += max(taken - (time.thread_time() - cpu), 0.0)
            path = local_path(shard["url"])
            opened = {**shard, "stream": _WatchedStream(stream, self)}
            yield opened if path is None else opened | {"local_path": path}

    def weighed(self, samples: Iterable[Any]) -> Iterator[Any]:
        for sample in samples:
            self.bytes += weight(sample)
            yield sample

    def read(self, function: Callable[[int], bytes], size: int) -> bytes:
        before, cpu = self.clock(), time.thread_time()
        data = function(size)
        after = self.clock()
        # the CPU is busy with copying; the rest of the time it waited
        self.wait += max(after - before - (time.thread_time() - cpu), 0.0)
        if data and not self.first_byte:
            self.first_byte = after - (self.start or before)
        return data


class _WatchedStream:
    """A stream whose reads are timed."""

    def __init__(self, stream: Any, watch: _Watch) -> None:
        self._stream = stream
        self._watch = watch
        self._function = getattr(stream, "read1", stream.read)

    def read(self, size: int = -1) -> bytes:
        return self._watch.read(self._function, size)

    def close(self) -> None:
        self._stream.close()


class _Timed:
    """An iterator that knows how long its items took to come."""

    def __init__(self, items: Iterator[Any], clock: Callable[[], float]) -> None:
        self.items = items
        self.clock = clock
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        before = self.clock()
        try:
            return next(self.items)
        finally:
            self.seconds += self.clock() - before


def weight(sample: Any) -> int:
    """The bytes of a sample as it is stored."""
    return sum(len(value) for value in sample.values() if isinstance(value, bytes))


def _drained(
    items: Iterator[Any], plan: Plan, watch: _Watch, clock: Callable[[], float], start: float
) -> tuple[int, float]:
    """How many samples came, and when the first did."""
    samples, first = 0, 0.0
    for item in items:
        first = first or clock() - (watch.start or start)
        samples += len(item) if plan.batchsize else 1
        if (plan.count and samples >= plan.count) or clock() - start > plan.seconds:
            break
    return samples, first


def _own_times(timed: dict[str, _Timed], samples: int, size: int) -> list[StageSpeed]:
    speeds, before = [], 0.0
    for name, stage in timed.items():
        own = max(stage.seconds - before, 1e-9)
        speeds.append(StageSpeed(name, own, samples / own, size / 1e6 / own))
        before = stage.seconds
    return speeds


class _Worker:
    """The stages of a plan in a worker; what comes home is (samples or a batch, how many, of how many bytes)."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __call__(self, samples: Iterator[Any]) -> Iterator[tuple[Any, int, int]]:
        watch = _Watch(time.perf_counter)
        items: Iterator[Any] = watch.weighed(samples)
        for stage in self.plan.stages().values():
            items = iter(stage(items))
        for item in items:
            size, watch.bytes = watch.bytes, 0
            yield item, len(item) if self.plan.batchsize else 1, size
