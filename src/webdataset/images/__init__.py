"""Images for training: decode, crop, resize, flip and normalize in one step of a pipeline.

An image decoder for `decode` that knows what becomes of the picture, so that only the part that is needed is decoded,
and everything stays in bytes as long as possible:

    dataset = (
        wds.WebDataset(urls).shuffle(1000)
        .decode(wds.images.train(224)).to_tuple("jpg;png", "cls").batched(64)
    )

Random numbers are drawn per sample from (seed, epoch, shard, key): a crop is the same with any number of workers, and
after a resume. The results are torch tensors where torch is installed, else numpy arrays; `output=` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .canvas import Canvas
from .operations import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Operation,
    center_crop,
    color_jitter,
    crop,
    dtype,
    flip,
    grayscale,
    normalize,
    pad,
    random_crop,
    random_resized_crop,
    resize,
    to_chw,
    vertical_flip,
    views,
)
from .pipelines import ImagePipeline

__all__ = [
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Canvas",
    "ImagePipeline",
    "Operation",
    "center_crop",
    "color_jitter",
    "colour_jitter",
    "crop",
    "dtype",
    "evaluate",
    "flip",
    "grayscale",
    "normalize",
    "pad",
    "pipeline",
    "random_crop",
    "random_resized_crop",
    "resize",
    "to_chw",
    "train",
    "vertical_flip",
    "views",
]

colour_jitter = color_jitter


def train(
    size: int | tuple[int, int] = 224,
    *,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    masks: str | Sequence[str] = (),
    seed: int = 0,
    output: str = "auto",
) -> ImagePipeline:
    """The usual recipe for training: a random resized crop, a random flip, normalized, channels first.

    Args:
        size: a number, or (height, width)
        scale: the least and the largest part of the area
        ratio: the least and the largest ratio of width to height
        mean: what is subtracted, per channel
        std: what is divided by, per channel
        masks: fields that go through the same geometry, such as `mask.png`
        seed: the seed of all samples
        output: "torch", "numpy", or "auto"

    >>> train(224)
    pipeline(random_resized_crop(224), flip(), to_chw(), normalize())
    """
    steps = (random_resized_crop(size, scale, ratio), flip(), to_chw(), normalize(mean, std))
    return pipeline(*steps, masks=masks, seed=seed, output=output)


def evaluate(
    size: int | tuple[int, int] = 224,
    *,
    resize_to: int | None = None,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    masks: str | Sequence[str] = (),
    output: str = "auto",
) -> ImagePipeline:
    """The usual recipe for evaluation: the shorter side resized to 8/7 of the size, the center, normalized.

    Args:
        size: a number, or (height, width)
        resize_to: the shorter side before the center is cut out
        mean: what is subtracted, per channel
        std: what is divided by, per channel
        masks: fields that go through the same geometry, such as `mask.png`
        output: "torch", "numpy", or "auto"

    >>> evaluate(224)
    pipeline(resize(256), center_crop(224), to_chw(), normalize())
    """
    center = center_crop(size)
    shorter = resize_to or round(min(center.size) * 256 / 224)
    return pipeline(resize(shorter), center, to_chw(), normalize(mean, std), masks=masks, output=output)


def pipeline(
    *steps: Operation, mode: str = "rgb", masks: str | Sequence[str] = (), seed: int = 0, output: str = "auto"
) -> ImagePipeline:
    """Any sequence of operations as an image decoder for `decode`.

    `mode` is "rgb", "rgba" or "l". Fields that `masks` names, such as "mask.png", go through the same geometry,
    with their values as they are stored. `output` is "torch", "numpy", or "auto" for tensors where torch is installed.

    Args:
        *steps: the operations, in order
        mode: "rgb", "rgba" or "l"
        masks: fields that go through the same geometry
        seed: the seed of all samples
        output: "torch", "numpy", or "auto"

    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (60, 40), "red").save(file, "PNG")
    >>> decode_image = pipeline(resize(20), flip(), output="numpy")
    >>> decode_image(".png", file.getvalue()).shape
    (20, 30, 3)
    """
    names = tuple(masks.split()) if isinstance(masks, str) else tuple(masks)
    return ImagePipeline(steps, mode=mode, masks=names, seed=seed, output=output)


def __getattr__(name: str) -> Any:
    raise AttributeError(f"webdataset.images has no {name!r}; it has {', '.join(__all__)}")
