"""What a mixture of datasets is to those who run it: its datasets, their weights, and whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .iterables import TorchIterable


class Turns:
    """Where a mixture is: how many turns were taken, and which datasets have ended."""

    def __init__(self, taken: int = 0, ended: Iterable[int] = ()) -> None:
        self.taken = taken
        self.ended = list(ended)


class Mixture(TorchIterable):
    """Several datasets whose samples come mixed."""

    datasets: Sequence[Iterable[Any]]
    longest: bool
    samples: int | None = None
    seed: Any = None

    @property
    def weights(self) -> tuple[float, ...] | None:
        """How often each dataset is drawn; None if they take turns."""
        return None

    @property
    def exact(self) -> bool:
        """Whether all datasets have exact epochs; their samples are then mixed by a plan."""
        exact = [bool(getattr(dataset, "exact", False)) for dataset in self.datasets]
        if any(exact) and not all(exact):
            raise ValueError("a mixture is exact if all its datasets are WebDataset(..., exact=True), or none is")
        return any(exact)

    def started(self, sources: Sequence[Iterable[Any]], turns: Turns) -> Iterator[Any]:
        """Items of these sources from a place on; `turns` is where it is at any time."""
        raise NotImplementedError
