"""Threads or processes? `python benchmarks/loader.py [names] [--quick] [--save]`.

The same pipeline through every loader, taking turns in fresh processes; the best round by the clock counts, CPU time
stands beside it. Two pipelines:

- images: JPEG photographs decoded, resized to 224 x 224 and batched by 32
- tensors: batches of 16 pictures that come as 114 tensors each, which is what sending them between processes costs
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import data
import sections

HERE = os.path.dirname(os.path.realpath(__file__))
WORKERS = 2
LOADERS = {
    "serial": "no workers",
    "threads": 'WebLoader(workers="thread")',
    "threads-pool": 'WebLoader(workers="thread", pool=4)',
    "processes": "WebLoader, processes",
    "dataloader": "torch's DataLoader over our dataset",
    "old": "webdataset 1.0.2, WebLoader",
}
QUESTIONS = {
    "images": ["serial", "threads", "threads-pool", "processes", "dataloader", "old"],
    "tensors": ["serial", "threads", "processes", "dataloader", "old"],
}
TARGETS = {"tensors": 1.8}
WORDS = (
    f"The same pipeline through every loader, with {WORKERS} workers, taking turns in fresh processes; samples per "
    "second in the best round, and CPU time per sample. *images*: JPEG photographs decoded, resized to 224 x 224 and "
    "batched by 32; *tensors*: batches of 16 pictures that come as 114 tensors each."
)


def main() -> int:
    options = parse()
    if options.measure:
        json.dump(timed(*options.measure, options.shards), sys.stdout)
        return 0
    import versus

    shards = data.make(versus.DATA, 0.1 if options.quick else 1.0)["A"]
    for shard in shards:
        data.warm(shard)
    rounds = 1 if options.quick else options.rounds
    found = {name: measured(name, shards, rounds, versus.old_python()) for name in options.names or QUESTIONS}
    rows = [row for name, loaders in found.items() for row in rows_of(name, loaders)]
    print(sections.shown(rows))
    if options.save:
        sections.save("loader", "Threads and processes", WORDS, rows)
    return 0 if all(reached for *_, reached in rows) or options.quick else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", help=f"what to measure, of: {', '.join(QUESTIONS)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write the figures into docs/benchmarks.md")
    parser.add_argument("--measure", nargs=2, metavar=("name", "loader"), help=argparse.SUPPRESS)
    parser.add_argument("--shards", nargs="*", default=[], help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(name: str, shards: list[str], rounds: int, old_python: str) -> dict[str, list[dict[str, float]]]:
    """All rounds of all loaders."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for loader in QUESTIONS[name]:
            python = old_python if loader == "old" else sys.executable
            command = [python, os.path.realpath(__file__), "--measure", name, loader, "--shards", *shards]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            found.setdefault(loader, []).append(json.loads(done.stdout))
    return found


def rows_of(name: str, found: dict[str, list[dict[str, float]]]) -> list[sections.Row]:
    """Samples per second and CPU time per sample of every loader."""
    rates = {loader: max(one["samples"] / one["wall"] for one in rounds) for loader, rounds in found.items()}
    rows: list[sections.Row] = []
    for loader, rounds in found.items():
        cpu = min(one["cpu"] / one["samples"] for one in rounds)
        rows.append((f"{name}: {LOADERS[loader]}", f"{rates[loader]:,.0f} /s, {cpu * 1e3:.2f} ms CPU", "", True))
    if name in TARGETS:
        ratio = rates["threads"] / rates["dataloader"]
        wanted = f">= {TARGETS[name]:g} x"
        rows.append((f"{name}: threads against the DataLoader", f"{ratio:.2f} x", wanted, ratio >= TARGETS[name]))
    return rows


# -- what is measured, in a process of its own ---------------------------------------------------


def timed(name: str, loader: str, shards: list[str]) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    dataset, size = images(shards) if name == "images" else tensors(), 32 if name == "images" else 16
    batches = loaded(dataset, loader)
    first = next(iter(batches))  # what is imported and started once is not counted
    del first
    wall, cpu = time.perf_counter(), cpu_seconds()
    samples = size * sum(1 for _ in batches)
    return {"samples": samples, "wall": time.perf_counter() - wall, "cpu": cpu_seconds() - cpu}


def loaded(dataset: Any, loader: str) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    import webdataset as wds

    if loader == "serial":
        return dataset
    if loader == "dataloader":
        return DataLoader(dataset, batch_size=None, num_workers=WORKERS)
    options = {"threads": {"workers": "thread"}, "threads-pool": {"workers": "thread", "pool": 4}}.get(loader, {})
    return wds.WebLoader(dataset, batch_size=None, num_workers=WORKERS, **options)


def images(shards: list[str]) -> Any:
    import webdataset as wds

    dataset = wds.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    return dataset.map_tuple(resized).batched(32, partial=False)


def resized(image: Any) -> Any:
    import numpy as np

    return np.asarray(image.resize((224, 224)))


def tensors() -> Any:
    import webdataset as wds

    numbers = [{"n": n} for n in range(16 * 200)]
    dataset = wds.DataPipeline(lambda: iter(split(numbers)), wds.map(pictured), wds.listed(16))
    return dataset.compose(wds.map(many_tensors))


def split(items: list[Any]) -> list[Any]:
    """This worker's part, as shards would be split."""
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return items if info is None else items[info.id :: info.num_workers]


def pictured(sample: dict[str, int]) -> Any:
    import torch

    return torch.full((3, 320, 320), sample["n"] % 256, dtype=torch.uint8)


def many_tensors(pictures: list[Any]) -> dict[str, Any]:
    """What a detection model's batch looks like: pictures, and boxes, labels, masks and so on for each."""
    import torch

    batch: dict[str, Any] = {"pixels": torch.stack(pictures), "mask": torch.zeros(16, 320, 320, dtype=torch.bool)}
    batch["targets"] = [{name: torch.zeros(20, 4) for name in "abcdefg"} for _ in pictures]
    return batch


def cpu_seconds() -> float:
    """CPU time of this process and of children it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


if __name__ == "__main__":
    sys.exit(main())
