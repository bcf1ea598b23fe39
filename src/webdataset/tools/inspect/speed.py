"""Measure how fast a dataset is read, decoded, mapped, shuffled and batched, and find what limits it.

One pass is timed between its stages, so that each stage's own time is known; and in the reads of the streams, where
time without CPU work is time spent waiting for the network or the disk. The first item of a stage does not count, as
it includes imports and the like.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from webdataset.filters import batched, decode, shuffle, to_tuple
from webdataset.gopen import gopen
from webdataset.handlers import close, handled, reraise_exception
from webdataset.loader import WebLoader
from webdataset.loading.choosing import Choice, chosen_workers
from webdataset.pipeline import DataPipeline
from webdataset.shardlists import SimpleShardList, split_by_worker
from webdataset.storage.urls import is_local, local_path, scheme_of
from webdataset.tariterators import tarfile_samples
from webdataset.tools.transform.mapping import flat

MOSTLY = 0.5
"""Whatever takes a larger share of the time limits the pipeline."""
READING = ("read", "first_byte", "open")
"""The stages that wait for data."""


@dataclass(frozen=True)
class SpeedTest:
    """What to measure; `function` returns a sample, a list of samples, or None to drop it."""

    decode: str | None = None
    function: Callable[[Any], Any] | None = None
    fields: str = ""
    shuffle: int = 0
    batchsize: int = 0
    count: int = 0
    seconds: float = 10.0
    concatenated: bool = False

    def stages(self) -> dict[str, Any]:
        """The stages after reading, by name."""
        stages: dict[str, Any] = {}
        if self.decode is not None:
            stages["decode"] = decode() if self.decode == "basic" else decode(self.decode)
        if self.function is not None:
            stages["map"] = partial(_mapped, self.function)
        if self.fields:
            stages["fields"] = to_tuple(self.fields)
        if self.shuffle:
            stages["shuffle"] = shuffle(self.shuffle)
        if self.batchsize:
            stages["batch"] = batched(self.batchsize) if self.fields else batched(self.batchsize, collation_fn=list)
        return stages

    def choice(self) -> Choice:
        """What kind of workers `workers="auto"` takes for these stages, and why."""
        if self.function is not None:
            return Choice("process", "the code of -m may hold the GIL")
        return chosen_workers(DataPipeline(SimpleShardList(["-"]), *self.stages().values()))

    def samples_in(self, item: Sequence[Any]) -> int:
        """How many samples one result of the last stage holds."""
        if not self.batchsize:
            return 1
        return len(item[0]) if self.fields else len(item)


class StageSpeed(NamedTuple):
    """The time of one stage by itself."""

    name: str
    seconds: float
    samples_per_second: float
    megabytes_per_second: float


class Speed(NamedTuple):
    """A measurement in this process, or with workers, whose times are added up."""

    workers: int
    samples: int
    bytes: int
    seconds: float
    """How long reading all samples took."""
    open_seconds: float
    first_byte_seconds: float
    first_sample_seconds: float
    wait_seconds: float
    """How long the pipeline waited for bytes."""
    active_seconds: float
    """How long the pipeline worked or waited for bytes; the rest of the time it waited for its consumer."""
    stages: list[StageSpeed]
    source: str
    """Where the bytes come from: network, disk or command."""

    @property
    def samples_per_second(self) -> float:
        return self.samples / max(self.seconds, 1e-9)

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / 1e6 / max(self.seconds, 1e-9)

    def bound(self) -> tuple[str, str]:
        """Return what limits it, and in which stage: ("network", "read"), ("cpu", "map") and so on."""
        own = {stage.name: stage.seconds for stage in self.stages}
        if self.wait_seconds > MOSTLY * self.active_seconds:
            return self.source, max(READING, key=lambda name: own.get(name, 0.0))
        if self.workers and self.active_seconds < MOSTLY * self.seconds * self.workers:
            return "cpu", "transfer"
        return "cpu", max(own, key=lambda name: own[name])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        bound_by, stage = self.bound()
        return self._asdict() | {
            "stages": [stage._asdict() for stage in self.stages],
            "samples_per_second": self.samples_per_second,
            "megabytes_per_second": self.megabytes_per_second,
            "bound_by": bound_by,
            "bound_in": stage,
        }


def measure(urls: list[str], test: SpeedTest) -> Speed:
    """Measure in this process."""
    run = _Run(({"url": url} for url in urls), test)
    start = time.perf_counter()
    samples, first = 0, 0.0
    try:
        for item in run:
            now = time.perf_counter()
            first = first or now - start
            samples += test.samples_in(item)
            if (test.count and samples >= test.count) or now - start > test.seconds:
                break
    finally:
        run.close()
    watch, own = run.watch, run.own_seconds()
    seconds = sum(own.values())
    stages = _speeds(own, samples, watch.bytes)
    places = (watch.open_seconds, watch.first_byte, first, watch.wait)
    return Speed(0, samples, watch.bytes, seconds, *places, seconds, stages, source_of(urls))


def measure_workers(urls: list[str], test: SpeedTest, workers: int) -> Speed:
    """Measure with the workers of a DataLoader, which also have to send their results."""
    dataset = DataPipeline(SimpleShardList(urls), split_by_worker, _Worker(test))
    loader = iter(WebLoader(dataset, batch_size=None, num_workers=workers))
    start = time.perf_counter()
    first = seconds = wait = 0.0
    samples = size = 0
    last: dict[int, dict[str, float]] = {}
    try:
        for _, count, weighed, worker, waited, own in loader:
            seconds = time.perf_counter() - start
            wait, last[worker] = wait + waited, own
            if not first:
                first = seconds
                continue  # measure the rate once the workers are running
            samples, size = samples + count, size + weighed
            if seconds > test.seconds or (test.count and samples >= test.count):
                break
    finally:
        close(loader)
    names = next(iter(last.values()), {"read": 0.0})
    own = {name: sum(times[name] for times in last.values()) for name in names}
    stages = _speeds(own, samples, size)
    active = sum(own.values())
    return Speed(workers, samples, size, seconds - first, 0.0, 0.0, first, wait, active, stages, source_of(urls))


def source_of(urls: Iterable[str]) -> str:
    """Return where the bytes come from.

    >>> source_of(["a.tar"]), source_of(["https://host/a.tar"]), source_of(["pipe:cat a.tar"])
    ('disk', 'network', 'command')
    """
    schemes = {"" if is_local(url) else scheme_of(url) or "pipe" for url in urls}
    return "disk" if schemes <= {""} else "command" if schemes <= {"", "pipe"} else "network"


def verdict(speed: Speed) -> str:
    """Say in a sentence what limits it, and what helps."""
    bound_by, stage = speed.bound()
    if bound_by == "cpu" and stage == "transfer":
        return "bound by the CPU of the main process, which receives samples from the workers; batches are cheaper"
    share = f"{speed.wait_seconds / max(speed.active_seconds, 1e-9):.0%}"
    if bound_by == "cpu":
        advice = "do less work per sample, or use more cores" if speed.workers else "workers (-P) use more cores"
        return f"bound by the CPU, in the stage {stage!r} (waiting for data {share} of the time); {advice}"
    advice = "a faster disk helps" if bound_by == "disk" else "more workers (-P) help if bandwidth is left"
    return f"bound by the {bound_by}, waiting for it {share} of the time; {advice}"


class _Run:
    """Reads shards through all stages, each of them timed."""

    def __init__(self, shards: Iterable[Any], test: SpeedTest) -> None:
        self.watch = _Watch(test.seconds)
        self.source = tarfile_samples(shards, opener=self.watch.opened, concatenated=test.concatenated)
        self.timed = {"read": _Timed(self.watch.weighed(self.source), None)}
        last = self.timed["read"]
        for name, stage in test.stages().items():
            last = self.timed[name] = _Timed(iter(stage(last)), last)
        self.last = last

    def __iter__(self) -> Iterator[Any]:
        return self.last

    def own_seconds(self) -> dict[str, float]:
        """Return the time of each stage by itself; reading is told apart into what it consists of."""
        own = {name: timed.own_seconds() for name, timed in self.timed.items()}
        spent = self.watch.spent
        return {**spent, "parse": max(own.pop("read") - sum(spent.values()), 1e-9), **own}

    def close(self) -> None:
        close(self.source)


class _Timed:
    """An iterator that knows how long its items took, and how much of that was its source's time."""

    def __init__(self, items: Iterator[Any], source: _Timed | None) -> None:
        self.items = items
        self.source = source
        self.seconds = self.first = 0.0
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        before = time.perf_counter()
        try:
            item = next(self.items)
        finally:
            self.seconds += time.perf_counter() - before
        self.count += 1
        if self.count == 1:
            self.first = self._own()
        return item

    def own_seconds(self) -> float:
        """Return the time without its source's; the first item counts like an average one."""
        own = self._own()
        if self.source is not None and self.count > 1:
            own = (own - self.first) * self.count / (self.count - 1)
        return max(own, 1e-9)

    def _own(self) -> float:
        return self.seconds - (self.source.seconds if self.source is not None else 0.0)


class _Watch:
    """Times the opening and reading of streams, and counts bytes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.start = 0.0
        self.open_seconds = self.first_byte = self.wait = 0.0
        self.spent = {"open": 0.0, "first_byte": 0.0, "read": 0.0}
        self.bytes = 0

    def opened(self, shards: Iterable[Any], handler: object) -> Iterator[Any]:  # noqa: ARG002 - as url_opener is called
        for shard in shards:
            self.start = self.start or time.perf_counter()
            stream, taken = self.timed(gopen, shard["url"])
            self.open_seconds = self.open_seconds or taken
            self.spent["open"] += taken
            opened = {**shard, "stream": _WatchedStream(stream, self)}
            path = local_path(shard["url"])
            yield opened if path is None else opened | {"local_path": path}

    def weighed(self, samples: Iterable[Any]) -> Iterator[Any]:
        for sample in samples:
            self.bytes += sum(len(value) for value in sample.values() if type(value) is bytes)
            yield sample
            if time.perf_counter() - self.start > self.seconds:  # even if no sample reaches the end of the pipeline
                return

    def timed(self, function: Callable[[Any], Any], argument: object) -> tuple[Any, float]:
        """Return the result and how long it took; time without CPU work was spent waiting."""
        before, busy = time.perf_counter(), _busy_seconds()
        result = function(argument)
        taken = time.perf_counter() - before
        self.wait += max(taken - (_busy_seconds() - busy), 0.0)
        return result, taken

    def read(self, function: Callable[[int], bytes], size: int, stage: str) -> bytes:
        data: bytes
        data, taken = self.timed(function, size)
        self.spent[stage] += taken
        if data and not self.first_byte:
            self.first_byte = time.perf_counter() - self.start
        return data


def _busy_seconds() -> float:
    """Return the CPU time of this thread, on Linux also the time for which it was ready to run but had no core."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            running, queued, _ = file.read().split()
    except (OSError, ValueError):
        return time.thread_time()
    return (int(running) + int(queued)) / 1e9


class _WatchedStream:
    """A stream whose reads are timed."""

    def __init__(self, stream: BinaryIO, watch: _Watch) -> None:
        self._stream = stream
        self._watch = watch
        self._function = getattr(stream, "read1", stream.read)
        self._stage = "first_byte"

    def read(self, size: int = -1) -> bytes:
        data = self._watch.read(self._function, size, self._stage)
        self._stage = "read"
        return data

    def close(self) -> None:
        self._stream.close()


class _Worker:
    """Runs in a worker: yields each result with its samples, bytes, and how the worker spent its time."""

    def __init__(self, test: SpeedTest) -> None:
        self.test = test

    def __call__(self, shards: Iterable[Any]) -> Iterator[tuple[Any, int, int, int, float, dict[str, float]]]:
        import os

        run = _Run(shards, self.test)
        try:
            for item in run:
                size, run.watch.bytes = run.watch.bytes, 0
                wait, run.watch.wait = run.watch.wait, 0.0
                yield item, self.test.samples_in(item), size, os.getpid(), wait, run.own_seconds()
        finally:
            run.close()


def _mapped(function: Callable[[Any], Any], samples: Iterable[Any]) -> Iterator[Any]:
    return flat(handled(samples, function, reraise_exception))


def _speeds(own: dict[str, float], samples: int, size: int) -> list[StageSpeed]:
    times = {name: max(seconds, 1e-9) for name, seconds in own.items()}
    return [StageSpeed(name, taken, samples / taken, size / 1e6 / taken) for name, taken in times.items()]
