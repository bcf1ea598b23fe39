"""SPDL: a pipeline of threads over tar archives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .case import Case, picture, recipe

PACKAGES = ["spdl", "numpy", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "spdl"
RUNS = {"train": "2 threads"}


def _members(case: Case) -> Iterator[tuple[str, Any]]:
    import spdl.io

    for shard in case.shards:
        with open(shard, "rb") as file:
            yield from spdl.io.iter_tarfile(file.read())


def raw(case: Case) -> Iterator[bytes]:
    ending = f".{case.field}"
    return (data for name, data in _members(case) if name.endswith(ending))


def _labelled(case: Case) -> Iterator[tuple[bytes, int]]:
    """The class comes before the picture."""
    label = 0
    for name, data in _members(case):
        if name.endswith(".cls"):
            label = int(bytes(data))
        elif name.endswith(".jpg"):
            yield bytes(data), label


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import numpy as np

    return ((np.asarray(picture(data)), label) for data, label in _labelled(case))


def train(case: Case) -> Iterator[tuple[Any, Any]]:
    """Pillow and torchvision in its threads: its own decoders need libraries of FFmpeg on the system."""
    import torch
    from spdl.pipeline import PipelineBuilder

    transform = recipe()

    def made(pair: tuple[bytes, int]) -> tuple[Any, int]:
        return transform(picture(pair[0])), pair[1]

    def collated(pairs: list[tuple[Any, int]]) -> tuple[Any, list[int]]:
        return torch.stack([image for image, _ in pairs]), [label for _, label in pairs]

    builder = PipelineBuilder().add_source(_labelled(case)).pipe(made, concurrency=case.workers)
    pipeline = builder.aggregate(case.batch).pipe(collated).add_sink(2).build(num_threads=case.workers)
    with pipeline.auto_stop():
        yield from pipeline


os.environ.setdefault("SPDL_LOG_LEVEL", "ERROR")
