"""What an engine costs: the same function over the same shards by a bare multiprocessing.Pool(2) and by each engine.

    python benchmarks/engines.py [--shards 100] [--megabytes 10] [--rounds 3] [--folder /dev/shm] [local dask ray slurm]

Rounds are interleaved, so that what else happens on the machine concerns all alike; the figure is the median of the
ratios to the Pool of the same round, by wall time, and by CPU time where all processes are children of this one.
Clusters are started before. Copying is the least that a function can do, 13 ms of CPU for 10 MB; `--work compress`
compresses the fields, too. `slurm` needs SLURM_CONF and does 1,000 shards of 1 MB in tasks of 50; `plan` makes a plan
of a million items.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
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
    begun, before = time.perf_counter(), _cpu()
    run(pairs)
    return time.perf_counter() - begun, _cpu() - before


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def compare(options: argparse.Namespace, folder: str) -> None:
    engines, shards, megabytes, rounds = options.what, options.shards, options.megabytes, options.rounds
    work = WORK[options.work]
    sources = make_shards(folder, shards, megabytes)
    os.mkdir(f"{folder}/out")
    pairs = [(source, f"{folder}/out/{os.path.basename(source)}") for source in sources]
    ways: dict[str, Callable[[Pairs], None]] = {"pool": by_pool(work)}
    if "local" in engines:
        ways["local"] = on(work, "local")
    if "dask" in engines:
        from distributed import LocalCluster

        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        ways["dask"] = on(work, "dask", address=cluster.scheduler_address)
    if "ray" in engines:
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
        ways["ray"] = on(work, "ray")
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, run in ways.items():
            figures[name].append(measured(run, pairs))
            shutil.rmtree(f"{folder}/out/.runs", ignore_errors=True)
    print(f"{shards} shards of {megabytes:g} MB, {rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name, times in figures.items():
        walls = [time / base for (time, _), (base, _) in zip(times, figures["pool"], strict=True)]
        cpus = [cpu / base for (_, cpu), (_, base) in zip(times, figures["pool"], strict=True)]
        text = f"{name:6} {statistics.median(t for t, _ in times):6.2f} s wall, ratio {statistics.median(walls):.3f}"
        print(text + (f", CPU ratio {statistics.median(cpus):.3f}" if name in ("pool", "local") else ""))


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
    before = _cpu()
    begun = time.perf_counter()
    items = shard_items([f"{folder}/many/in-{{0000000..0999999}}.tar"], f"{folder}/out-{{}}.tar")
    program = RunProgram({"kind": "command", "words": ["true"]}, "d")
    plan = plan_of(Place(f"{folder}/run"), program, TaskOptions(), items)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    wall = time.perf_counter() - begun
    print(f"plan: {plan.count} shards in {wall:.1f} s, {_cpu() - before:.1f} s CPU, {memory:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["local", "dask", "ray"])
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", choices=WORK, default="copy")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="engines-") as folder:
        if options.what == ["slurm"]:
            by_slurm(folder)
        elif options.what == ["plan"]:
            big_plan(folder)
        else:
            compare(options, folder)


if __name__ == "__main__":
    sys.exit(main())
