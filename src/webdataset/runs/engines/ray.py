"""Ray: a cluster that is running, or one of this machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from typing import Any

from webdataset.base.packages import package
from webdataset.base.settings import settings
from webdataset.runs.runs import Submission

from .base import EngineError, FuturesEngine, causes, do_task, refused, task_arguments, workers_here

PATIENCE = 10.0
"""Seconds for a cluster to answer."""


class RayEngine(FuturesEngine):
    """Submits each task as a remote function."""

    name = "ray"
    _ray: Any = None
    _remote: Any = None
    _started = False
    is_shared = True

    def connect(self) -> None:
        if not self._find():
            self._init("local", include_dashboard=False, **self._size())
        own = dict(self.own.get("remote", {}))
        if not self._started and "runtime_env" in self.own:
            own.setdefault("runtime_env", self.own["runtime_env"])
        self._remote = self._ray.remote(**self._needs() | own)(do_task)

    def _find(self) -> bool:
        """Connect to a cluster that is there: the one that this process uses already, or at an address."""
        if self._ray is not None:
            return True
        self.check_own("init", "remote", "runtime_env")
        settings.set_default("RAY_USAGE_STATS_ENABLED", "0")
        settings.set_default("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # warns otherwise
        ray = package("ray", extra="ray", purpose="to run on Ray")
        if ray.is_initialized():
            self._ray = ray
        elif address := self.options.address or settings.ray_address:
            self._init(address)
        return self._ray is not None

    def _init(self, address: str, **size: int) -> None:
        ray = package("ray", extra="ray", purpose="to run on Ray")
        given: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        given |= {"address": address, **size} | {name: self.own[name] for name in ("runtime_env",) if name in self.own}
        try:
            _check_answers(address)
            ray.init(**given | self.own.get("init", {}))
        except (OSError, RuntimeError, ValueError, getattr(ray.exceptions, "AuthenticationError", OSError)) as error:
            place = "" if address == "local" else address
            if any(_is_refusal(cause) for cause in causes(error)):
                hint = "RAY_AUTH_MODE=token, and the cluster's token in RAY_AUTH_TOKEN or ~/.ray/auth_token"
                raise refused("Ray", place, hint) from error
            hint = "is the cluster running? `ray status` tells, `ray start --head` starts one"
            raise EngineError(f"no Ray cluster answers{f' at {place}' if place else ''}", hint=hint) from error
        self._ray, self._started = ray, True
        self.is_shared = address != "local"

    def _needs(self) -> dict[str, int]:
        """Return what a task needs."""
        needs = {"num_cpus": self.options.cpus, "max_retries": self.options.retries}
        if self.options.gpus:
            needs["num_gpus"] = self.options.gpus
        if self.options.memory:
            needs["memory"] = self.options.memory
        return needs

    def _size(self) -> dict[str, int]:
        """Return what a cluster of this machine has: room for the tasks that run at a time."""
        workers = workers_here(self.options)
        size = {"num_cpus": workers * self.options.cpus}
        return size | ({"_memory": workers * self.options.memory} if self.options.memory else {})

    def places(self) -> int:
        if not self._find():
            return workers_here(self.options)
        needs = {"CPU": self.options.cpus, "GPU": self.options.gpus, "memory": self.options.memory}
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return sum(int(min(node.get(name, 0) // n for name, n in needs.items() if n)) for node in nodes)

    def start(self, submission: Submission, numbers: list[int]) -> object:
        return self._remote.remote(*task_arguments(submission, numbers))

    def ended(self, futures: list[Any], seconds: float) -> tuple[Iterable[Any], list[Any]]:
        done, others = self._ray.wait(futures, num_returns=len(futures), timeout=0)
        if not done:
            done, others = self._ray.wait(futures, num_returns=1, timeout=seconds)
        return done, others

    def error_of(self, future: object) -> str:
        try:
            self._ray.get(future)
        except Exception as error:
            return " ".join(f"{type(error).__name__}: {error}".split())[:500]
        return ""

    @property
    def running(self) -> int:
        if self._ray is None or not self._futures:
            return 0
        total, free = self._ray.cluster_resources().get("CPU", 0), self._ray.available_resources().get("CPU", 0)
        return min(int((total - free) / max(self.options.cpus, 1)), len(self._futures))

    def cancel(self) -> None:
        self._exhausted = True
        for future in self._futures:
            self._ray.cancel(future, force=True)
        self._futures = []
        self.close()

    def close(self) -> None:
        if self._started:
            self._ray.shutdown()
            self._started = False
        self._ray = None


def _is_refusal(error: BaseException) -> bool:
    """Whether Ray says that a token is missing or wrong, for which it mostly has no exception of its own."""
    text = f"{type(error).__name__} {error}".lower()
    return "authenticationerror" in text or "unauthenticated" in text


def _check_answers(address: str) -> None:
    """Raise OSError if nobody listens there; Ray itself tries for minutes, then ends the program."""
    found = re.fullmatch(r"(?:ray://)?\[?([^/\]]+?)\]?:(\d+)", address)
    if found is not None:
        socket.create_connection((found[1], int(found[2])), PATIENCE).close()


ENGINE = RayEngine
