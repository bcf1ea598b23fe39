"""Loose files, one per photograph, in torch's DataLoader with torchvision: no package at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .case import Case, picture, recipe

PACKAGES = ["pillow"]
NEEDS = "torch"
DISTRIBUTION = "torch"
DATA = ("A",)


def prepare(case: Case) -> None:
    os.makedirs(case.own("files"), exist_ok=True)
    for key, data, label in case.samples():
        with open(case.own(f"files/{label:06d}-{os.path.basename(key)}.jpg"), "wb") as file:
            file.write(data)


class Files:
    def __init__(self, folder: str, transform: Any) -> None:
        self.paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        with open(self.paths[number], "rb") as file:
            data = file.read()
        return self.transform(data), int(os.path.basename(self.paths[number])[:6])


def raw(case: Case) -> Iterator[bytes]:
    files = Files(case.own("files"), bytes)
    return (files[number][0] for number in range(len(files)))


def rgb(case: Case) -> Iterator[tuple[Any, int]]:
    import numpy as np

    files = Files(case.own("files"), lambda data: np.asarray(picture(data)))
    return map(files.__getitem__, range(len(files)))


class Recipe:
    def __init__(self) -> None:
        self.transform = recipe()

    def __call__(self, data: bytes) -> Any:
        return self.transform(picture(data))


def train(case: Case) -> Any:
    from torch.utils.data import DataLoader

    files = Files(case.own("files"), Recipe())
    return DataLoader(files, batch_size=case.batch, shuffle=True, num_workers=case.workers)
