"""Columns of arrays and tensors as one array or tensor, in reused memory, and images that are finished there.

An image on its way from `decode` to `batched` need not be finished: normalizing it can write straight into the batch,
which saves a pass over its values and four times its size in fresh memory. `finished_in_batch` finds the decoders for
which nobody can tell the difference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from webdataset.base.memory import large_array
from webdataset.base.stages import Stage

if TYPE_CHECKING:
    import numpy as np
    import torch

_ARRANGING = frozenset({"shuffles", "counts"})
"""Kinds of stages that move samples about, and do not look into them."""


class Unfinished:
    """An image whose values, layout and type are made when it is written into a batch.

    A subclass has `shape` and `dtype` of what it becomes, whether that is a tensor, and `write_into(array)`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_tensor: bool

    def write_into(self, row: np.ndarray[Any, Any]) -> None:
        """Write the finished values into an array of the shape and type."""
        raise NotImplementedError

    def finished(self) -> np.ndarray[Any, Any] | torch.Tensor:
        """The image by itself."""
        import numpy as np

        array = np.empty(self.shape, self.dtype)
        self.write_into(array)
        return sys.modules["torch"].from_numpy(array) if self.is_tensor else array


def stacked_unfinished(images: Sequence[Unfinished]) -> np.ndarray[Any, Any] | torch.Tensor:
    """A batch of images of one shape."""
    first = images[0]
    batch = large_array((len(images), *first.shape), first.dtype)
    for row, image in zip(batch, images, strict=True):
        image.write_into(row)
    return sys.modules["torch"].from_numpy(batch) if first.is_tensor else batch


def stacked_arrays(arrays: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Arrays of one shape as one array."""
    import numpy as np

    dtype = np.result_type(*{array.dtype for array in arrays})
    return np.stack(arrays, out=large_array((len(arrays), *arrays[0].shape), dtype))


def stacked_tensors(tensors: Sequence[Any]) -> torch.Tensor:
    """Tensors of one shape as one tensor."""
    torch, first = sys.modules["torch"], tensors[0]
    kind = _NUMPY_TYPES.get(str(first.dtype))
    plain = all(
        type(each) is torch.Tensor and not each.is_cuda and each.dtype == first.dtype and not each.requires_grad
        for each in tensors
    )
    if kind is None or not plain or str(first.device) != "cpu" or first.is_sparse:
        return torch.stack(list(tensors))
    return torch.stack(list(tensors), out=torch.from_numpy(large_array((len(tensors), *first.shape), kind)))


_NUMPY_TYPES = {
    f"torch.{name}": name
    for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool")
}


def finished_in_batch(stage: object, stages: Sequence[Any], is_default: Callable[[Stage], bool]) -> Any:
    """The stage, or in the place of a decoder of images one that leaves them unfinished.

    That needs a batch with the default collation (`is_default` tells) further on, and until there only stages that do
    not look at values.
    """
    if not isinstance(stage, Stage) or not any(hasattr(how, "unfinished") for how in _handlers(stage)):
        return stage
    after = [n for n, each in enumerate(stages) if each is stage]
    if len(after) != 1:
        return stage
    for later in stages[after[0] + 1 :]:
        if not isinstance(later, Stage):
            return stage
        if is_default(later):
            return Stage(stage.filter, tuple(map(_left, stage.args)), _left_in(stage.kw))
        if not (later.behaviour.kind in _ARRANGING or later.behaviour.moves_fields):
            return stage
    return stage


def _handlers(stage: Stage) -> list[Any]:
    fields = stage.kw.get("fields")
    return [*stage.args, *stage.kw.values(), *(fields.values() if isinstance(fields, dict) else ())]


def _left(how: object) -> Any:
    unfinished = getattr(how, "unfinished", None)
    return how if unfinished is None else unfinished()


def _left_in(options: dict[str, Any]) -> dict[str, Any]:
    left = {name: _left(how) for name, how in options.items()}
    if isinstance(left.get("fields"), dict):
        left["fields"] = {name: _left(how) for name, how in left["fields"].items()}
    return left
