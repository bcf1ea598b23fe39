"""Threads or processes?

The same pipeline through every loader, taking turns in fresh processes; the best round by the clock counts, CPU time
stands beside it. Two pipelines:

- images: JPEG photographs decoded, resized to 224 x 224 and batched by 32
- tensors: batches of 16 pictures that come as 114 tensors each, which is what sending them between processes costs
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import data
import sections
from measure import Batches, begin, ended

HERE = os.path.dirname(os.path.realpath(__file__))
WORKERS = 2
LOADERS = {
    "serial": "no workers",
    "threads": 'WebLoader(workers="thread")',
    "processes": "WebLoader, processes",
    "dataloader": "torch's DataLoader over our dataset",
    "old": "webdataset 1.0.2, WebLoader",
}
QUESTIONS = {
    "images": ["serial", "threads", "processes", "dataloader", "old"],
    "tensors": ["serial", "threads", "processes", "dataloader", "old"],
}
TARGETS = {"tensors": 1.8}
TITLE = "Threads and processes"
NEEDS = ()
WORDS = (
    f"The same pipeline through every loader, with {WORKERS} workers, taking turns in fresh processes; samples per "
    "second in the best round, and CPU time per sample. *images*: JPEG photographs decoded, resized to 224 x 224 and "
    "batched by 32; *tensors*: batches of 16 pictures that come as 114 tensors each."
)


def rows(part: float, old: str) -> list[sections.Row]:
    shards = data.make(os.path.join(HERE, ".data"), part, generated=part < 0.1)["A"]
    for shard in shards:
        data.warm(shard)
    found = {name: measured(name, shards, part, old) for name in QUESTIONS}
    return [row for name, loaders in found.items() for row in rows_of(name, loaders)]


def measured(name: str, shards: list[str], part: float, old: str) -> dict[str, list[dict[str, float]]]:
    """All rounds of all loaders."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(sections.rounds(part, 2)):
        for loader in QUESTIONS[name]:
            if python := old if loader == "old" else sys.executable:
                command = [python, os.path.realpath(__file__), name, loader, str(part), *shards]
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


def timed(name: str, loader: str, part: float, shards: list[str]) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    batches = loaded(images(shards) if name == "images" else tensors(part), loader)
    first = next(iter(batches))  # what is imported and started once is not counted
    del first
    found = Batches()
    begun = begin()
    found.take(batches if name == "images" else ((batch["pixels"], batch["numbers"]) for batch in batches))
    return ended(begun) | {"samples": found.samples}


def loaded(dataset: Any, loader: str) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    import webdataset as wds

    if loader == "serial":
        return dataset
    if loader == "dataloader":
        return DataLoader(dataset, batch_size=None, num_workers=WORKERS)
    options = {"workers": "thread"} if loader == "threads" else {}  # 1.0.2 knows no such option
    return wds.WebLoader(dataset, batch_size=None, num_workers=WORKERS, **options)


def images(shards: list[str]) -> Any:
    import webdataset as wds

    dataset = wds.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    return dataset.map_tuple(resized).batched(32)


def resized(image: Any) -> Any:
    import numpy as np

    return np.asarray(image.resize((224, 224)))


def tensors(part: float) -> Any:
    import webdataset as wds

    numbers = [{"n": n} for n in range(16 * max(4, int(200 * part)))]
    dataset = wds.DataPipeline(lambda: iter(split(numbers)), wds.map(pictured), wds.batched(16, collation_fn=None))
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
    batch["numbers"] = list(range(16))
    batch["targets"] = [{name: torch.zeros(20, 4) for name in "abcdefg"} for _ in pictures]
    return batch


if __name__ == "__main__":
    json.dump(timed(*sys.argv[1:3], float(sys.argv[3]), sys.argv[4:]), sys.stdout)
