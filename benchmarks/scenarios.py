"""The things a library is timed at, one per function; run by versus.py in a fresh process for each round.

Both sides run the very same lines, so they use only what webdataset 1.0.2 has as well. A scenario prepares what it
needs and returns the work to be timed; the work returns the number of samples. With `--digest` the same work is done
once more, untimed, and what came out of it is hashed instead.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

Sample = dict[str, Any]
Work = Callable[[], int]


def main() -> None:
    options = parse()
    if options.scenario == "import":
        result = timed_import()
    elif options.digest:
        result = {"digest": SCENARIOS[options.scenario].digest(options)}
    else:
        result = timed(SCENARIOS[options.scenario].work(options))
    json.dump(result, sys.stdout)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario")
    parser.add_argument("shards", nargs="*")
    parser.add_argument("--output", help="folder for what is written")
    parser.add_argument("--digest", action="store_true")
    return parser.parse_args()


def timed(work: Work) -> dict[str, float]:
    wall, cpu = time.perf_counter(), cpu_seconds()
    samples = work()
    return {
        "samples": samples,
        "wall": time.perf_counter() - wall,
        "cpu": cpu_seconds() - cpu,
        "peak": peak_megabytes(),
    }


def timed_import() -> dict[str, float]:
    wall, cpu = time.perf_counter(), cpu_seconds()
    from webdataset import ShardWriter, WebDataset, WebLoader  # noqa: F401 - what is imported when it is asked for, too

    return {"samples": 1, "wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu, "peak": peak_megabytes()}


def cpu_seconds() -> float:
    """CPU time of this process and of children it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def peak_megabytes() -> float:
    """The most memory this process ever had; ru_maxrss would also count the parent's before exec."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1000 for line in status if line.startswith("VmHWM"))


# -- reading ---------------------------------------------------------------------------------------


class Reading:
    """Iterate over a dataset; every field is there as bytes, or decoded."""

    def __init__(self, field: str, stages: Callable[[Any], Any] = lambda dataset: dataset) -> None:
        self.field = field
        self.stages = stages

    def work(self, options: argparse.Namespace) -> Work:
        return partial(consume, self._dataset(options), self.field)

    def digest(self, options: argparse.Namespace) -> str:
        return digest_of(self._dataset(options))

    def _dataset(self, options: argparse.Namespace) -> Any:
        import webdataset as wds

        return self.stages(wds.WebDataset(options.shards, shardshuffle=False))


def consume(dataset: Iterable[Sample], field: str) -> int:
    samples = size = 0
    for sample in dataset:
        samples += 1
        size += len(sample[field])
    assert size > 0
    return samples


def digest_of(samples: Iterable[Sample]) -> str:
    """A hash of all keys and fields that does not depend on the order of the samples."""
    total = 0
    for sample in samples:
        digest = hashlib.sha256()
        for name in sorted(name for name in sample if name == "__key__" or not name.startswith("__")):
            digest.update(repr(name).encode() + as_bytes(sample[name]))
        total += int.from_bytes(digest.digest()[:16], "big")
    return f"{total % (1 << 128):032x}"


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else value.tobytes() if hasattr(value, "tobytes") else repr(value).encode()


# -- writing ---------------------------------------------------------------------------------------


class Writing:
    """Write samples that lie in memory as values: bytes, text, a dictionary for json, a number for cls."""

    def work(self, options: argparse.Namespace) -> Work:
        from webdataset import ShardWriter  # noqa: F401 - the import is not what is timed

        return partial(write_all, list(values_in(options.shards)), options.output)

    def digest(self, options: argparse.Namespace) -> str:
        write_all(values_in(options.shards), options.output)
        return digest_of(samples_in(sorted(glob.glob(os.path.join(options.output, "*.tar")))))


def write_all(samples: Iterable[Sample], output: str) -> int:
    import webdataset as wds

    written = 0
    with wds.ShardWriter(os.path.join(output, "out-%06d.tar"), maxcount=50_000, verbose=0) as writer:
        for sample in samples:
            writer.write(sample)
            written += 1
    return written


def values_in(shards: list[str]) -> Iterator[Sample]:
    for sample in samples_in(shards):
        sample["cls"] = int(sample["cls"])
        sample["json"] = json.loads(sample["json"])
        if "txt" in sample:
            sample["txt"] = sample["txt"].decode()
        yield sample


def samples_in(shards: list[str]) -> Iterator[Sample]:
    """Samples read by the standard library, so that a writer is not checked by its own reader."""
    for shard in shards:
        sample: Sample = {}
        with tarfile.open(shard) as archive:
            for member in archive:
                key, _, field = member.name.partition(".")
                if sample and sample["__key__"] != key:
                    yield sample
                    sample = {}
                sample["__key__"] = key
                stream = archive.extractfile(member)
                assert stream is not None
                sample[field] = stream.read()
                archive.members = []  # tarfile would remember them all
        if sample:
            yield sample


SCENARIOS: dict[str, Any] = {
    "raw-A": Reading("jpg"),
    "raw-B": Reading("txt"),
    "raw-C": Reading("npy"),
    "shuffle-B": Reading("txt", lambda dataset: dataset.shuffle(10_000)),
    "gzip-A": Reading("jpg"),
    "decode-A": Reading("jpg", lambda dataset: dataset.decode("rgb8")),
    "write-A": Writing(),
    "write-B": Writing(),
    "memory-A": Reading("jpg", lambda dataset: dataset.shuffle(1000)),
}

if __name__ == "__main__":
    main()
