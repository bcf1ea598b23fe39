"""What Keras, Lightning, Accelerate and the HF Trainer look for in a loader.

They take a loader for torch's DataLoader by isinstance(), read its attributes, and some build a new DataLoader out of
those. So the attributes describe a loader over finished batches: whatever is built from them gives the same batches,
from the same workers.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Self

from webdataset.base.iterables import TorchIterable


class DataLoaderFacade:
    """Mixin that makes a loader look like torch's DataLoader."""

    _torch_names: tuple[str, ...] = ("DataLoader", "IterableDataset")

    batch_size: Any = None
    batch_sampler: Any = None
    num_workers: int = 0
    drop_last: bool = False
    pin_memory: bool = False
    pin_memory_device: str = ""
    timeout: float = 0
    worker_init_fn: Callable[[int], object] | None = None
    multiprocessing_context: Any = None
    generator: Any = None
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    in_order: bool = True

    length = -1
    _adopted = False
    _shown: dict[str, Any] | None = None
    """The state after the batch that the program has, when the one after it was taken already."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        batches = getattr(args[0], "dataset", None) if args else None
        if isinstance(batches, Batches):  # made again from another loader's description
            self.length = batches.known_length()
        self._describe()

    def __copy__(self) -> Self:
        result: Self = super().__copy__()  # type: ignore[misc]
        result._describe()
        return result

    @property
    def dataset(self) -> Batches:
        """The batches as a dataset, for frameworks that put a loader of their own around it."""
        return Batches(copy.copy(self))

    def _describe(self) -> None:
        """Lightning makes a loader again from what vars() says; held weakly, as this is a part of the loader."""
        vars(self).update(dataset=_OwnBatches(weakref.proxy(self)), batch_size=None)

    @property
    def sampler(self) -> Epochs:
        """Lightning tells the epoch to a loader's sampler."""
        return Epochs(self)

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        """The batches are made already."""
        return batch

    @property
    def _is_accelerate_prepared(self) -> bool:
        """`accelerator.prepare(loader)` asks for this, and would split the data a second time if it were not so.

        From then on the batches come on the accelerator's device, and it is told of the end of an epoch.
        """
        self._adopted = True
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        pass

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether `accelerator.save_state()` is to save the loader's state."""
        workers = getattr(self, "_workers", None)
        return workers is not None and bool(workers.resumes_steps)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, after the latest batch that it gave: small, and fit for JSON."""
        return super().state_dict() if self._shown is None else self._shown  # type: ignore[misc]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next pass go on where the state was saved."""
        self._shown = None
        super().load_state_dict(state)  # type: ignore[misc]

    def __iter__(self) -> Iterator[Any]:
        batches: Iterator[Any] = super().__iter__()  # type: ignore[misc]
        if self._adopted and "accelerate" in sys.modules:
            return _on_the_device(self._one_behind(batches) if self.use_stateful_dataloader else batches)
        return batches

    def _one_behind(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Batches for a reader that takes one more than it has given: the state is that of the one given."""
        loader: Any = self
        self._shown = None
        before = loader.state_dict()
        for batch in batches:
            self._shown = None
            self._shown, before = before, loader.state_dict()
            yield batch
        self._shown = None


class Batches(TorchIterable):
    """The batches of a loader, as a dataset.

    >>> from webdataset import WebLoader
    >>> list(WebLoader("abc", batch_size=2, collate_fn="".join, workers="thread").dataset)
    ['ab', 'c']
    """

    def __new__(cls, loader: Any) -> Batches:
        return super().__new__(_SizedBatches if cls is Batches and hasattr(loader, "__len__") else cls)

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def known_length(self) -> int:
        """How many batches there are, or -1."""
        return len(self._loader) if hasattr(self._loader, "__len__") else -1

    def __getattr__(self, name: str) -> Any:
        """State and epoch are the loader's."""
        if name in ("set_epoch", "state_dict", "load_state_dict", "stats"):
            return getattr(self._loader, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class _SizedBatches(Batches):
    """Those whose number is known: only a class that has `__len__` has a length to those who ask with hasattr()."""

    def __len__(self) -> int:
        return len(self._loader)


class _OwnBatches(Batches):
    """Those of a loader that it is a part of itself."""

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return list, ()  # nobody sees it: the loader's property comes first


class Epochs:
    """Passes the epoch on, for those who tell it to the sampler."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the loader's next pass."""
        self._loader.set_epoch(epoch)


class _Once(TorchIterable):
    """An iterator as a dataset that is read once."""

    def __init__(self, items: Iterator[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return self.items


def _on_the_device(batches: Iterator[Any]) -> Iterator[Any]:
    """As Accelerate's own loader gives them, which also tells its gradient accumulation of the last batch."""
    from accelerate import PartialState
    from accelerate.data_loader import DataLoaderShard

    return iter(DataLoaderShard(_Once(batches), device=PartialState().device, batch_size=None))
