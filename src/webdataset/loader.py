"""WebLoader: torch's DataLoader, or threads, with the fluent methods and with the workers' reports."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .base.behaviour import behaviour_of
from .base.mixing import Mixture
from .base.printing import did_you_mean
from .base.reports import STAGES, Report, bound_by
from .base.settings import settings
from .base.stages import argument_names
from .fluid import FluidInterface
from .loading.choosing import chosen_workers
from .loading.collation import Collation, makes_tensors
from .loading.frameworks import DataLoaderFacade
from .loading.loaded import LoadedRunner, open_loader
from .loading.workers import Workers
from .pipeline import DataPipeline, add_length_method

if TYPE_CHECKING:  # what it is taken for once torch is there, see base.iterables; programs say so in their types
    from torch.utils.data import DataLoader

    from .display.monitors import LoaderMonitor

    class _TorchLoader(DataLoader[Any]):  # type: ignore[misc]
        """torch's DataLoader, as type checkers see it."""

else:

    class _TorchLoader:
        """Nothing: torch is not imported."""


OURS = frozenset({"workers", "tensors"})
"""Arguments that a DataLoader does not have."""
WAYS = ("process", "thread", "auto")
PROCESSES_ONLY = frozenset({"worker_init_fn", "multiprocessing_context", "timeout"})
"""Arguments that mean something for worker processes alone."""


class WebLoader(DataLoaderFacade, DataPipeline, FluidInterface, _TorchLoader):
    """A DataLoader whose batches can be unbatched, shuffled and batched again, and counted.

    Takes the arguments of `torch.utils.data.DataLoader`. With `workers="thread"` the workers are threads of this
    process instead of processes, and torch is not needed; `workers="auto"` takes threads if no stage may hold the GIL.
    With either, numbers and arrays become tensors, as in torch's loader, if torch is installed; with `tensors=False`
    arrays stay arrays.

    Args:
        dataset: what the workers read; with batches made in it, pass `batch_size=None`
        batch_size: samples in a batch; None if the dataset makes batches
        shuffle: as for a `DataLoader`, for datasets with indices
        sampler: as for a `DataLoader`, for datasets with indices
        batch_sampler: as for a `DataLoader`, for datasets with indices
        num_workers: worker processes or threads; 0 reads in the thread that iterates
        collate_fn: makes a batch of a list of samples; with `batch_size=None`, is applied to each item
        pin_memory: put tensors into pinned memory
        drop_last: leave out a last batch that is smaller, of exact epochs unless `remainder="pad"` fills it up
        timeout: seconds to wait for a worker process; 0 waits for ever
        worker_init_fn: called with its number in each worker process
        multiprocessing_context: how worker processes are started
        generator: as for a `DataLoader`
        workers: "process", "thread" or "auto"
        tensors: whether arrays become tensors; if not given, they do where torch is installed
        prefetch_factor: batches that each worker makes ahead
        persistent_workers: keep worker processes from pass to pass
        pin_memory_device: as for a `DataLoader`
        in_order: as for a `DataLoader`
        **newer: arguments that a newer release of torch has added

    >>> loader = WebLoader([1, 2, 3, 4], batch_size=2, num_workers=2, workers="thread").with_epoch(3)
    >>> [list(map(int, batch)) for batch in loader]
    [[1, 2], [3, 4], [1, 2]]
    """

    _workers: Workers
    """Who runs its passes; copies and compositions share them."""

    def __init__(  # noqa: PLR0917 - the order of the arguments is the DataLoader's
        self,
        dataset: object,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: object = None,
        generator: object = None,
        *,
        workers: str = "process",
        tensors: bool | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        **newer: object,
    ) -> None:
        given = dict(locals())
        if workers not in WAYS:
            meant = did_you_mean(str(workers), WAYS)
            raise ValueError(f'workers must be "process", "thread" or "auto", got {workers!r}{meant}')
        options = {name: given[name] for name, usual in DEFAULTS.items() if given[name] != usual} | newer
        if workers == "auto":
            workers = "process" if PROCESSES_ONLY & options.keys() else chosen_workers(dataset).workers
        if newer:
            _refuse_unknown(newer, processes=workers == "process")
        _warn_of_batches_of_batches(dataset, options)
        if collate_fn is None:
            batches = batch_size is not None or batch_sampler is not None
            options["collate_fn"] = Collation(makes_tensors(tensors), batches)
        elif tensors is not None:
            raise ValueError("tensors= is for loaders without a collate_fn=, which decides by itself what it makes")
        loading = open_loader(dataset, options, processes=workers == "process")
        self._workers = loading.workers
        self._mailbox = loading.mailbox
        self._monitor: LoaderMonitor | None = None
        super().__init__(loading.loader)
        if loading.exact:
            self.repetitions, self.nsamples = loading.repeated
            add_length_method(self)

    @property
    def runner(self) -> LoadedRunner:
        """What runs it."""
        return LoadedRunner(self, self._progress, DataPipeline, self._workers)

    def __iter__(self) -> Iterator[Any]:
        if self._monitor is None and settings.monitor:
            self.monitor()
        items = super().__iter__()
        return items if self._monitor is None else self._monitor.watched(items)

    def monitor(self) -> LoaderMonitor:
        """Watch this loader from its next pass on: a table of what it does, in a notebook and in `wl view`.

        `WDS_MONITOR=1` does the same for every loader of a program; `WDS_MONITOR=FOLDER` publishes in a folder that
        several machines share.
        """
        if self._monitor is None:
            from .display.monitors import LoaderMonitor
            from .display.reprs import title

            self._monitor = LoaderMonitor(self.stats, title=title(self))
            if self._mailbox is not None:
                self._mailbox.watch()
        return self._monitor

    def stats(self) -> dict[str, Any]:
        """What the latest pass read, skipped and dropped, over all workers, and why, and what took how long.

        `"seconds"` has the time of each stage, added up over workers, which report once a second; `"bound_by"` says in
        a word what the run spends most of it with.
        """
        total = Report()
        total.add(super().stats())
        loader = self.pipeline[0]
        if self._mailbox is not None and loader.num_workers > 0:
            for report in self._mailbox.reports():
                total.add(report)
        if self._mailbox is not None and (loader.num_workers == 0 or getattr(loader.dataset, "read_by_loader", False)):
            total.add(loader.dataset.stats())
        if loader.num_workers == 0:  # whoever waits does the work
            total.spend("parse", max(0.0, total.spent("wait") - total.spent(*STAGES) + total.spent("wait", "consumer")))
        counts = total.as_dict()
        return {**counts, "bound_by": bound_by(counts["seconds"])}


def _defaults() -> dict[str, Any]:
    """The arguments of a DataLoader with what they are if they are not given."""
    function = WebLoader.__init__
    names = argument_names(function)[2:]
    positional = dict(zip(names, function.__defaults__ or (), strict=False))
    usual = positional | (function.__kwdefaults__ or {})
    return {name: usual[name] for name in names if name not in OURS}


DEFAULTS = _defaults()


def _refuse_unknown(newer: dict[str, Any], *, processes: bool) -> None:
    """Refuse arguments that neither we nor the DataLoader of this release of torch know."""
    known = set(DEFAULTS) | OURS
    if processes:
        from .loading.processes import loader_arguments

        known |= loader_arguments()
    for name in newer:
        if name not in known:
            raise TypeError(f"WebLoader() got an unexpected keyword argument {name!r}{did_you_mean(name, known)}")


def _warn_of_batches_of_batches(dataset: object, options: dict[str, Any]) -> None:
    """Warn of a loader that makes batches of batches, as it does if nobody tells it not to."""
    size = options.get("batch_size", 1)
    if size is not None and {"collate_fn", "batch_sampler"}.isdisjoint(options) and _makes_batches(dataset):
        text = f"the dataset makes batches, and this loader batches of {size} of those: say batch_size=None"
        warnings.warn(text, stacklevel=3)


def _makes_batches(dataset: object) -> bool:
    """Whether what a dataset gives are batches, as far as its stages say."""
    if isinstance(dataset, Mixture):
        return any(map(_makes_batches, dataset.datasets))
    if not isinstance(dataset, DataPipeline):
        return False
    for stage in reversed(dataset.pipeline):
        kind = behaviour_of(stage).kind
        if kind in {"collects", "buckets", "expands"}:
            return kind != "expands"
    return _makes_batches(next(iter(dataset.pipeline), None))
