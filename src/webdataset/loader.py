"""WebLoader: torch's DataLoader, or threads, with the fluent methods and with the workers' reports."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterator
from typing import Any, Self

from .errors import MissingPackageError
from .fluid import FluidInterface
from .pipeline import DataPipeline
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
        make = _data_loader if workers == "process" else ThreadLoader
        super().__init__(make(dataset, *args, **kw))
        in_processes = workers == "process" and isinstance(dataset, DataPipeline)
        self._worker_reports = _Reports() if in_processes else None
        if self._worker_reports is not None:
            dataset._report_folder = self._worker_reports.folder

    def iterator1(self) -> Iterator[Any]:
        if self._worker_reports is not None:
            self._worker_reports.clear()
        return super().iterator1()

    def stats(self) -> dict[str, Any]:
        """What the latest pass read, skipped and dropped, over all workers, and why."""
        total = Report()
        total.add(super().stats())
        loader = self.pipeline[0]
        if self._worker_reports is not None and loader.num_workers > 0:
            for report in self._worker_reports:
                total.add(report)
        elif self._worker_reports is not None:
            total.add(loader.dataset.stats())
        return total.as_dict()

    def set_epoch(self, epoch: int) -> Self:
        """Make this the epoch of the next pass, in the dataset and all its workers."""
        inner = getattr(self.pipeline[0].dataset, "set_epoch", None)
        if callable(inner):
            inner(epoch)
        return super().set_epoch(epoch)


class _Reports:
    """A folder in which workers leave their reports; it goes when the last loader that shares it goes."""

    def __init__(self) -> None:
        import shutil
        import tempfile

        self.folder = tempfile.mkdtemp(prefix="webdataset-reports-")
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".json"):
                with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                    yield json.load(file)

    def clear(self) -> None:
        """Forget the workers of an earlier pass."""
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))


def _data_loader(*args: Any, **kw: Any) -> Any:
    try:
        from torch.utils.data import DataLoader
    except ImportError as exn:
        hint = 'pip install torch, or use threads: WebLoader(..., workers="thread")'
        raise MissingPackageError("worker processes need torch's DataLoader", hint=hint) from exn
    return DataLoader(*args, **kw)
