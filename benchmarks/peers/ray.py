"""Ray Data: read_webdataset, map and iter_batches, on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .case import Case, picture, recipe

PACKAGES = ["ray[data]", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "ray"
RUNS = dict.fromkeys(("raw", "rgb", "train"), "3 processes")
WORKERS_APART = True  # they are no children of the process: their CPU time is not known to it

os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")


def _dataset(case: Case) -> Any:
    import ray

    if not ray.is_initialized():  # actors keep a slot each; what reads needs one, too
        ray.init(num_cpus=case.workers + 1, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    return ray.data.read_webdataset([os.path.abspath(shard) for shard in case.shards], decoder=None)


def raw(case: Case) -> Iterator[bytes]:
    return (row[case.field] for row in _dataset(case).iter_rows())


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import numpy as np

    def decoded(row: Any) -> Any:
        return {"image": np.asarray(picture(row["jpg"])), "label": int(row["cls"])}

    return ((row["image"], row["label"]) for row in _dataset(case).map(decoded).iter_rows())


def train(case: Case) -> Iterator[tuple[Any, Any]]:
    class Transform:
        def __init__(self) -> None:
            self.transform = recipe()

        def __call__(self, row: Any) -> Any:
            return {"image": self.transform(picture(row["jpg"])).numpy(), "label": int(row["cls"])}

    mapped = _dataset(case).map(Transform, concurrency=case.workers)
    batches = mapped.iter_batches(batch_size=case.batch, local_shuffle_buffer_size=1000)
    return ((batch["image"], batch["label"]) for batch in batches)
