"""WebLoader: torch's DataLoader, or threads, with the fluent methods and with the workers' reports."""

from __future__ import annotations

from typing import Any, Self

from .fluid import FluidInterface
from .mailbox import Mailbox
from .pipeline import DataPipeline
from .processloader import process_loader
from .reports import Report
from .threadloader import ThreadLoader


class WebLoader(DataPipeline, FluidInterface):
    """A DataLoader whose batches can be unbatched, shuffled and batched again, and counted.

    Takes the arguments of `torch.utils.data.DataLoader`. With `workers="thread"` the workers are threads of this
    process instead of processes, and torch is not needed.

    >>> loader = WebLoader([1, 2, 3, 4], batch_size=2, num_workers=2, workers="thread").with_epoch(3)
    >>> [list(map(int, batch)) for batch in loader]
    [[1, 2], [3, 4], [1, 2]]
    """

    def __init__(self, dataset: Any, *args: Any, workers: str = "process", **kw: Any) -> None:
        if workers not in ("process", "thread"):
            raise ValueError(f'workers must be "process" or "thread", got {workers!r}')
        in_processes = workers == "process"
        self._mailbox = Mailbox() if in_processes and isinstance(dataset, DataPipeline) else None
        if self._mailbox is not None:
            dataset._report_folder = self._mailbox.folder
        if in_processes:
            super().__init__(process_loader(dataset, *args, mailbox=self._mailbox, **kw))
        else:
            super().__init__(ThreadLoader(dataset, *args, **kw))

    def stats(self) -> dict[str, Any]:
        """What the latest pass read, skipped and dropped, over all workers, and why."""
        total = Report()
        total.add(super().stats())
        loader = self.pipeline[0]
        if self._mailbox is not None and loader.num_workers > 0:
            for report in self._mailbox.reports():
                total.add(report)
        elif self._mailbox is not None:
            total.add(loader.dataset.stats())
        return total.as_dict()

    def set_epoch(self, epoch: int) -> Self:
        """Make this the epoch of the next pass, in the dataset and all its workers."""
        inner = getattr(self.pipeline[0].dataset, "set_epoch", None)
        if callable(inner):
            inner(epoch)
        return super().set_epoch(epoch)
