"""WebLoader: torch's DataLoader, or threads, with the fluent methods and with the workers' reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .base.reports import Report
from .base.settings import settings
from .fluid import FluidInterface
from .loading.frameworks import DataLoaderFacade
from .loading.loaded import LoadedRunner, open_loader
from .loading.workers import Workers
from .pipeline import DataPipeline, add_length_method

if TYPE_CHECKING:
    from .display.monitors import LoaderMonitor


class WebLoader(DataLoaderFacade, DataPipeline, FluidInterface):
    """A DataLoader whose batches can be unbatched, shuffled and batched again, and counted.

    Takes the arguments of `torch.utils.data.DataLoader`. With `workers="thread"` the workers are threads of this
    process instead of processes, and torch is not needed.

    >>> loader = WebLoader([1, 2, 3, 4], batch_size=2, num_workers=2, workers="thread").with_epoch(3)
    >>> [list(map(int, batch)) for batch in loader]
    [[1, 2], [3, 4], [1, 2]]
    """

    _workers: Workers
    """Who runs its passes; copies and compositions share them."""

    def __init__(self, dataset: Any, *args: Any, workers: str = "process", **kw: Any) -> None:
        if workers not in ("process", "thread"):
            raise ValueError(f'workers must be "process" or "thread", got {workers!r}')
        loading = open_loader(dataset, args, kw, processes=workers == "process")
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
        """What the latest pass read, skipped and dropped, over all workers, and why."""
        total = Report()
        total.add(super().stats())
        loader = self.pipeline[0]
        if self._mailbox is not None and loader.num_workers > 0:
            for report in self._mailbox.reports():
                total.add(report)
        if self._mailbox is not None and (loader.num_workers == 0 or getattr(loader.dataset, "read_by_loader", False)):
            total.add(loader.dataset.stats())
        return total.as_dict()
