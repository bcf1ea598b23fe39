"""MosaicML Streaming: MDS shards, its StreamingDataset and StreamingDataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .case import Case, picture, recipe, torchvision_transforms

PACKAGES = ["mosaicml-streaming", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "mosaicml-streaming"


def _streaming() -> Any:
    torchvision_transforms()  # which it imports, too
    import streaming

    streaming.base.util.clean_stale_shared_memory()
    return streaming


def prepare(case: Case) -> None:
    with _streaming().MDSWriter(out=case.own(case.name), columns={"data": "bytes", "label": "int"}) as writer:
        for _, data, label in case.samples():
            writer.write({"data": data, "label": label})


def _dataset(case: Case, shuffle: bool) -> Any:
    return _streaming().StreamingDataset(local=case.own(case.name), shuffle=shuffle, batch_size=case.batch)


def raw(case: Case) -> Iterator[bytes]:
    return (sample["data"] for sample in _dataset(case, False))


def shuffled(case: Case) -> Iterator[bytes]:
    return (sample["data"] for sample in _dataset(case, True))


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import numpy as np

    return ((np.asarray(picture(sample["data"])), sample["label"]) for sample in _dataset(case, False))


def train(case: Case) -> Any:
    streaming = _streaming()

    class Photographs(streaming.StreamingDataset):
        transform = recipe()

        def __getitem__(self, number: Any) -> Any:
            sample = super().__getitem__(number)
            return self.transform(picture(sample["data"])), sample["label"]

    dataset = Photographs(local=case.own(case.name), shuffle=True, batch_size=case.batch)
    return streaming.StreamingDataLoader(dataset, batch_size=case.batch, num_workers=case.workers)
