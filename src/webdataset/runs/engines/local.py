"""This machine: a process for each core."""

from __future__ import annotations

from functools import partial
from typing import Any

from webdataset.runs.crew import Crew, Serve, can_limit_memory
from webdataset.runs.plans import RunPlan
from webdataset.runs.records import AttemptRecord
from webdataset.runs.runs import Submission
from webdataset.runs.serving import serve

from .base import Engine, EngineError, workers_here


class LocalEngine(Engine):
    """Does items with processes of this machine."""

    name = "local"
    poll_seconds = 0.2
    _crew: Crew | None = None

    def submit(self, submission: Submission) -> None:
        self.check_own()
        if self.options.gpus:
            raise EngineError("there are no GPUs to hand out on local", hint="use --on ray, slurm or k8s for --gpus")
        memory = self.options.memory
        if memory and not can_limit_memory():
            raise EngineError("this system does not limit the memory of processes", hint="leave --memory out")
        numbers = (number for numbers in submission.tasks() for number in numbers)
        size = max(min(workers_here(self.options), len(submission.numbers)), 1)
        options: dict[str, Any] = {"serve": self._serve(submission.plan), "memory": memory, "tried": submission.tried}
        self._crew = Crew(submission.plan, numbers, size, task=submission.task_name(submission.numbers), **options)

    def _serve(self, plan: RunPlan) -> Serve | None:
        """Return what a copy of this process does; None if a new one has to run the command line for it."""
        if plan.program["kind"] != "function" and self.run_command is None:
            return None
        return partial(serve, run_command=self.run_command or _no_commands)

    def poll(self, seconds: float) -> list[AttemptRecord]:
        assert self._crew is not None
        return self._crew.poll(seconds)

    @property
    def finished(self) -> bool:
        return self._crew is None or self._crew.finished

    @property
    def running(self) -> int:
        return 0 if self._crew is None else self._crew.running

    def cancel(self) -> None:
        self.close()

    def leave(self) -> None:
        """Let processes finish the shards that they have; they end when this process has."""
        self._crew = None

    def close(self) -> None:
        if self._crew is not None:
            self._crew.close()
            self._crew = None


def _no_commands(program: dict[str, Any], errors: str) -> None:
    """Leave all commands to the system."""


ENGINE = LocalEngine
