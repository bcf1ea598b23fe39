"""Functions that runs call in other processes, and shards for them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import webdataset as wds
from tests_support import tar_bytes

PYTHON = [sys.executable, "-m", "webdataset"]


def make_inputs(folder: Path, count: int, samples: int = 3) -> list[tuple[str, str]]:
    """Write small shards, and return pairs of inputs and outputs."""
    for number in range(count):
        files = [(f"{number:03d}{i:03d}.{field}", b"%d" % i) for i in range(samples) for field in ("cls", "txt")]
        (folder / f"in-{number:03d}.tar").write_bytes(tar_bytes(files))
    return [(str(folder / f"in-{n:03d}.tar"), str(folder / f"out-{n:03d}.tar")) for n in range(count)]


def doubled(source: str, target: str) -> int:
    """A shard with twice the classes; notes each call beside its input."""
    with open(f"{source}.calls", "a") as file:
        file.write("called\n")
    count = 0
    with wds.TarWriter(target) as sink:
        for sample in wds.WebDataset(source, shardshuffle=False).decode():
            sink.write({"__key__": sample["__key__"], "cls": 2 * sample["cls"], "txt": sample["txt"]})
            count += 1
    return count


def slowly_doubled(source: str, target: str) -> int:
    """The same, in a while."""
    time.sleep(0.03)
    return doubled(source, target)


def fails_for_one(source: str, target: str) -> int:
    """The same, but not for shard 1."""
    if "in-001" in source:
        raise ValueError("of my own")
    return doubled(source, target)


def kills_itself_for_one(source: str, target: str) -> int:
    """The same, but shard 1 kills who does it."""
    if "in-001" in source:
        os.kill(os.getpid(), signal.SIGKILL)
    return doubled(source, target)


def kills_its_worker_for_one(source: str, target: str) -> int:
    """The same, but shard 1 kills the worker of the cluster, as one does that takes all of the memory."""
    if "in-001" in source:
        with open(f"{source}.begun", "a") as file:
            file.write("begun\n")
        worker = os.getppid()
        os.kill(worker, signal.SIGKILL)
        while os.getppid() == worker:
            time.sleep(0.01)
        os._exit(1)
    return doubled(source, target)


def hangs_for_one(source: str, target: str) -> int:
    """The same, but shard 1 never ends."""
    if "in-001" in source:
        signal.pause()
    return doubled(source, target)


def kills_itself_once(source: str, target: str) -> int:
    """The same, but each shard kills who does it first, after it has begun to write."""
    if not os.path.exists(f"{source}.begun"):
        Path(f"{source}.begun").touch()
        Path(target).write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    return doubled(source, target)


def allocates_for_one(source: str, target: str) -> int:
    """The same, but shard 1 wants two GiB."""
    if "in-001" in source:
        len(bytearray(b"1") * (2 << 30))
    return doubled(source, target)


def fills_the_disk(source: str, target: str) -> None:
    """A disk that is full."""
    with open("/dev/full", "wb", buffering=0) as full:
        full.write(b"more")


def calls_of(source: str) -> int:
    """How often a shard was done."""
    path = Path(f"{source}.calls")
    return len(path.read_text().splitlines()) if path.exists() else 0
