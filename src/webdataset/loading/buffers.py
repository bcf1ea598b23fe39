"""Batches in reused memory: collation that writes arrays and tensors into buffers, round and round.

Making fresh memory for each batch costs page faults, and copying from pinned memory is what a GPU does fastest. The
price is that a batch is overwritten after as many further ones: that is why nobody gets this without asking for it.

>>> import numpy
>>> collate = Buffered(2, list)
>>> batches = [collate([(numpy.full(2, n),)] * 3)[0] for n in range(3)]
>>> batches[0] is not batches[1], batches[0].tolist() == batches[2].tolist()
(True, True)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

from webdataset.base.context import current_pass
from webdataset.filters import BatchError, default_collation_fn

Column = list[Any]


class Buffered:
    """Collates samples as `default_collation_fn` or torch's `default_collate` do, arrays into one of `count` buffers.

    `rest` makes columns of what is neither array nor tensor, or does not stack; it complains about what it cannot
    take. `deep` also looks into tuples, lists and dicts within samples, and makes tensors of arrays, as torch does.
    """

    def __init__(self, count: int, rest: Callable[[Column], Any], *, deep: bool = False, pinned: bool = False) -> None:
        self._rest = rest
        self._deep = deep
        self._pinned = pinned
        self._slots = cycle([_Slot() for _ in range(count)])

    def __call__(self, samples: list[Any]) -> Any:
        first, slot = samples[0], next(self._slots)
        if self._deep:
            return self._joined(samples, slot, ())
        if isinstance(first, Mapping) and all(sample.keys() == first.keys() for sample in samples):
            return {name: self._column([sample[name] for sample in samples], slot, (name,)) for name in first}
        if isinstance(first, (tuple, list)) and all(len(sample) == len(first) for sample in samples):
            columns = zip(*samples, strict=True)
            return tuple(self._column(list(column), slot, (n,)) for n, column in enumerate(columns))
        return default_collation_fn(samples)  # says what is wrong

    def _joined(self, values: Column, slot: _Slot, path: tuple[Any, ...]) -> Any:
        first = values[0]
        if isinstance(first, dict):
            return {name: self._joined([value[name] for value in values], slot, (*path, name)) for name in first}
        if isinstance(first, (tuple, list)) and not hasattr(first, "_fields"):
            if any(len(value) != len(first) for value in values):
                raise BatchError("the samples of a batch have different numbers of values")
            columns = zip(*values, strict=True)
            return [self._joined(list(column), slot, (*path, n)) for n, column in enumerate(columns)]
        return self._column(values, slot, path)

    def _column(self, values: Column, slot: _Slot, path: tuple[Any, ...]) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and self._deep and _alike(values, "numpy", "ndarray") and values[0].dtype.kind in "biufc":
            values = [torch.as_tensor(value) for value in values]
        if torch is not None and _alike(values, "torch", "Tensor"):
            return torch.stack(values, out=slot.memory(path, values, partial(torch.empty, pin_memory=self._pinned)))
        if _alike(values, "numpy", "ndarray"):
            numpy = sys.modules["numpy"]
            return numpy.stack(values, out=slot.memory(path, values, numpy.empty))
        return self._rest(values)


class BufferedSteps:
    """Does so for the steps of an exact epoch, which threads make at the same time: `count` of them have buffers.

    `made` gives the collation of one of these. `stands_for` is the function whose place it takes.
    """

    def __init__(self, count: int, made: Callable[[], Buffered], stands_for: Callable[..., Any] | None) -> None:
        self._count = count
        self._made = made
        self.stands_for = stands_for

    def __call__(self, samples: list[Any]) -> Any:
        kept, step = current_pass().step or ({}, 0)
        number = step % self._count
        if number not in kept:
            kept[number] = self._made()
        return kept[number](samples)


class _Slot:
    """The memory of one batch, by the place of each column in a sample."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def memory(self, path: tuple[Any, ...], values: Column, empty: Callable[..., Any]) -> Any:
        """Room for these values stacked, in memory of an earlier batch if that fits."""
        like, kept = values[0], self._kept.get(path)
        if kept is None or kept.dtype != like.dtype or kept.shape[1:] != like.shape or len(kept) < len(values):
            kept = self._kept[path] = empty((len(values), *like.shape), dtype=like.dtype)
        return kept[: len(values)]


def _alike(values: Sequence[Any], module: str, kind: str) -> bool:
    """Are these all arrays, or all tensors on the CPU, of one shape and type?"""
    found = sys.modules.get(module)
    if found is None:
        return False
    wanted, first = getattr(found, kind), values[0]
    if not isinstance(first, wanted) or getattr(first, "is_cuda", False) or getattr(first, "requires_grad", False):
        return False
    return all(isinstance(each, wanted) and each.shape == first.shape and each.dtype == first.dtype for each in values)
