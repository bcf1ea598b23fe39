"""Dask: a cluster that is running, one that dask-jobqueue starts, or one in this process."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from webdataset.base.packages import package
from webdataset.base.stops import Bell
from webdataset.runs.options import TaskOptions
from webdataset.runs.runs import Submission

from .base import SHELF, EngineError, FuturesEngine, causes, cores, do_task, refused, task_arguments, workers_here

PATIENCE = "20s"


class DaskEngine(FuturesEngine):
    """Submits each task as a future, to the cluster of a Client if one is given.

    The cluster of this process has threads, not processes: shards are done by processes in any case, which the threads
    look after.
    """

    name = "dask"
    _cluster: Any = None
    """Made for this run."""

    def __init__(self, options: TaskOptions, client: Any = None) -> None:
        super().__init__(options)
        self.check_own("cluster", "cluster_options")
        self._client, self._is_lent = client, client is not None
        if client is not None and not isinstance(client, _distributed().Client):
            raise TypeError(f"on= is the name of an engine or a Client of Dask, got {client!r}")
        if client is not None and client.asynchronous:
            raise EngineError("this Dask Client is asynchronous", hint="give one without asynchronous=True")
        self._resources = _resources(options)
        self._is_checked = False
        self._news = False
        """Whether a future has ended."""
        self._changed = Bell()

    def connect(self) -> None:
        if self._find():
            return
        if "cluster" in self.own:
            self._cluster = self._job_queue(self.own["cluster"])
        else:
            self._cluster = self._cluster_here()
        self._client = self._client_of(self._cluster)

    def _find(self) -> bool:
        """Connect to a cluster that is there: at an address, or that of the program's Client."""
        if self._client is None and (address := self._address()) is not None:
            self._client = self._client_of(address)
        elif self._client is None and "cluster" not in self.own:
            with contextlib.suppress(ValueError):  # there is none
                self._client, self._is_lent = _distributed().default_client(), True
        if self._client is None:
            return False
        if not self._is_checked and self._cluster is None:
            self._check_resources()
        self._is_checked = True
        return True

    @property
    def is_shared(self) -> bool:  # type: ignore[override]
        return self._cluster is None

    def _address(self) -> str | None:
        """Return the address of a scheduler: the user's, else what DASK_SCHEDULER_ADDRESS or Dask's own files say."""
        if self.options.address or "cluster" in self.own:
            return self.options.address
        _distributed()
        found: str | None = import_module("dask").config.get("scheduler-address", None)
        return found

    def _client_of(self, cluster: object) -> object:
        distributed = _distributed()
        is_secured = isinstance(cluster, str) and cluster.startswith("tls:")
        if is_secured and distributed.Security().get_connection_args("client")["ssl_context"] is None:
            raise refused("Dask", cluster, CERTIFICATES)  # the Client would raise a TypeError, and wait
        try:
            return distributed.Client(cluster, timeout=PATIENCE, set_as_default=False)
        except (OSError, TimeoutError) as error:
            if any(isinstance(cause, ssl.SSLError) for cause in causes(error)):
                raise refused("Dask", cluster, CERTIFICATES) from error
            hint = "is the scheduler running? `dask scheduler` prints its address, which may begin with tls://"
            raise EngineError(f"no Dask scheduler answers at {cluster}", hint=hint) from error

    def _job_queue(self, kind: str) -> object:
        jobqueue = package("dask_jobqueue", extra="dask", purpose=f"to start a {kind}")
        options = self.own.get("cluster_options", {})
        self._resources.pop("MEMORY", None)
        for name, amount in self._resources.items():
            if f"{name}=" not in str(options):
                words = f"worker_extra_args = ['--resources', '{name}={amount}']"
                raise _not_offered(name, amount, f"[dask] cluster_options = {{ {words} }}")
        cluster = getattr(jobqueue, kind)(**options)
        cluster.scale(self.options.workers or cores())
        return cluster

    def _cluster_here(self) -> object:
        workers = workers_here(self.options)
        own = {"n_workers": 1, "threads_per_worker": workers, "processes": False, "dashboard_address": "127.0.0.1:0"}
        resources = {name: amount * workers for name, amount in self._resources.items()}
        return _distributed().LocalCluster(**own, resources=resources, protocol="tcp://", host="127.0.0.1")

    def _check_resources(self) -> None:
        """Refuse what no worker offers, for which tasks would wait; memory need not be offered, since it is limited."""
        offers = [offer for _, offer in self._offers()]
        if offers and not any("MEMORY" in offer for offer in offers):
            self._resources.pop("MEMORY", None)
        for name, amount in self._resources.items():
            if offers and max(offer.get(name, 0) for offer in offers) < amount:
                raise _not_offered(name, amount, f"start workers with --resources '{name}={amount}'")

    def _offers(self) -> list[tuple[int, dict[str, float]]]:
        """Return how many threads each worker has, and its resources."""
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return [(worker["nthreads"], worker["resources"]) for worker in workers]

    def places(self) -> int:
        if not self._find():
            return 0 if "cluster" in self.own else workers_here(self.options)
        return sum(int(min([threads, *self._fitting(offer)])) for threads, offer in self._offers())

    def _fitting(self, offer: dict[str, float]) -> Iterator[float]:
        """Yield how many tasks each of these resources is enough for."""
        return (offer.get(name, 0) // amount for name, amount in self._resources.items())

    def start(self, submission: Submission, numbers: list[int]) -> object:
        given = (self.options.memory, *task_arguments(submission, numbers))
        options = {"pure": False, "retries": self.options.retries, "resources": self._resources or None}
        future = self._client.submit(_task, *given, **options)
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
        for each in (None if self._is_lent else self._client, self._cluster):
            if each is not None:
                each.close()
        self._client = self._cluster = None
        SHELF.clear()  # of a cluster in this process


CERTIFICATES = "name them in Dask's configuration: distributed.comm.tls.ca-file, client.cert and client.key"


def _distributed() -> ModuleType:
    return package("distributed", extra="dask", purpose="to run on Dask")


def _resources(options: TaskOptions) -> dict[str, int]:
    """Return what a task takes of its worker besides a thread, by the names that Dask's documentation has for it."""
    asked = {"CPU": options.cpus if options.cpus > 1 else 0, "GPU": options.gpus, "MEMORY": options.memory or 0}
    return {name: amount for name, amount in asked.items() if amount}


def _not_offered(name: str, amount: int, hint: str) -> EngineError:
    return EngineError(f"no worker of this Dask cluster has {name}={amount}", hint=hint)


def _task(memory: int | None, plan: str, task: str, numbers: list[int], tried: dict[int, int]) -> int:
    return do_task(plan, task, numbers, tried, threading.get_ident(), memory=memory)


ENGINE = DaskEngine
