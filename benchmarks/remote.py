"""What it costs a trainer to receive batches from other processes: `python benchmarks/remote.py [--quick]`.

The receiver's CPU seconds per GB, with every batch copied out into memory of the receiver's own (a batch that is not
touched flatters those that map memory), and the rate: RemoteLoader, the same frames over bare pyzmq, and torch's
DataLoader with two worker processes. Producers make four batches ahead (and one for each feed), as bare pyzmq has four
in its queues, not the 256 MiB of the default; batches before memory is reused do not count. Ways take turns, each
figure is the median; on a machine that others use, trust ratios and CPU time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import webdataset as wds
from webdataset.base.memory import large_array
from webdataset.base.reports import Report
from webdataset.base.stages import start
from webdataset.epochs.order import OrderSettings
from webdataset.exact.program import ExactShards, ExactSource, Program
from webdataset.filters import batched
from webdataset.indices.catalogue import Catalogue
from webdataset.remote.making import ServedPlan

FIRST, WARM = 20, 60
"""Batches before those that count: until feeds and processes are open, and until all memory is in use."""
CONTEXT = multiprocessing.get_context("forkserver")


class Fresh:
    """Makes a new batch of this many bytes, whatever the samples are, in reused memory as `batched` does by itself."""

    def __init__(self, size: int, work: float = 0.0) -> None:
        self.size = size
        self.work = work

    def __call__(self, samples: Any) -> Any:
        time.sleep(self.work)
        batch = large_array((self.size,), np.uint8)
        batch.fill(len(samples))
        return (batch, np.arange(len(samples)))


def pipeline(folder: str, size: int, work: float = 0.0) -> Any:
    dataset = wds.WebDataset(f"{folder}/a.tar", exact=True, seed=1)
    return dataset.to_tuple("__key__").batched(4, collation_fn=Fresh(size, work))


def serve(folder: str, size: int, url: str, work: float, bound: Any) -> None:
    wds.serve(pipeline(folder, size, work), url, threads=1, ahead=4 * size, bound=bound.send)


def push(size: int, count: int, url: str, bound: Any) -> None:
    import zmq

    socket = zmq.Context().socket(zmq.PUSH)
    socket.setsockopt(zmq.SNDHWM, 4)
    if url.endswith(":0"):
        url = f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
    else:
        socket.bind(url)
    bound.send(url)
    for number in range(count):
        socket.send_multipart([b"header" * 20, np.full(size, number % 200, np.uint8)], copy=False)
    socket.close(linger=60_000)
    time.sleep(60)


def started(target: Any, *args: Any) -> tuple[Any, str]:
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=target, args=(*args, there), daemon=True)
    process.start()
    url: str = here.recv()
    return process, url


def measured(arrays: Any, size: int, count: int) -> tuple[float, float]:
    """CPU seconds per GB, and GB/s; the first batches, for which feeds and processes are opened, do not count."""
    room = np.empty(size, np.uint8)
    for _ in range(WARM):
        room[:] = np.asarray(next(arrays))
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        room[:] = np.asarray(next(arrays))
    gigabytes = size * count / 1e9
    return (time.process_time() - cpu) / gigabytes, gigabytes / (time.perf_counter() - begun)


def by_loader(folder: str, size: int, count: int, url: str, producers: int = 2) -> tuple[float, float]:
    urls = [url.replace("@", str(number)) for number in range(producers)]
    running = [started(serve, folder, size, one, 0.0) for one in urls]
    loader = wds.RemoteLoader([found for _, found in running], budget=256 << 20)
    result = measured((batch[0] for batch in loader), size, count)
    loader.close()
    for process, _ in running:
        process.kill()
    return result


def by_pyzmq(_folder: str, size: int, count: int, url: str) -> tuple[float, float]:
    import zmq

    process, found = started(push, size, count + WARM, url.replace("@", "z"))
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.setsockopt(zmq.RCVHWM, 4)
    socket.connect(found)
    frames = (np.frombuffer(socket.recv_multipart(copy=False)[1].buffer, np.uint8) for _ in iter(int, 1))
    result = measured(frames, size, count)
    socket.close(linger=0)
    context.term()
    process.kill()
    return result


class Endless:
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, number: int) -> Any:
        import torch

        return torch.from_numpy(np.full(self.size, number % 200, np.uint8))


def by_torch(_folder: str, size: int, count: int, _url: str) -> tuple[float, float]:
    from torch.utils.data import DataLoader

    batches = iter(DataLoader(Endless(size), batch_size=None, num_workers=2))  # type: ignore[arg-type]
    result = measured(batches, size, count)
    batches._shutdown_workers()  # type: ignore[attr-defined]
    return result


WAYS = {"RemoteLoader": by_loader, "bare pyzmq": by_pyzmq, "torch DataLoader, 2 workers": by_torch}


def rates(folder: str, *, repeat: int, count: int) -> None:
    print("size     over  way                            CPU s/GB    GB/s  of pyzmq's (wanted: >= 80 %)")
    for size in (9_600_000, 20_000_000):
        for over, url in (("ipc", f"ipc://{folder}/s@"), ("tcp", "tcp://127.0.0.1:0")):
            found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
            for _ in range(repeat):
                for way, measure in WAYS.items():
                    found[way].append(measure(folder, size, count, url))
            for way, pairs in found.items():
                cpu, rate = (statistics.median(column) for column in zip(*pairs, strict=True))
                bare = [pair[1] for pair in found["bare pyzmq"]]
                part = statistics.median(pair[1] / base for pair, base in zip(pairs, bare, strict=True))
                print(f"{size / 1e6:4.1f} MB  {over:<4}  {way:<30} {cpu:8.2f} {rate:7.2f} {part:6.0%}", flush=True)


def scaling(folder: str, *, repeat: int) -> None:
    """Two producers against one, where making a batch takes 50 ms, of waiting: this machine has no core for each."""
    found: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeat):
        for producers, rates_of in found.items():
            urls = [started(serve, folder, 100_000, "tcp://127.0.0.1:0", 0.05) for _ in range(producers)]
            loader = wds.RemoteLoader([url for _, url in urls])
            batches = iter(loader)
            for _ in range(FIRST):
                next(batches)
            begun = time.perf_counter()
            for _ in range(40):
                next(batches)
            rates_of.append(40 / (time.perf_counter() - begun))
            loader.close()
            for process, _ in urls:
                process.kill()
    one, two = (statistics.median(found[number]) for number in (1, 2))
    print(f"50 ms of waiting per batch: one producer {one:.1f} batches/s, two {two:.1f}: {two / one:.2f} x (wanted: 2)")


def deaths(folder: str, *, repeat: int) -> None:
    """How long a trainer that wants batches at once waits for the next one after one of three producers is gone."""
    for name, number in (("killed", signal.SIGKILL), ("stopped, timeout 1.5 s", signal.SIGSTOP)):
        waits = []
        for _ in range(repeat):
            running = [started(serve, folder, 100_000, "tcp://127.0.0.1:0", 0.001) for _ in range(3)]
            loader = wds.RemoteLoader([url for _, url in running], timeout=1.5, budget=300_000)
            batches = iter(loader)
            for _ in range(3 * FIRST):
                next(batches)
            os.kill(running[1][0].pid, number)
            longest = 0.0
            for _ in range(2 * FIRST):  # the batches of the feeds that it had are among them
                begun = time.perf_counter()
                next(batches)
                longest = max(longest, time.perf_counter() - begun)
            waits.append(longest)
            loader.close()
            for process, _ in running:
                process.kill()
        wait = statistics.median(waits)
        print(f"a producer is {name}: the longest wait for a batch is {wait:.2f} s (wanted <= 0.5 + the timeout)")


def seeking() -> None:
    """A place in the middle of 100 million samples."""
    catalogue = Catalogue([(f"train-{n:06d}.tar", 10_000, 1_500_000_000, None) for n in range(10_000)])
    source = ExactShards(catalogue, settings=OrderSettings(seed=3), rank=0, world_size=1)
    for _ in range(2):
        plan = ServedPlan(Program([ExactSource(source, [])], [batched(32)]), start)
        cpu = time.process_time()
        outline = plan.outline(epoch=0, start=0, feeds=16, order=16, rank=0, world=1)
        at = outline.at(outline.steps // 2)
        next(plan.run(16, 0, at, Report())._feed._wanted(at.step))
        print(f"the middle of 100 million samples: found in {time.process_time() - cpu:.2f} CPU s (wanted <= 0.5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer batches, one repetition")
    options = parser.parse_args()
    repeat, count = (1, 40) if options.quick else (3, 100)
    with tempfile.TemporaryDirectory() as folder:
        with wds.TarWriter(str(Path(folder) / "a.tar")) as writer:
            for number in range(2000):
                writer.write({"__key__": f"{number:05d}", "cls": number})
        seeking()
        deaths(folder, repeat=repeat)
        scaling(folder, repeat=repeat)
        rates(folder, repeat=repeat, count=count)


if __name__ == "__main__":
    main()
