"""WebLoader: torch's DataLoader with the fluent methods and with the workers' reports."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

from .errors import MissingPackageError
from .fluid import FluidInterface
from .pipeline import DataPipeline
from .reports import Report


class WebLoader(DataPipeline, FluidInterface):
    """A DataLoader whose batches can be unbatched, shuffled and batched again, and counted.

    Takes the arguments of `torch.utils.data.DataLoader`.

    >>> loader = WebLoader([1, 2, 3, 4], batch_size=2).with_epoch(3)
    >>> [batch.tolist() for batch in loader]
    [[1, 2], [3, 4], [1, 2]]
    """

    def __init__(self, *args: Any, **kw: Any) -> None:
        super().__init__(_data_loader(*args, **kw))
        self._watch(self.pipeline[0].dataset)

    def iterator1(self) -> Iterator[Any]:
        if self._worker_folder is not None:
            _empty(self._worker_folder)
        return super().iterator1()

    def stats(self) -> dict[str, Any]:
        """What the latest pass read, skipped and dropped, over all workers, and why."""
        total = Report()
        total.add(super().stats())
        if self._worker_folder is None:
            return total.as_dict()
        loader = self.pipeline[0]
        if loader.num_workers == 0:
            total.add(loader.dataset.stats())
            return total.as_dict()
        for report in _reports(self._worker_folder):
            total.add(report)
        return total.as_dict()

    def _watch(self, dataset: Any) -> None:
        """Have the workers leave their reports in a folder that goes when the loader goes."""
        self._worker_folder: str | None = None
        if isinstance(dataset, DataPipeline):
            folder = tempfile.mkdtemp(prefix="webdataset-reports-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._worker_folder = dataset._report_folder = folder


def _data_loader(*args: Any, **kw: Any) -> Any:
    try:
        from torch.utils.data import DataLoader
    except ImportError as exn:
        raise MissingPackageError("WebLoader is built on torch's DataLoader", hint="pip install torch") from exn
    return DataLoader(*args, **kw)


def _reports(folder: str) -> Iterator[dict[str, Any]]:
    for name in sorted(os.listdir(folder)):
        if name.endswith(".json"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield json.load(file)


def _empty(folder: str) -> None:
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
