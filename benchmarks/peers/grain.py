"""Grain: ArrayRecord files, MapDataset, worker processes."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

from .case import Case, picture, recipe

PACKAGES = ["grain", "array_record", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "grain"
RUNS = dict.fromkeys(("raw", "shuffled", "rgb"), "16 threads")


def prepare(case: Case) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    os.makedirs(case.folder, exist_ok=True)
    writer = ArrayRecordWriter(case.own(f"{case.name}.array_record"), "group_size:1")
    for _, data, label in case.samples():
        writer.write(pickle.dumps((data, label)))
    writer.close()


def _source(case: Case) -> Any:
    import grain

    return grain.MapDataset.source(grain.sources.ArrayRecordDataSource([case.own(f"{case.name}.array_record")]))


def raw(case: Case) -> Iterator[bytes]:
    return (pickle.loads(record)[0] for record in _source(case).to_iter_dataset())


def shuffled(case: Case) -> Iterator[bytes]:
    return (pickle.loads(record)[0] for record in _source(case).shuffle(seed=0).to_iter_dataset())


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import numpy as np

    records = map(pickle.loads, _source(case).to_iter_dataset())
    return ((np.asarray(picture(data)), label) for data, label in records)


class _Recipe:
    def __init__(self) -> None:
        self.transform = None

    def __call__(self, record: bytes) -> Any:
        self.transform = self.transform or recipe()
        data, label = pickle.loads(record)
        return self.transform(picture(data)).numpy(), label


def train(case: Case) -> Any:
    import grain

    dataset = _source(case).shuffle(seed=0).map(_Recipe()).batch(case.batch).to_iter_dataset()
    return dataset.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(num_workers=case.workers))
