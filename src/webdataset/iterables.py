"""Datasets that torch takes for its own IterableDataset, without our importing torch.

torch asks with isinstance(), which looks at `__class__` when it does not know the type. So that is where a class
is registered with torch, if the program has imported torch by then, before or after us.
"""

from __future__ import annotations

import sys
from typing import Any, Self

real_class = object.__dict__["__class__"]


class TorchIterable:
    """Base class of our datasets: an iterable that a torch DataLoader accepts."""

    @property
    def __class__(self) -> type[Self]:
        kind = type(self)
        register_iterable(kind)
        return kind

    @__class__.setter
    def __class__(self, kind: type) -> None:
        real_class.__set__(self, kind)


def register_iterable(kind: type) -> None:
    """Let torch, if the program has it, see this class as an IterableDataset."""
    dataset: Any = getattr(sys.modules.get("torch.utils.data"), "IterableDataset", None)
    if dataset is not None and not issubclass(kind, dataset):
        dataset.register(kind)
