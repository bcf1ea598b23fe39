"""FFCV: its own format, and a compiled loader. To build it takes Debian's libopencv-dev and libturbojpeg0-dev."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from .case import MEAN, STD, Case, picture

PACKAGES = ["ffcv", "numba", "opencv-python-headless", "pillow"]
NEEDS = "torch"
DISTRIBUTION = "ffcv"
DATA = ("A",)
RUNS = {"train": "2 threads"}
HINT = "to build it: apt install libopencv-dev libturbojpeg0-dev pkg-config"


class _Pictures:
    def __init__(self, case: Case) -> None:
        self.samples = [(data, label) for _, data, label in case.samples()]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        data, label = self.samples[number]
        return picture(data), label


def prepare(case: Case) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    os.makedirs(case.folder, exist_ok=True)
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=93), "label": IntField()}
    DatasetWriter(case.own("A.beton"), fields, num_workers=1).from_indexed_dataset(_Pictures(case))


def train(case: Case) -> Iterator[tuple[Any, Any]]:
    """One loader for all epochs, as its documentation has it: a new one compiles everything again."""
    return iter(_loader(case.own("A.beton"), case.batch, case.workers))


@cache
def _loader(path: str, batch: int, workers: int) -> Any:
    import numpy as np
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

    mean, std = (np.array(values) * 255 for values in (MEAN, STD))
    image = [
        RandomResizedCropRGBImageDecoder((224, 224)),
        RandomHorizontalFlip(),
        NormalizeImage(mean, std, np.float32),
        ToTensor(),
        ToTorchImage(convert_back_int16=False),
    ]
    pipelines = {"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]}
    return Loader(
        path,
        batch_size=batch,
        num_workers=workers,
        order=OrderOption.QUASI_RANDOM,
        drop_last=False,
        pipelines=pipelines,
    )
