"""Argo Workflows: a manifest, to be submitted with Argo's own programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from webdataset.runs.outcomes import EXIT_CODES, Verdict
from webdataset.runs.runs import Submission

from .base import Engine, EngineError
from .manifests import COMMON, as_text, labels, merged, object_name, pod_options, task_container

if TYPE_CHECKING:
    from webdataset.runs.options import TaskOptions

MOST_TASKS = 2000
"""Argo keeps the state of all tasks in one object, which is limited to a megabyte."""


class ArgoEngine(Engine):
    """Makes a Workflow; its tasks write the same records as everywhere, so `wl jobs status` follows them."""

    name = "argo"

    def __init__(self, options: TaskOptions) -> None:
        super().__init__(options)
        self.check_own(*COMMON, "workflow")

    def manifest(self, submission: Submission) -> dict[str, Any]:
        """Return the Workflow."""
        container = task_container(self.options, self.own, submission)
        container["name"] = "main"  # what Argo calls it
        container["command"] = [*container["command"], "{{inputs.parameters.index}}"]
        final = [EXIT_CODES[verdict] for verdict in (Verdict.GIVE_UP, Verdict.STOP)]
        again = " && ".join(f"lastRetry.exitCode != '{code}'" for code in final)
        task = {
            "name": "task",
            "inputs": {"parameters": [{"name": "index"}]},
            "retryStrategy": {"limit": str(self.options.retries), "retryPolicy": "Always", "expression": again},
            "container": container,
        }
        arguments = {"parameters": [{"name": "index", "value": "{{item}}"}]}
        tasks = {"name": "tasks", "template": "task", "arguments": arguments}
        tasks |= {"withSequence": {"count": str(submission.count)}}
        every = {"name": "all", "dag": {"failFast": False, "tasks": [tasks]}}
        spec: dict[str, Any] = {"entrypoint": "all", "templates": [every, task]}
        if self.options.workers:
            spec["parallelism"] = self.options.workers
        spec |= pod_options(self.own)
        facts: dict[str, Any] = {"name": object_name(submission), "labels": labels(submission)}
        if self.own.get("namespace"):
            facts["namespace"] = self.own["namespace"]
        workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": facts, "spec": spec}
        return merged(workflow, self.own.get("workflow", {}))

    def manifest_text(self, submission: Submission) -> str:
        """Return the manifest as text."""
        return as_text(self.manifest(submission))

    def shards_per_task(self, count: int) -> int:
        return max(1, math.ceil(count / MOST_TASKS))

    def submit(self, submission: Submission) -> None:  # noqa: ARG002 - every engine's
        raise EngineError("a Workflow is submitted by Argo's programs", hint="print it: --on argo | argo submit -")

    def poll(self, seconds: float) -> None:
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        return True

    @property
    def running(self) -> int:
        return 0

    def cancel(self) -> None:
        """What Argo runs is cancelled by Argo's programs."""


ENGINE = ArgoEngine
