"""Ray: a cluster that is running, or one of this machine."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from webdataset.base.settings import settings
from webdataset.codecs.packages import package
from webdataset.runs.runs import Submission

from .base import EngineError, FuturesEngine, do_task

PATIENCE = 10.0
"""Seconds for a cluster to answer."""


class RayEngine(FuturesEngine):
    """Submits each task as a remote function."""

    name = "ray"
    _ray: Any = None
    _remote: Any = None
    _started = False

    def connect(self) -> None:
        if self._ray is not None:
            return
        self.check_own("init", "remote")
        settings.set_default("RAY_USAGE_STATS_ENABLED", "0")
        settings.set_default("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # warns otherwise
        ray = package("ray", extra="ray", purpose="to run on Ray")
        if not ray.is_initialized():
            self._init(ray)
        self._ray = ray
        resources: dict[str, Any] = {"num_cpus": self.options.cpus, "max_retries": self.options.retries}
        if self.options.gpus:
            resources["num_gpus"] = self.options.gpus
        if self.options.memory:
            resources["memory"] = self.options.memory
        self._remote = ray.remote(**resources | self.own.get("remote", {}))(do_task)

    def _init(self, ray: ModuleType) -> None:
        given: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        if self.options.address:
            given["address"] = self.options.address
        else:
            # `local`: never one that happens to run here
            given |= {"address": "local", "include_dashboard": False, "num_cpus": self.options.workers}
        try:
            _check_answers(self.options.address or "")
            ray.init(**given | self.own.get("init", {}))
        except (OSError, RuntimeError, ValueError) as error:
            hint = "is the cluster running? `ray status` tells, `ray start --head` starts one"
            place = f" at {self.options.address}" if self.options.address else ""
            raise EngineError(f"no Ray cluster answers{place}", hint=hint) from error
        self._started = True

    def start(self, submission: Submission, numbers: list[int]) -> object:
        return self._remote.remote(submission.plan.url, submission.id, numbers)

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


def _check_answers(address: str) -> None:
    """Raise OSError if nobody listens there; Ray itself tries for minutes, then ends the program."""
    found = re.fullmatch(r"(?:ray://)?\[?([^/\]]+?)\]?:(\d+)", address)
    if found is not None:
        socket.create_connection((found[1], int(found[2])), PATIENCE).close()


ENGINE = RayEngine
