"""Hugging Face Datasets: streamed webdataset shards in torch's DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .case import Case, picture, recipe

PACKAGES = ["datasets", "pillow", "aiohttp", "requests"]
NEEDS = "torch"
DISTRIBUTION = "datasets"
DATA = ("A", "B")
URLS = True


def _stream(case: Case) -> Any:
    from datasets import Image, load_dataset

    streamed = load_dataset("webdataset", data_files={"train": case.sources}, split="train", streaming=True)
    if case.name == "A":
        streamed = streamed.cast_column("jpg", Image(decode=False))
    return streamed


def _bytes(value: Any) -> bytes:
    if isinstance(value, dict):
        return value["bytes"]
    return value if isinstance(value, bytes) else str(value).encode()


def raw(case: Case) -> Iterator[bytes]:
    return (_bytes(sample[case.field]) for sample in _stream(case))


def shuffled(case: Case) -> Iterator[bytes]:
    return (_bytes(sample[case.field]) for sample in _stream(case).shuffle(buffer_size=10_000, seed=0))


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import numpy as np

    return ((np.asarray(picture(_bytes(sample["jpg"]))), int(sample["cls"])) for sample in _stream(case))


class _Recipe:
    def __init__(self) -> None:
        self.transform = recipe()

    def __call__(self, sample: Any) -> Any:
        return {"image": self.transform(picture(_bytes(sample["jpg"]))), "label": int(sample["cls"])}


def train(case: Case) -> Any:
    from torch.utils.data import DataLoader

    streamed = _stream(case).shuffle(buffer_size=1000, seed=0).select_columns(["jpg", "cls"])
    mapped = streamed.map(_Recipe(), remove_columns=["jpg", "cls"]).with_format("torch")
    loader = DataLoader(mapped, batch_size=case.batch, num_workers=case.workers)
    return ((batch["image"], batch["label"]) for batch in loader)
