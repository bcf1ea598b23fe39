"""Megatron Energon: a prepared folder of webdataset shards, its loader."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from .case import Case, recipe

PACKAGES = ["megatron-energon", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "megatron-energon"

DATASET = """\
__module__: megatron.energon
__class__: CrudeWebdataset
"""


def prepare(case: Case) -> None:
    folder = case.own(case.name)
    os.makedirs(folder, exist_ok=True)
    for shard in case.shards:
        target = os.path.join(folder, os.path.basename(shard))
        if not os.path.exists(target):
            try:
                os.link(shard, target)
            except OSError:
                shutil.copyfile(shard, target)
    energon = os.path.join(os.path.dirname(sys.executable), "energon")
    words = [
        energon,
        "prepare",
        "--non-interactive",
        "--split-ratio",
        "1,0,0",
        "--sample-type",
        "CrudeWebdataset",
        folder,
    ]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    path = os.path.join(folder, ".nv-meta", "dataset.yaml")
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(DATASET)


def train(case: Case) -> Iterator[tuple[Any, Any]]:
    import torch
    from megatron.energon import DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset
    from megatron.energon.task_encoder import stateless
    from megatron.energon.task_encoder.cooking import Cooker, basic_sample_keys

    transform = recipe()

    @stateless
    def cook(sample: dict[str, Any]) -> dict[str, Any]:
        from .case import picture

        image = sample["jpg"]
        image = picture(image) if isinstance(image, bytes) else image
        return {**basic_sample_keys(sample), "image": transform(image), "label": int(sample["cls"])}

    class Encoder(DefaultTaskEncoder):
        cookers = (Cooker(cook),)
        decoder = None

        def batch(self, samples: list[Any]) -> Any:
            return torch.stack([one["image"] for one in samples]), torch.tensor([one["label"] for one in samples])

    worker = WorkerConfig(rank=0, world_size=1, num_workers=case.workers)
    dataset = get_train_dataset(
        case.own(case.name),
        batch_size=case.batch,
        shuffle_buffer_size=1000,
        max_samples_per_sequence=100,
        worker_config=worker,
        task_encoder=Encoder(),
        repeat=False,
    )
    return iter(get_loader(dataset))
