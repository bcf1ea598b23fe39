"""What a pass over a pipeline knows: its epoch, its seeds, and the report in which it counts.

A pipeline makes one context per pass and puts it in force while it builds its stages; each stage takes what it needs
when it is built. So nested and interleaved pipelines are apart, at no cost per sample.

>>> with PassContext(epoch=3).in_force():
...     current_pass().epoch
3
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .reports import Report, current_report, put_in_force
from .workers import make_seed, pytorch_worker_info


class PassContext:
    """What one pass knows."""

    def __init__(
        self,
        *,
        epoch: int = 0,
        strict: bool | None = None,
        base_seed: int | None = None,
        report: Report | None = None,
    ) -> None:
        self.epoch = epoch
        self.report = Report(strict=strict) if report is None else report
        """What the pass counts, and how strict it is."""
        self.base_seed = base_seed
        """What the seeds of stages without a seed of their own are made from; None draws them from the system."""
        self.seeds = 0
        """How many of them were given."""
        self.on_shard_end: Callable[[dict[str, Any]], None] | None = None
        """Called by the tar reader after each shard."""

    def __getstate__(self) -> dict[str, Any]:
        """For another process: without what listens in this one."""
        return {**self.__dict__, "on_shard_end": None}

    @property
    def strict(self) -> bool:
        """Whether nothing is skipped, and warnings are errors."""
        return self.report.strict

    def seed(self) -> int:
        """A seed for the next stage that has none: its own in every pass and worker, the same when a pass is resumed.

        >>> PassContext(base_seed=5).seed() == PassContext(base_seed=5).seed()
        True
        >>> PassContext(base_seed=5).seed() == PassContext(base_seed=6).seed()
        False
        """
        self.seeds += 1
        return int.from_bytes(os.urandom(8), "big") if self.base_seed is None else self.numbered_seed(self.seeds)

    def numbered_seed(self, number: int) -> int:
        """The seed that was, or will be, given as this one, from 1 on."""
        rank, _, worker, _ = pytorch_worker_info()
        return make_seed(self.base_seed, self.epoch, rank, worker, number, bits=63)

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Stages built inside this block belong to this pass."""
        outer, outer_report = pass_in_force(), put_in_force(self.report)
        _local.context = self
        try:
            yield
        finally:
            _local.context = outer
            put_in_force(outer_report)


def pass_in_force() -> PassContext | None:
    """The pass whose stages are being built; None for a stage that is used on its own."""
    context: PassContext | None = getattr(_local, "context", None)
    return context


def current_pass() -> PassContext:
    """The pass whose stages are being built, or a fresh one, with the report in force, for a stage on its own."""
    report, context = current_report(), pass_in_force()
    return context if context is not None and context.report is report else PassContext(report=report)


_local = threading.local()
