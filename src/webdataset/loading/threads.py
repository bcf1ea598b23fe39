"""ThreadLoader: what torch's DataLoader does, with threads instead of processes and without torch.

>>> list(ThreadLoader(["a", "b", "c"], batch_size=2, num_workers=2, collate_fn="".join))
['ab', 'c']
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from webdataset.base.iterables import TorchIterable
from webdataset.base.packages import loaded
from webdataset.base.pool import ordered_map
from webdataset.base.stages import pipelinefilter
from webdataset.codecs.packages import torch_if_installed
from webdataset.filters import listed
from webdataset.filters.batches import _collated, left_for_batch
from webdataset.handlers import handled
from webdataset.pipeline import DataPipeline
from webdataset.resume.positions import Threaded

from .collation import Collation, makes_tensors
from .pools import Pooled, pooled


class ThreadLoader:
    """Batches of a dataset, made by `num_workers` threads, in the order in which one thread would make them.

    Takes the arguments of torch's DataLoader. An iterable dataset is read by one thread and its per-sample stages are
    run by `num_workers`; of a dataset with indices, each thread fetches whole batches. `prefetch_factor` is how many
    batches may be waiting, in all.
    """

    def __init__(  # noqa: PLR0917 - the order of the arguments is the DataLoader's
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: object = None,
        generator: object = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size if batch_sampler is None else None
        self.num_workers = num_workers
        self.drop_last = drop_last
        self.generator = generator
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        batches = batch_size is not None or batch_sampler is not None
        self.collate_fn = collate_fn or Collation(makes_tensors(None), batches)
        self.prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self.indexed = _has_indices(dataset)
        _check_numbers(num_workers, self.batch_size, self.prefetch_factor)
        processes_only = {"timeout": timeout, "worker_init_fn": worker_init_fn, "context": multiprocessing_context}
        _refuse(processes_only, 'is for worker processes, and workers="thread" has none')
        if not self.indexed:
            samplers = {"shuffle": shuffle, "sampler": sampler, "batch_sampler": batch_sampler}
            _refuse(samplers, "is for datasets with indices; pipelines are shuffled with their method shuffle()")
        self.shuffle = bool(shuffle)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self._reading: DataPipeline | None = None
        self._start: Any = None
        """Where the next pass is to begin, if a state was loaded."""
        self._ended = True

    def __iter__(self) -> Iterator[Any]:
        return self._fetched() if self.indexed else self._streamed()

    def __len__(self) -> int:
        if self.batch_sampler is not None:
            return len(self.batch_sampler)  # type: ignore[arg-type]
        items = len(self.dataset if self.sampler is None else self.sampler)  # type: ignore[arg-type]
        if self.batch_size is None:
            return items
        return items // self.batch_size if self.drop_last else -(-items // self.batch_size)

    def stats(self) -> dict[str, Any]:
        """What the latest pass read, skipped and dropped, and why."""
        return (self._reading or DataPipeline()).stats()

    # -- iterable datasets -----------------------------------------------------------------------

    def _streamed(self) -> Iterator[Any]:
        reading = self._built()
        start, self._start = self._start, None
        if start is not None:
            reading.runner.seek(start)
        self._reading = reading
        yield from reading
        self._ended = True

    def _built(self) -> DataPipeline:
        """The pipeline of one pass."""
        reading = DataPipeline()
        self._ended = False
        source, finish = self._threaded(), self._finish()
        if self.batch_size is not None:
            stages = [source, listed(self.batch_size, not self.drop_last), _collated(finish)]
            reading.pipeline = stages if self.num_workers < 1 else pooled(stages, 1, batches=self.prefetch_factor)
        elif isinstance(finish, Collation) or self.num_workers < 1:
            reading.pipeline = [source, partial(map, finish)]
        else:
            reading.pipeline = [Pooled([source], [_applied(finish)], threads=1, ahead=self.prefetch_factor, group=1)]
        return reading

    def position(self) -> Threaded:
        """Where a streamed dataset is."""
        following, reading = self.dataset.runner.next_position(), self._reading
        if self._start is not None or reading is None or self._ended:
            return Threaded(following, self._start)
        return Threaded(following, reading.runner.position())

    def finish_pass(self) -> None:
        """The pass that is under way is of no interest any more."""
        self._start, self._ended = None, True

    def seek(self, position: Threaded) -> None:
        """Make the next pass begin after the item that a position was given with."""
        self._start = position.current
        self.dataset.runner.seek(position.following)
        self._ended = True

    def _threaded(self) -> Any:
        """The dataset, with its stages run by threads; it counts its passes in common with the one that was given."""
        if self.num_workers < 1:
            return self.dataset
        piped = isinstance(self.dataset, DataPipeline)
        threaded = copy.copy(self.dataset) if piped else DataPipeline(self.dataset)
        if piped:
            self.dataset.runner.detach()
        stages = [left_for_batch(stage, threaded.pipeline) for stage in threaded.pipeline]
        threaded.pipeline = pooled(stages, self.num_workers, batches=self.prefetch_factor)
        return threaded

    # -- datasets with indices -------------------------------------------------------------------

    def _fetched(self) -> Iterator[Any]:
        fetch = partial(_fetch, self.dataset, self._finish(), self._batches)
        if self.num_workers < 1:
            return map(fetch, self._indices())
        ahead = self.num_workers - 1 + self.prefetch_factor
        return ordered_map(self._indices(), fetch, threads=self.num_workers, ahead=ahead)

    @property
    def _batches(self) -> bool:
        return self.batch_size is not None or self.batch_sampler is not None

    def _indices(self) -> Iterator[Any]:
        """The indices, or lists of them, in this pass's order."""
        if self.batch_sampler is not None:
            return iter(self.batch_sampler)
        indices = iter(self.sampler if self.sampler is not None else self._order())
        return indices if self.batch_size is None else listed(self.batch_size, not self.drop_last)(indices)

    def _order(self) -> Iterable[int]:
        count = len(self.dataset)
        torch = loaded("torch")
        if not self.shuffle:
            return range(count)
        if torch is None:
            return random.sample(range(count), count)
        order: list[int] = torch.randperm(count, generator=self.generator).tolist()
        return order

    # -- batches ---------------------------------------------------------------------------------

    def _finish(self) -> Callable[[Any], Any]:
        """What makes a batch of a list of samples; without batches, what is done to each item."""
        return partial(_pinned, self.collate_fn) if self.pin_memory and has_cuda() else self.collate_fn


@pipelinefilter(kind="each")
def _applied(data: Iterable[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    return handled(data, function)


def _fetch(dataset: Any, finish: Callable[[Any], Any], batches: bool, index: Any) -> Any:
    return finish([dataset[i] for i in index] if batches else dataset[index])


def _pinned(finish: Callable[[Any], Any], samples: object) -> Any:
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(finish(samples))


def has_cuda() -> bool:
    """Whether torch is installed, and there is a GPU."""
    torch = torch_if_installed()
    return torch is not None and torch.cuda.is_available()


def _has_indices(dataset: object) -> bool:
    """Is this what torch calls a map-style dataset?"""
    iterable = getattr(loaded("torch.utils.data"), "IterableDataset", ())
    if isinstance(dataset, (TorchIterable, *([iterable] if iterable else []))):
        return False
    return hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")


def _check_numbers(num_workers: int, batch_size: int | None, prefetch_factor: int) -> None:
    if num_workers < 0:
        raise ValueError(f"num_workers must be at least 0, got {num_workers}")
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, or None for no batches, got {batch_size}")
    if prefetch_factor < 1:
        raise ValueError(f"prefetch_factor must be at least 1, got {prefetch_factor}")


def _refuse(options: dict[str, Any], reason: str) -> None:
    for name, value in options.items():
        if value:
            raise ValueError(f"{name}={value!r} {reason}")
