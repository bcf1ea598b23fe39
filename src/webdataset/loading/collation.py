"""Collation as torch does it, into reused memory; and as `batched` does it in programs without torch.

torch's own collation makes fresh memory for every batch, and in worker processes a file of shared memory for each of
its tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from webdataset.filters import BatchError, combine_values, default_collation_fn
from webdataset.filters.batches import check_shapes
from webdataset.filters.stacking import stacked_arrays, stacked_tensors


def collated_as_torch(samples: list[Any]) -> Any:
    """As torch does, if the program uses it; else as `batched` does, for numbers and arrays too.

    >>> collated_as_torch([("a", 1), ("b", 2)])[0]
    ('a', 'b')
    """
    if "torch.utils.data" in sys.modules:
        try:
            return _joined(samples)
        except RuntimeError as error:
            check_shapes(samples)
            raise error from None
    if isinstance(samples[0], (tuple, list, Mapping)):
        return default_collation_fn(samples)
    return combine_values(samples)


def converted_as_torch(item: object) -> Any:
    """As torch passes on items that it does not collate: arrays as tensors, if the program uses torch."""
    data = sys.modules.get("torch.utils.data")
    return item if data is None else data.default_convert(item)


def _joined(values: Sequence[Any]) -> Any:
    """What torch's default_collate makes of the values."""
    torch, first = sys.modules["torch"], values[0]
    if type(first) is dict:
        return {name: _joined([value[name] for value in values]) for name in first}
    if type(first) in (tuple, list):
        if any(len(value) != len(first) for value in values):
            raise BatchError("the samples of a batch have different numbers of values")
        return [_joined(column) for column in zip(*values, strict=True)]
    if _alike(values, torch.Tensor):
        return stacked_tensors(values)
    numpy = sys.modules.get("numpy")
    if numpy is not None and _alike(values, numpy.ndarray) and first.dtype.kind in "biufc":
        return torch.as_tensor(stacked_arrays(values))
    return torch.utils.data.default_collate(values)


def _alike(values: Sequence[Any], kind: object) -> bool:
    """Are these all of this very type, of one shape and type of values?"""
    first = values[0]
    return type(first) is kind and all(
        type(each) is kind and each.shape == first.shape and each.dtype == first.dtype for each in values
    )
