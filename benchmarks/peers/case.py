"""What a peer is to do, and what several of them need for it: samples of shards, torchvision's recipe."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


@dataclass
class Case:
    """The data of a scenario."""

    name: str
    """The data set: A (photographs), B (small samples), C (arrays)."""
    field: str
    shards: list[str]
    folder: str
    """Where the peer keeps its own format."""
    workers: int = 2
    batch: int = 64
    urls: list[str] = field(default_factory=list)
    """The shards on a web server, if the scenario wants them from there."""

    @property
    def sources(self) -> list[str]:
        return self.urls or self.shards

    def samples(self) -> Iterator[tuple[str, bytes, int]]:
        """Key, bytes of the field and class of every sample, read by the standard library."""
        for shard in self.shards:
            with tarfile.open(shard) as archive:
                fields: dict[str, bytes] = {}
                key = None
                for member in archive:
                    stem, _, extension = member.name.partition(".")
                    if key is not None and stem != key:
                        yield key, fields[self.field], int(fields["cls"])
                        fields = {}
                    key = stem
                    stream = archive.extractfile(member)
                    assert stream is not None
                    fields[extension] = stream.read()
                    archive.members = []  # tarfile would remember them all
                if key is not None:
                    yield key, fields[self.field], int(fields["cls"])

    def own(self, name: str) -> str:
        """A path in the peer's folder."""
        return os.path.join(self.folder, name)


def torchvision_transforms() -> Any:
    """torchvision's transforms; where its compiled part does not fit torch, its operators are declared first."""
    import torch

    try:
        from torchvision import transforms
    except (RuntimeError, ImportError):
        import sys

        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(library)
        from torchvision import transforms
    return transforms


_kept: list[Any] = []


def recipe() -> Any:
    """The usual recipe for training, from a picture to a tensor."""
    transforms = torchvision_transforms()
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )


def picture(data: bytes) -> Any:
    """A picture as Pillow opens it, which is what torchvision's recipe takes."""
    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")
