"""What loaders make of samples and items: as torch does it, into reused memory; as `batched` does it, without tensors.

torch's own collation makes fresh memory for every batch, and in worker processes a file of shared memory for each of
its tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from webdataset.codecs.packages import torch_if_installed, torch_package
from webdataset.filters import BatchError, combine_values, default_collation_fn
from webdataset.filters.batches import check_shapes
from webdataset.filters.stacking import stacked_arrays, stacked_tensors


@dataclass(frozen=True)
class Collation:
    """What a loader does that was given no `collate_fn`: to the samples of a batch, or to each item as it comes.

    >>> Collation(tensors=False, batches=True)([("a", 1), ("b", 2)])
    (['a', 'b'], array([1, 2]))
    """

    tensors: bool
    """Whether numbers and arrays become tensors, as in torch's own loader."""
    batches: bool

    def __call__(self, given: Any) -> object:
        if self.batches:
            return collated_as_torch(given) if self.tensors else collated_as_arrays(given)
        return converted_as_torch(given) if self.tensors else given


def makes_tensors(chosen: bool | None) -> bool:
    """Whether a loader makes tensors: as was chosen, else if torch is installed, whether or not it is imported yet."""
    if chosen not in (True, False, None):
        raise ValueError(f"tensors is True or False, got {chosen!r}")
    if chosen:
        torch_package()
    return torch_if_installed() is not None if chosen is None else chosen


def collated_as_torch(samples: list[Any]) -> object:
    """As torch does; an error names what does not fit.

    >>> collated_as_torch([("a", 1), ("b", 2)])[0]
    ('a', 'b')
    """
    try:
        return _joined(samples)
    except RuntimeError as error:
        check_shapes(samples)
        raise error from None


def collated_as_arrays(samples: list[Any]) -> object:
    """As `batched` does, for numbers and arrays too."""
    if isinstance(samples[0], (tuple, list, Mapping)):
        return default_collation_fn(samples)
    return combine_values(samples)


def converted_as_torch(item: object) -> object:
    """As torch passes on items that it does not collate: arrays as tensors."""
    from torch.utils.data import default_convert

    return default_convert(item)


def as_it_is(item: object) -> object:
    """The item."""
    return item


def _joined(values: Sequence[Any]) -> Any:
    """What torch's default_collate makes of the values."""
    import torch.utils.data

    first = values[0]
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
