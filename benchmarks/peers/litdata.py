"""LitData: optimized chunks, its StreamingDataset and StreamingDataLoader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from .case import Case, picture, recipe

PACKAGES = ["litdata", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "litdata"


def _sample(shard: str, name: str, field: str) -> Iterator[tuple[bytes, int]]:
    for _, data, label in Case(name, field, [shard], "").samples():
        yield data, label


def prepare(case: Case) -> None:
    from litdata import optimize

    optimize(
        fn=partial(_sample, name=case.name, field=case.field),
        inputs=case.shards,
        output_dir=os.path.abspath(case.own(case.name)),
        chunk_bytes="64MB",
        num_workers=1,
    )


def _dataset(case: Case, **options: Any) -> Any:
    from litdata import StreamingDataset

    return StreamingDataset(os.path.abspath(case.own(case.name)), **options)


def raw(case: Case) -> Iterator[bytes]:
    return (data for data, _ in _dataset(case, shuffle=False))


def shuffled(case: Case) -> Iterator[bytes]:
    return (data for data, _ in _dataset(case, shuffle=True))


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import numpy as np

    return ((np.asarray(picture(data)), label) for data, label in _dataset(case, shuffle=False))


class _Recipe:
    def __init__(self) -> None:
        self.transform = recipe()

    def __call__(self, sample: tuple[bytes, int]) -> Any:
        return self.transform(picture(sample[0])), sample[1]


def train(case: Case) -> Any:
    from litdata import StreamingDataLoader

    dataset = _dataset(case, shuffle=True, transform=_Recipe())
    return StreamingDataLoader(dataset, batch_size=case.batch, num_workers=case.workers)
