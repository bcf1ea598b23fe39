"""What an engine costs: the same function over the same shards by a bare multiprocessing.Pool(2) and by each engine.

    python benchmarks/engines.py [--shards 100] [--megabytes 10] [--rounds 3] [--folder /dev/shm]
                                 [local dask ray plan raydata slurm]

Rounds are interleaved, so that what else happens on the machine concerns all alike; a figure is the median of the
ratios to the Pool of the same round, by wall time, and by the CPU time of all processes, those of the clusters
included. Clusters are started before, and one after the other. Copying is the least that a function can do, 10 ms of
CPU for 10 MB, to which the checksum of a record adds one; compressing the fields is work. `plan` makes a plan of a
million items. `raydata` reads 20,000 small records and 5,000 large ones by Ray's own read_webdataset and by
`wds.read_ray`. `slurm`, which is not among those by default, needs SLURM_CONF and does 1,000 shards of 1 MB in tasks of
50.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import webdataset as wds

Pairs = list[tuple[str, str]]
Function = Callable[[str, str], int]


def copied(source: str, target: str) -> int:
    """Read a shard and write it again."""
    count = 0
    with wds.TarWriter(target) as sink:
        for sample in wds.WebDataset(source, shardshuffle=False):
            sink.write({"__key__": sample["__key__"], "bin": sample["bin"], "cls": sample["cls"]})
            count += 1
    return count


def make_shards(folder: str, count: int, megabytes: float) -> list[str]:
    """Ten different shards, and links to them."""
    paths = []
    generator = np.random.default_rng(0)
    for number in range(count):
        path = f"{folder}/in-{number:04d}.tar"
        if number < 10:
            with wds.TarWriter(path) as sink:
                for key in range(100):
                    data = generator.bytes(int(megabytes * 1e4))
                    sink.write({"__key__": f"{key:04d}", "bin": data, "cls": key})
        else:
            os.link(paths[number % 10], path)
        paths.append(path)
    return paths


def compressed(source: str, target: str) -> int:
    """Compress each field."""
    count = 0
    with wds.TarWriter(target) as sink:
        for sample in wds.WebDataset(source, shardshuffle=False):
            data = zlib.compress(sample["bin"], 1)
            sink.write({"__key__": sample["__key__"], "bin.z": data, "cls": sample["cls"]})
            count += 1
    return count


WORK = {"copy": copied, "compress": compressed}
WANTED = {"local": 1.05, "dask": 1.15, "ray": 1.15}
"""The most wall time, as a multiple of the Pool's."""


def by_pool(function: Function) -> Callable[[Pairs], None]:
    def run(pairs: Pairs) -> None:
        with multiprocessing.Pool(2) as pool:
            assert sum(pool.starmap(function, pairs, chunksize=1)) == 100 * len(pairs)

    return run


def on(function: Function, engine: str, **options: Any) -> Callable[[Pairs], None]:
    def run(pairs: Pairs) -> None:
        found = wds.distributed_map_unordered(function, pairs, on=engine, workers=2, redo="all", **options)
        assert sum(found) == 100 * len(pairs)

    return run


def measured(run: Callable[[Pairs], None], pairs: Pairs) -> tuple[float, float]:
    """Wall and CPU seconds."""
    begun, before = time.perf_counter(), cpu_seconds()
    run(pairs)
    return time.perf_counter() - begun, cpu_seconds() - before


def cpu_seconds() -> float:
    """Of this process, and of all that it has started, directly or not; from /proc, as clusters do not end."""
    parents, seconds = {}, {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            facts = file.read().rpartition(")")[2].split()
            parents[int(name)] = int(facts[1])
            seconds[int(name)] = sum(map(int, facts[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds[process] for process in seconds if _is_ours(process, parents))


def _is_ours(process: int, parents: dict[int, int]) -> bool:
    while process in parents and process != os.getpid():
        process = parents[process]
    return process == os.getpid()


@contextlib.contextmanager
def started(engine: str) -> Iterator[dict[str, Any]]:
    """Start the cluster of an engine; yields the options that name it."""
    with contextlib.ExitStack() as opened:
        found: dict[str, Any] = {}
        if engine == "dask":
            from distributed import LocalCluster

            cluster = opened.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None))
            found["address"] = cluster.scheduler_address
        if engine == "ray":
            import ray

            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
            opened.callback(ray.shutdown)
        yield found


def compare(options: argparse.Namespace, folder: str) -> None:
    """Each engine against the Pool; `local` first, as it starts slower beside the threads that a cluster leaves."""
    sources = make_shards(folder, options.shards, options.megabytes)
    os.mkdir(f"{folder}/out")
    pairs = [(source, f"{folder}/out/{os.path.basename(source)}") for source in sources]
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"{options.shards} shards of {options.megabytes:g} MB, median of {options.rounds} rounds, {load}")
    print("work      engine  Pool s  wall s  x Pool  wanted    CPU x Pool")
    for engine in (name for name in WANTED if name in options.what):
        with started(engine) as own:
            for work, function in WORK.items():
                times: list[tuple[float, ...]] = []
                for number in range(options.rounds + 1):
                    found = (*measured(by_pool(function), pairs), *measured(on(function, engine, **own), pairs))
                    if number:  # in the first round, files and processes are new
                        times.append(found)
                    shutil.rmtree(f"{folder}/out/.runs", ignore_errors=True)
                print(row(engine, work, times))


def row(engine: str, work: str, times: list[tuple[float, ...]]) -> str:
    """What rounds took: wall and CPU time of the Pool, and of the engine."""
    pool, wall = (statistics.median(each[column] for each in times) for column in (0, 2))
    ratio, cpu = (statistics.median(each[column + 2] / each[column] for each in times) for column in (0, 1))
    wanted = f"<= {WANTED[engine]:.2f}"
    return f"{work:<9} {engine:<6} {pool:7.2f} {wall:7.2f} {ratio:7.2f}  {wanted:<8} {cpu:11.2f}"


def ray_data(folder: str, rounds: int) -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 30)
    try:
        for count, size in ((20_000, 1_000), (5_000, 100_000)):
            shards = make_rows(folder, count, size)
            ways = {
                "read_webdataset": partial(ray.data.read_webdataset, shards, decoder=None),
                "wds.read_ray": partial(wds.read_ray, shards),
            }
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for number in range(rounds + 1):
                for name, dataset in ways.items():
                    begun, before, total = time.perf_counter(), cpu_seconds(), 0
                    for batch in dataset().iter_batches(batch_size=256):
                        total += sum(int.from_bytes(data[-8:], "big") for data in batch["bin"])
                    assert total == count * (count - 1) // 2
                    if number:
                        found[name].append((time.perf_counter() - begun, cpu_seconds() - before))
            for name, times in found.items():
                wall, cpu = (min(column) for column in zip(*times, strict=True))
                rate = f"{count / wall:8,.0f} rows/s, {1e6 * cpu / count:6,.0f} us of CPU a row"
                print(f"{name:<16} {count} rows of {size} bytes: {rate}")
    finally:
        ray.shutdown()


def make_rows(folder: str, count: int, size: int) -> list[str]:
    """Four shards of numbered samples."""
    paths = [f"{folder}/rows-{size}-{number}.tar" for number in range(4)]
    for number, path in enumerate(paths):
        with wds.TarWriter(path) as sink:
            for key in range(number, count, 4):
                sink.write({"__key__": f"{key:06d}", "bin": key.to_bytes(size, "big"), "cls": key % 10})
    return paths


def by_slurm(folder: str) -> None:
    sources = make_shards(folder, 1000, 1)
    os.mkdir(f"{folder}/out")
    pairs = [(source, f"{folder}/out/{os.path.basename(source)}") for source in sources]
    own = {"poll": 0.5}
    wall, _ = measured(on(copied, "slurm", shards_per_task=50, slurm=own), pairs)
    print(f"slurm: 1000 shards of 1 MB in 20 tasks of 50: {wall:.1f} s")
    wall, _ = measured(by_pool(copied), pairs)
    print(f"pool:  1000 shards of 1 MB: {wall:.1f} s")


def big_plan(folder: str) -> None:
    from webdataset.runs.api import plan_of
    from webdataset.runs.items import shard_items
    from webdataset.runs.options import TaskOptions
    from webdataset.runs.places import Place
    from webdataset.runs.plans import RunProgram

    os.mkdir(f"{folder}/many")
    for number in range(1_000_000):
        first = f"{folder}/many/in-{number - number % 30_000:07d}.tar"
        path = f"{folder}/many/in-{number:07d}.tar"
        if path == first:
            open(path, "wb").close()
        else:
            os.link(first, path)
    begun, before = time.perf_counter(), time.process_time()
    items = shard_items([f"{folder}/many/in-{{0000000..0999999}}.tar"], f"{folder}/out-{{}}.tar")
    program = RunProgram({"kind": "command", "words": ["true"]}, "d")
    plan = plan_of(Place(f"{folder}/run"), program, TaskOptions(), items)
    wall, cpu = time.perf_counter() - begun, time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(
        f"a plan of {plan.count} shards: {wall:.1f} s (wanted <= 10), {cpu:.1f} s CPU, {memory:.0f} MB (wanted <= 500)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["local", "dask", "ray", "plan"])
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))  # where Ray's workers find the functions
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="engines-") as folder:
        if "plan" in options.what:  # first, as its memory is that of the process
            big_plan(folder)
            shutil.rmtree(f"{folder}/many")
        if {"local", "dask", "ray"} & set(options.what):
            compare(options, folder)
        if "raydata" in options.what:
            ray_data(folder, options.rounds)
        if "slurm" in options.what:
            os.makedirs(f"{folder}/slurm")
            by_slurm(f"{folder}/slurm")


if __name__ == "__main__":
    sys.exit(main())
