"""WebLoader: torch's DataLoader, or threads, with the fluent methods and with the workers' reports."""

from __future__ import annotations

from typing import Any

from .base.reports import STAGES, Report, bound_by
from .fluid import FluidInterface
from .loading.choosing import chosen_workers
from .loading.frameworks import DataLoaderFacade
from .loading.loaded import LoadedRunner, open_loader
from .loading.workers import Workers
from .pipeline import DataPipeline, add_length_method

PROCESSES_ONLY = frozenset({"worker_init_fn", "multiprocessing_context", "timeout"})
"""Arguments that mean something for worker processes alone."""


class WebLoader(DataLoaderFacade, DataPipeline, FluidInterface):
    """A DataLoader whose batches can be unbatched, shuffled and batched again, and counted.

    Takes the arguments of `torch.utils.data.DataLoader`. With `workers="thread"` the workers are threads of this
    process instead of processes, and torch is not needed; `workers="auto"` takes threads if no stage may hold the GIL.

    >>> loader = WebLoader([1, 2, 3, 4], batch_size=2, num_workers=2, workers="thread").with_epoch(3)
    >>> [list(map(int, batch)) for batch in loader]
    [[1, 2], [3, 4], [1, 2]]
    """

    _workers: Workers
    """Who runs its passes; copies and compositions share them."""

    def __init__(self, dataset: Any, *args: Any, workers: str = "process", **kw: Any) -> None:
        if workers not in ("process", "thread", "auto"):
            raise ValueError(f'workers must be "process", "thread" or "auto", got {workers!r}')
        if workers == "auto":
            workers = "process" if PROCESSES_ONLY & kw.keys() else chosen_workers(dataset).workers
        loading = open_loader(dataset, args, kw, processes=workers == "process")
        self._workers = loading.workers
        self._mailbox = loading.mailbox
        super().__init__(loading.loader)
        if loading.exact:
            self.repetitions, self.nsamples = loading.repeated
            add_length_method(self)

    @property
    def runner(self) -> LoadedRunner:
        """What runs it."""
        return LoadedRunner(self, self._progress, DataPipeline, self._workers)

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
