"""How cost grows: with workers, with the number of shards, with the size of samples, with the shards of exact epochs.

compare.py runs these with the others; every point is measured in a fresh process, `python growth.py NAME VALUE FOLDER`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import data
from measure import Batches, Bytes, begin, checksum, cpu_seconds, ended, peak_megabytes

HERE = os.path.dirname(os.path.realpath(__file__))


@dataclass(frozen=True)
class Growth:
    """What grows, and through which values."""

    title: str
    unit: str
    values: tuple[int, ...]
    tiny: tuple[int, ...]
    shows: str = "rate"
    """What is plotted: the rate of samples, or of bytes, or the seconds to the first batch."""


SCENARIOS = {
    "workers": Growth("image training with 1 and 2 workers", "workers", (1, 2), (1,)),
    "shards": Growth("20,000 small samples in 10 to 10,000 shards", "shards", (10, 100, 1000, 10_000), (2, 20)),
    "sizes": Growth(
        "200 MB of samples of 1 KB to 10 MB",
        "bytes",
        (1000, 10_000, 100_000, 1_000_000, 10_000_000),
        (1000, 100_000),
        "bytes",
    ),
    "plans": Growth(
        "exact epochs over 1,000 to 1,000,000 shards of 10,000 samples",
        "shards",
        (1000, 10_000, 100_000, 1_000_000),
        (10, 1000),
        "seconds",
    ),
}


def measure(name: str, number: int, results: Any, part: float) -> None:
    """One round of every point, if it is not known yet."""
    growth = SCENARIOS[name]
    for value in growth.tiny if part < 0.1 else growth.values:
        known = results.peer(name, str(value))
        if len(known["rounds"]) <= number and not known["trouble"]:
            with tempfile.TemporaryDirectory(dir=os.path.join(HERE, ".data")) as folder:
                words = [sys.executable, os.path.realpath(__file__), name, str(value), folder, str(part)]
                done = subprocess.run(words, capture_output=True, timeout=300, check=False)
            if done.returncode:
                known["trouble"] = done.stderr.decode(errors="replace").strip().splitlines()[-1][:200]
            else:
                known["rounds"].append(json.loads(done.stdout.splitlines()[-1]))
            results.save()


# -- what is measured, in a process of its own ---------------------------------------------------


def main() -> None:
    name, value, folder, part = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    print(json.dumps(MEASURES[name](value, folder, part)))


def workers(count: int, folder: str, part: float) -> dict[str, float]:  # noqa: ARG001 - the same for all
    from peers import webloader
    from peers.case import Case

    shards = data.make(os.path.join(HERE, ".data"), part, generated=part < 0.1)["A"]
    loader = webloader.train(Case("A", "jpg", shards, "", workers=count))
    return _timed(Batches(), loader)


def shards(count: int, folder: str, part: float) -> dict[str, float]:
    import webdataset as wds

    samples = max(int(20_000 * part), count)
    with wds.ShardWriter(f"{folder}/%06d.tar", maxcount=max(1, samples // count), verbose=0) as writer:
        for n in range(samples // count * count):
            writer.write({"__key__": f"{n:08d}", "txt": "x" * 300, "cls": n})
    urls = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".tar"))
    return _timed(Bytes(), (sample["txt"] for sample in wds.WebDataset(urls, shardshuffle=False)))


def sizes(size: int, folder: str, part: float) -> dict[str, float]:
    import webdataset as wds

    samples = max(1, int(200e6 * part) // size)
    with wds.TarWriter(f"{folder}/a.tar") as writer:
        for n in range(samples):
            writer.write({"__key__": f"{n:08d}", "bin": os.urandom(1000) * (size // 1000)})
    data.warm(f"{folder}/a.tar")
    return _timed(Bytes(), (sample["bin"] for sample in wds.WebDataset(f"{folder}/a.tar", shardshuffle=False)))


def plans(count: int, folder: str, part: float) -> dict[str, float]:
    """Construction, length and first batch: all shards are one file, which the list has under many numbers."""
    import webdataset as wds
    from webdataset.indices.catalogue import Catalogue, Shard

    path = f"{folder}/a.tar"
    samples = max(64, int(10_000 * part))
    with wds.TarWriter(path) as writer:
        for n in range(samples):
            writer.write({"__key__": f"{n:08d}", "cls": n})
    size = os.path.getsize(path)
    before = peak_megabytes()
    wall = time.perf_counter()
    catalogue = Catalogue([Shard(path, samples, size)] * count)
    dataset = wds.WebDataset(catalogue, exact=True).batched(64)
    built = time.perf_counter() - wall
    length = len(dataset)
    counted = time.perf_counter() - wall
    next(iter(dataset))
    first = time.perf_counter() - wall
    figures = {"built": built, "length": counted - built, "first": first - counted, "batches": length}
    return figures | {
        "samples": samples * count,
        "wall": first,
        "cpu": cpu_seconds(),
        "peak": peak_megabytes() - before,
    }


def _timed(found: Bytes, items: Iterable[Any]) -> dict[str, float]:
    checksum(bytes(10_000))  # imports numpy
    begun = begin()
    found.take(items)
    return ended(begun) | {"samples": found.samples, "bytes": found.bytes, "first": 0.0}


MEASURES = {"workers": workers, "shards": shards, "sizes": sizes, "plans": plans}

if __name__ == "__main__":
    main()
