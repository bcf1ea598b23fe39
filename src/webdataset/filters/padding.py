"""Padding: a collation for samples whose arrays differ in size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from webdataset.base.packages import loaded

from .batches import BatchError, combine_values, default_collation_fn, keys_of, name_of_column
from .mistakes import OptionError

if TYPE_CHECKING:
    import numpy as np


def pad(
    value: float | Mapping[Any, float] = 0,
    *,
    to: int | Sequence[int] = (),
    multiple: int | Sequence[int] = (),
    lengths: bool = False,
) -> Padding:
    """A collation that makes arrays, tensors and lists of numbers as large as the largest of the batch.

    What is missing at the end of an axis is filled with `value`, a number or a dict of numbers by field (or by place in
    the tuple). `to` sets the size instead, and what is larger is an error; `multiple` rounds it up: each is one number
    for the first axis, or one per axis, as `to=(512, 512)` for images. `lengths=True` adds, after each such value or as
    `NAME_lengths`, how long each was along its first axis. Everything else is collated as `batched` does by default.

    >>> from webdataset.filters import batched
    >>> samples = [{"tokens": [5, 6, 7], "cls": 0}, {"tokens": [8], "cls": 1}]
    >>> batch, = batched(2, collation_fn=pad(lengths=True))(samples)
    >>> batch["tokens"].tolist(), batch["tokens_lengths"].tolist(), batch["cls"].tolist()
    ([[5, 6, 7], [8, 0, 0]], [3, 1], [0, 1])
    """

    return Padding(value, _per_axis("to", to), _per_axis("multiple", multiple), lengths)


class Padding:
    """The collation that `pad` makes."""

    def __init__(
        self, value: float | Mapping[Any, float], to: tuple[int, ...], multiple: tuple[int, ...], lengths: bool
    ) -> None:
        self.value = value
        self.to = to
        self.multiple = multiple
        self.lengths = lengths

    def __call__(self, samples: Sequence[Any]) -> Any:
        """A batch of these samples."""
        first = samples[0] if samples else None
        if isinstance(first, Mapping):
            if any(sample.keys() != first.keys() for sample in samples):
                return default_collation_fn(samples)  # which says what is wrong
            batch: dict[Any, Any] = {}
            for name in first:
                column = [sample[name] for sample in samples]
                batch[name] = self._combined(name, column, samples)
                if self.lengths and _size(column[0]) is not None:
                    batch[f"{name}_lengths"] = _lengths(column)
            return batch
        if not isinstance(first, (tuple, list)) or any(len(sample) != len(first) for sample in samples):
            return default_collation_fn(samples)
        values: list[Any] = []
        for place, column in enumerate(map(list, zip(*samples, strict=True))):
            values.append(self._combined(place, column, samples))
            if self.lengths and _size(column[0]) is not None:
                values.append(_lengths(column))
        return tuple(values)

    def __repr__(self) -> str:
        return f"pad({self.value!r}, to={self.to}, multiple={self.multiple}, lengths={self.lengths})"

    def _combined(self, name: object, column: list[Any], samples: Sequence[Any]) -> Any:
        sizes = [_size(value) for value in column]
        shapes = [size for size in sizes if size is not None]
        if len(shapes) < len(sizes):
            return combine_values(column)
        where = name_of_column(name)
        if len({len(shape) for shape in shapes}) > 1:
            axes = " and ".join(str(number) for number in sorted({len(shape) for shape in shapes}))
            raise BatchError(f"arrays with {axes} axes cannot be padded to one size: {where}{keys_of(samples)}")
        fill = self.value.get(name, 0) if isinstance(self.value, Mapping) else self.value
        return _filled(column, shapes, self._target(shapes, where), fill)

    def _target(self, shapes: list[tuple[int, ...]], where: str) -> tuple[int, ...]:
        """The size that all get."""
        target = [max(sizes) for sizes in zip(*shapes, strict=True)]
        for axis, size in enumerate(self.to[: len(target)]):
            if target[axis] > size:
                message = f"a size of {target[axis]} on axis {axis} cannot be padded to {size}: {where}"
                raise BatchError(message, hint="cut it first, or pad to more")
            target[axis] = size
        for axis, multiple in enumerate(self.multiple[: len(target)]):
            target[axis] = -(-target[axis] // multiple) * multiple
        return tuple(target)


def _per_axis(name: str, given: int | Sequence[int]) -> tuple[int, ...]:
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if any(size < 1 for size in sizes):
        raise OptionError(f"{name} must be at least 1, got {given}")
    return sizes


def _size(value: object) -> tuple[int, ...] | None:
    """The shape of an array, a tensor or a list of numbers; None for anything else, and for single numbers."""
    if isinstance(value, (list, tuple)):
        return (len(value),) if all(type(each) in (int, float) for each in value) else None
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return None
    return tuple(value.shape) or None


def _lengths(column: list[Any]) -> np.ndarray[Any, Any]:
    import numpy

    return numpy.array([len(value) for value in column])


def _filled(column: list[Any], shapes: list[tuple[int, ...]], target: tuple[int, ...], fill: float) -> Any:
    torch = loaded("torch")
    if torch is not None and isinstance(column[0], torch.Tensor):
        batch = column[0].new_full((len(column), *target), fill)
    else:
        import numpy

        column = [numpy.asarray(value) for value in column]
        full = [value for value in column if value.size] or column  # an empty list has no type of its own
        batch = numpy.full((len(column), *target), fill, numpy.result_type(*full))
    for number, (value, shape) in enumerate(zip(column, shapes, strict=True)):
        batch[(number, *(slice(size) for size in shape))] = value
    return batch
