"""Dask: a cluster that is running, one that dask-jobqueue starts, or one in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from webdataset.base.stops import Bell
from webdataset.codecs.packages import package
from webdataset.runs.options import TaskOptions
from webdataset.runs.runs import Submission

from .base import SHELF, EngineError, FuturesEngine, cores, do_task

PATIENCE = "20s"


class DaskEngine(FuturesEngine):
    """Submits each task as a future.

    The cluster of this process has threads, not processes: shards are done by processes in any case, which the threads
    look after.
    """

    name = "dask"
    _client: Any = None
    _cluster: Any = None

    def __init__(self, options: TaskOptions) -> None:
        super().__init__(options)
        self._news = False
        """Whether a future has ended."""
        self._changed = Bell()

    def connect(self) -> None:
        if self._client is not None:
            return
        self.check_own("cluster", "cluster_options")
        distributed = package("distributed", extra="dask", purpose="to run on Dask")
        try:
            self._client = distributed.Client(self._address(distributed), timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError) as error:
            hint = "is the scheduler running? `dask scheduler` prints its address"
            raise EngineError(f"no Dask scheduler answers at {self.options.address}", hint=hint) from error

    def _address(self, distributed: ModuleType) -> object:
        """Return what a client connects to."""
        if self.options.address:
            return self.options.address
        workers = self.options.workers or max(cores() // self.options.cpus, 1)
        kind = self.own.get("cluster")
        if kind is not None:
            package("dask_jobqueue", extra="dask", purpose=f"to start a {kind}")
            self._cluster = getattr(import_module("dask_jobqueue"), kind)(**self.own.get("cluster_options", {}))
            self._cluster.scale(workers)
        else:
            own = {
                "n_workers": 1,
                "threads_per_worker": workers,
                "processes": False,
                "dashboard_address": "127.0.0.1:0",
            }
            resources = {"GPU": self.options.gpus * workers} if self.options.gpus else None
            self._cluster = distributed.LocalCluster(**own, resources=resources, protocol="tcp://", host="127.0.0.1")
        return self._cluster

    def start(self, submission: Submission, numbers: list[int]) -> object:
        resources = {"GPU": self.options.gpus} if self.options.gpus else None
        again = self.options.retries
        given = (submission.plan.url, submission.id, numbers)
        future = self._client.submit(_task, *given, pure=False, retries=again, resources=resources)
        future.add_done_callback(self._hear)
        return future

    def _hear(self, _: object) -> None:
        self._news = True
        self._changed.ring()

    def ended(self, futures: list[Any], seconds: float) -> tuple[Iterable[Any], list[Any]]:
        # distributed.wait() looks at every future, in the thread that is to hear of them
        self._changed.wait(lambda: self._news, seconds)
        self._news = False
        done = {future.key for future in futures if future.done()}
        return [one for one in futures if one.key in done], [one for one in futures if one.key not in done]

    def error_of(self, future: Any) -> str:
        if future.status == "finished":
            return ""
        error = future.exception() if future.status == "error" else "it was cancelled"
        return " ".join(f"{type(error).__name__}: {error}".split())[:500]

    @property
    def running(self) -> int:
        if self._client is None or not self._futures:
            return 0
        return sum(map(len, self._client.processing().values()))

    def cancel(self) -> None:
        if self._client is not None:
            self._exhausted = True
            self._client.cancel(self._futures, force=True)
            self._futures = []
        self.close()

    def close(self) -> None:
        for each in (self._client, self._cluster):
            if each is not None:
                each.close()
        self._client = self._cluster = None
        SHELF.clear()  # of a cluster in this process


def _task(plan: str, submission: str, numbers: list[int]) -> int:
    return do_task(plan, submission, numbers, threading.get_ident())


ENGINE = DaskEngine
