"""Operations one after the other, as a decoder of image fields."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webdataset.codecs.images import IMAGE_EXTENSIONS, as_tensor
from webdataset.codecs.packages import torch_if_installed, torch_package
from webdataset.filters.seeds import seed_of
from webdataset.filters.stacking import Unfinished

from .canvas import Canvas
from .operations import Operation, dtype, normalize, to_chw, views

if TYPE_CHECKING:
    import numpy as np

    from webdataset.base.context import PassContext

OUTPUTS = ("auto", "torch", "numpy")
_EXTENSIONS = frozenset(IMAGE_EXTENSIONS)
_IN_BATCH = "Bef"
"""Types of values that are the same in all versions of torch: uint8, float16, float32."""
Arithmetic = Sequence[tuple[Any, Any]]


class ImagePipeline:
    """Decodes images for `decode`, each sample with random numbers of its own: see `webdataset.images`.

    It pickles, so it goes to worker processes; and threads may share it.

    Args:
        steps: the operations, in order
        mode: "rgb", "rgba" or "l"
        masks: fields that go through the same geometry
        seed: the seed of all samples
        output: "torch", "numpy", or "auto"
    """

    def __init__(
        self, steps: Sequence[Operation], *, mode: str = "rgb", masks: Sequence[str] = (), seed: int = 0, output: str
    ) -> None:
        if mode not in ("rgb", "rgba", "l"):
            raise ValueError(f"the mode of an image is rgb, rgba or l, got {mode!r}")
        if output not in OUTPUTS:
            raise ValueError(f"output is one of {', '.join(OUTPUTS)}, got {output!r}")
        for step in steps:
            if isinstance(step, type) or not hasattr(step, "__call__"):  # noqa: B004 - anything may have been given
                raise TypeError(f"a step is an operation such as resize(256), got {step!r}")
        self.steps = tuple(steps)
        self.mode = mode
        self.masks = tuple(name.lstrip(".").lower() for name in masks)
        self.seed = seed
        self.output = output
        self.epoch: int | None = None
        self.leaves_unfinished = False
        """Whether values, layout and type are left to whoever makes batches."""

    def unfinished(self) -> ImagePipeline:
        """The same decoder, whose images are finished when they are written into a batch."""
        left = copy.copy(self)
        left.leaves_unfinished = True
        return left

    def in_pass(self, report: PassContext) -> ImagePipeline:
        """The decoder for one pass: random numbers are others in every epoch."""
        bound = copy.copy(self)
        bound.epoch = report.epoch
        return bound

    def of_sample(self, sample: Mapping[str, Any]) -> OneSample:
        """The decoder for the fields of one sample, which share their random numbers."""
        if self.epoch is None:
            return OneSample(self, random.getrandbits(63))
        return OneSample(self, seed_of(dict(sample), self.epoch, self.seed))

    def __call__(self, key: str, data: bytes) -> Any:
        """One image, with random numbers of the moment; None if the field is no image."""
        return OneSample(self, random.getrandbits(63))(key, data)

    def __repr__(self) -> str:
        return f"pipeline({', '.join(map(repr, self.steps))})"

    def decoded(self, data: bytes, seed: int, *, is_mask: bool) -> tuple[Any, tuple[int, int]]:
        """The picture, or the tuple of its views, and the size that it had."""
        # who wants arrays may have no use for torch, and a loader that finds it imported gives tensors
        canvas = Canvas(data, "stored" if is_mask else self.mode, imports_torch=self.output != "numpy")
        size = canvas.size
        rng = random.Random(seed)
        for number, step in enumerate(self.steps):
            if isinstance(step, views):
                if number + 1 < len(self.steps):
                    raise ValueError("views comes last: each of them is a pipeline of its own")
                seeds = [rng.getrandbits(63) for _ in step.pipelines]
                parts = zip(step.pipelines, seeds, strict=True)
                return tuple(each.decoded(data, own, is_mask=is_mask)[0] for each, own in parts), size
            if is_mask:
                self._on_mask(step, canvas, rng)
            else:
                step(canvas, rng)
        return self._finished(canvas.pixels(), is_mask), size

    def _on_mask(self, step: Operation, canvas: Canvas, rng: random.Random) -> None:
        if getattr(step, "is_geometry", True):
            getattr(step, "on_mask", step)(canvas, rng)

    def _finished(self, pixels: np.ndarray[Any, Any], is_mask: bool) -> Any:
        """Values, layout and type as the last steps ask for, in as few passes over the values as possible."""
        channels_first = pixels.ndim == 3 and any(isinstance(step, to_chw) for step in self.steps)
        kind = next((step.name for step in reversed(self.steps) if isinstance(step, dtype)), None)
        norm = next((step for step in reversed(self.steps) if isinstance(step, normalize)), None)
        torch = torch_if_installed() if self.output != "numpy" else None
        if self.output == "torch" and torch is None:
            torch_package()  # says what to install
        if channels_first:
            pixels = pixels.transpose(2, 0, 1)
        if is_mask or (norm is None and kind in (None, "uint8")):
            image = UnfinishedImage(pixels, torch is not None)
        else:
            arithmetic = _arithmetic(pixels, norm, channels_first)
            image = UnfinishedImage(
                pixels, torch is not None, "float16" if kind == "float16" else "float32", arithmetic
            )
        return image if self.leaves_unfinished and image.dtype.char in _IN_BATCH else image.finished()


class OneSample:
    """Decodes the image fields of one sample with the same random numbers."""

    def __init__(self, pipeline: ImagePipeline, seed: int) -> None:
        self._pipeline = pipeline
        self._seed = seed
        self._size: tuple[int, int] | None = None

    def __call__(self, key: str, data: bytes) -> Any:
        name = key.lstrip(".").lower()
        is_mask = name in self._pipeline.masks
        if not is_mask and name.rpartition(".")[2] not in _EXTENSIONS:
            return None
        result, size = self._pipeline.decoded(data, self._seed, is_mask=is_mask)
        if self._pipeline.masks:
            if self._size is not None and size != self._size:
                raise ValueError(
                    f"{name} has {size[0]} x {size[1]} pixels and another image of the sample {self._size[0]} x "
                    f"{self._size[1]}: they cannot go through the same crop"
                )
            self._size = size
        return result


class UnfinishedImage(Unfinished):
    """Pixels, and what to do to their values: pairs of a function of numpy and its second argument."""

    def __init__(
        self, pixels: np.ndarray[Any, Any], is_tensor: bool, dtype: str | None = None, arithmetic: Arithmetic = ()
    ) -> None:
        import numpy as np

        self.shape = pixels.shape
        self.dtype = pixels.dtype if dtype is None else np.dtype(dtype)
        self.nbytes = pixels.nbytes
        self.is_tensor = is_tensor
        self._pixels = pixels
        self._arithmetic = arithmetic

    def write_into(self, row: np.ndarray[Any, Any]) -> None:
        """Write the finished values into an array of the shape and type."""
        import numpy as np

        values = row if not self._arithmetic or row.dtype == np.float32 else np.empty(row.shape, np.float32)
        np.copyto(values, self._pixels, casting="same_kind")
        for function, constant in self._arithmetic:
            function(values, constant, out=values)
        if values is not row:
            np.copyto(row, values, casting="same_kind")

    def finished(self) -> Any:
        """The image by itself."""
        if not self._arithmetic and self.is_tensor:
            return as_tensor(self._pixels)
        return super().finished()


def _arithmetic(pixels: np.ndarray[Any, Any], norm: normalize | None, channels_first: bool) -> Arithmetic:
    """What makes values from 0 to 1 of the pixels, or normalized ones."""
    import numpy as np

    white = 255 if pixels.dtype == np.uint8 else 1
    if norm is None:
        return [(np.divide, np.float32(white))]
    channels = pixels.shape[0 if channels_first else -1] if pixels.ndim == 3 else 1
    if len(norm.mean) not in (1, channels):
        raise ValueError(f"normalize has {len(norm.mean)} channels and the image {channels}")
    mean, factor = norm.constants(white, channels_first and pixels.ndim == 3)
    return [(np.subtract, mean), (np.multiply, factor)]
