"""NVIDIA DALI on the CPU: its reader of webdataset shards, decoding of random crops."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

from .case import MEAN, STD, Case

PACKAGES = ["nvidia-dali-cuda120"]
NEEDS = ""
DISTRIBUTION = "nvidia-dali-cuda120"
RUNS = {"train": "2 threads"}


def prepare(case: Case) -> None:
    os.makedirs(case.folder, exist_ok=True)
    for shard in case.shards:
        index = case.own(os.path.basename(shard) + ".idx")
        subprocess.run(["wds2idx", shard, index], check=True, stdout=subprocess.DEVNULL, env=_with_tools())


def _with_tools() -> dict[str, str]:
    import sys

    return {**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}


def _reader(case: Case, **options: Any) -> Any:
    from nvidia.dali import fn

    indices = [case.own(os.path.basename(shard) + ".idx") for shard in case.shards]
    return fn.readers.webdataset(
        paths=case.shards, index_paths=indices, ext=[case.field, "cls"], name="reader", dont_use_mmap=False, **options
    )


def _pipeline(batch: int, threads: int, graph: Any) -> Iterator[Any]:
    from nvidia.dali import pipeline_def

    @pipeline_def(batch_size=batch, num_threads=threads, device_id=None)
    def made() -> Any:
        return graph()

    running = made()
    running.build()
    size = next(iter(running.reader_meta().values()))["epoch_size"]
    for start in range(0, size, batch):
        yield min(batch, size - start), running.run()


def raw(case: Case) -> Iterator[bytes]:
    for count, (data, _) in _pipeline(256, 1, lambda: tuple(_reader(case))):
        for n in range(count):
            yield memoryview(data.at(n))


def shuffled(case: Case) -> Iterator[bytes]:
    def graph() -> Any:
        return tuple(_reader(case, random_shuffle=True, initial_fill=10_000))

    for count, (data, _) in _pipeline(256, 1, graph):
        for n in range(count):
            yield memoryview(data.at(n))


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    from nvidia.dali import fn

    def graph() -> Any:
        data, label = _reader(case)
        return fn.decoders.image(data, device="cpu"), label

    for count, (images, labels) in _pipeline(16, 1, graph):
        for n in range(count):
            yield images.at(n), int(bytes(labels.at(n)))


def train(case: Case) -> Iterator[tuple[Any, Any]]:
    from nvidia.dali import fn, types

    def graph() -> Any:
        data, label = _reader(case, random_shuffle=True, initial_fill=1000)
        images = fn.decoders.image_random_crop(
            data, device="cpu", random_area=(0.08, 1.0), random_aspect_ratio=(3 / 4, 4 / 3)
        )
        images = fn.resize(images, resize_x=224, resize_y=224, interp_type=types.INTERP_LINEAR, antialias=True)
        mirror = fn.random.coin_flip(probability=0.5)
        mean, std = ([255 * value for value in values] for values in (MEAN, STD))
        return fn.crop_mirror_normalize(images, mean=mean, std=std, mirror=mirror, output_layout="CHW"), label

    for count, (images, labels) in _pipeline(case.batch, case.workers, graph):
        yield images.as_array()[:count], [int(bytes(labels.at(n))) for n in range(count)]
