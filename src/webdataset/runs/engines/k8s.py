"""Kubernetes: an Indexed Job, made with the `kubernetes` client or with the user's kubectl."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from webdataset.errors import SecurityError
from webdataset.runs.outcomes import EXIT_CODES, Verdict
from webdataset.runs.runs import Submission

from .base import NOT_OURS, Engine, EngineError
from .kube import ConflictError, KubeClient, KubeError, MissingError, kube_client
from .manifests import COMMON, CONTAINER, as_text, labels, merged, object_name, pod_options, task_container

if TYPE_CHECKING:
    from webdataset.runs.options import TaskOptions

MOST_TASKS = 10_000
MOST_PARALLEL = 1000
KEPT = 24 * 3600
"""Seconds for which a Job that has ended stays, with its pods and their logs, if the user does not say."""
PATIENCE = 600.0
"""Seconds for which a server may not answer while tasks run."""
JOB = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What Kubernetes takes for the name of an object."""
SECTION = (*COMMON, "kubeconfig", "context", "client", "job", "poll", "ttl")


class KubernetesEngine(Engine):
    """Submits one Job whose indexes are the tasks."""

    name = "k8s"
    reaches = ("kubeconfig", "context", "client", "namespace")

    def __init__(self, options: TaskOptions) -> None:
        super().__init__(options)
        self.check_own(*SECTION)
        self.poll_seconds = float(self.own.get("poll", 5.0))  # type: ignore[misc]
        self._client: KubeClient | None = None
        self._name = ""
        self._status: dict[str, Any] = {}
        self._heard = time.monotonic()

    # -- the manifest ----------------------------------------------------------------------------------

    def manifest(self, submission: Submission) -> dict[str, Any]:
        """Return the Job."""
        options = self.options
        container = task_container(options, self.own, submission)
        spec: dict[str, Any] = {
            "completionMode": "Indexed",
            "completions": submission.count,
            "parallelism": min(options.workers or MOST_PARALLEL, submission.count),
            "backoffLimitPerIndex": options.retries,
        }
        if options.max_failures is not None:
            spec["maxFailedIndexes"] = min(options.max_failures, submission.count)
        spec["podFailurePolicy"] = {"rules": [
            # a node that is drained or a pod that is evicted is nobody's failure
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": _exit_code(Verdict.STOP)},
            {"action": "FailIndex", "onExitCodes": _exit_code(Verdict.GIVE_UP)},
        ]}  # fmt: skip
        spec["ttlSecondsAfterFinished"] = int(self.own.get("ttl", KEPT))
        pod = {"restartPolicy": "Never", "containers": [container], **pod_options(self.own)}
        spec["template"] = {"metadata": {"labels": labels(submission)}, "spec": pod}
        facts: dict[str, Any] = {"name": object_name(submission), "labels": labels(submission)}
        facts["annotations"] = {"webdataset/run": submission.plan.place.url}
        if self.own.get("namespace"):
            facts["namespace"] = self.own["namespace"]
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": facts, "spec": spec}
        return merged(job, self.own.get("job", {}))

    def manifest_text(self, submission: Submission) -> str:
        """Return the manifest as text."""
        return as_text(self.manifest(submission))

    def shards_per_task(self, count: int) -> int:
        return max(1, math.ceil(count / MOST_TASKS))

    # -- the Job ---------------------------------------------------------------------------------------

    @property
    def client(self) -> KubeClient:
        if self._client is None:
            self._client = kube_client(self.own)
        return self._client

    def submit(self, submission: Submission) -> None:
        manifest = self.manifest(submission)
        self._name = manifest["metadata"]["name"]
        try:
            job = self.client.create(manifest)
        except ConflictError:
            # also what a server says that got the first request, whose answer was lost
            job = self.client.read(self._name)
            if not _is_of(submission, job):
                hint = f"`kubectl delete job {self._name}`, or wait for its end"
                raise EngineError(f"there is another Job of the name {self._name}", hint=hint) from None
        self._take(job)
        submission.handle = {"job": self._name, "namespace": self.client.namespace}

    def attach(self, submission: Submission) -> None:
        self._name = _job_of(submission)
        try:
            job = self.client.read(self._name)
            if not _is_of(submission, job):
                raise SecurityError(
                    f"the Job {self._name} is of something else", url=_run_of(submission), hint=NOT_OURS
                )
            self._take(job)
        except MissingError:
            self._status = {"conditions": [{"type": "Failed", "status": "True", "message": "the Job is gone"}]}

    def poll(self, seconds: float) -> None:
        """Wait for a change; a watch that breaks is replaced by asking, and asking goes on while the server is away."""
        try:
            changed = self.client.watch(self._name, seconds)
            self._take(changed if changed is not None else self.client.read(self._name))
        except MissingError:
            self._status = {"conditions": [{"type": "Failed", "status": "True", "message": "somebody deleted the Job"}]}
        except KubeError as error:
            if time.monotonic() - self._heard > PATIENCE:
                raise EngineError(f"the Kubernetes server does not answer any more: {error}") from error
            time.sleep(min(seconds, 5.0))

    def _take(self, job: dict[str, Any]) -> None:
        self._status = job.get("status") or {}
        self._heard = time.monotonic()

    @property
    def finished(self) -> bool:
        return any(condition in ("Complete", "Failed") for condition in self._conditions())

    @property
    def running(self) -> int:
        return int(self._status.get("active") or 0)

    @property
    def reason(self) -> str:  # type: ignore[override]
        """Why the Job failed."""
        for kind, condition in self._conditions().items():
            if kind == "Failed" and condition.get("message"):
                return f"its Kubernetes Job failed: {condition['message']}"
        return "its pod ended without a word: it was evicted, or out of memory"

    def _conditions(self) -> dict[str, dict[str, Any]]:
        found = self._status.get("conditions") or []
        return {condition["type"]: condition for condition in found if condition.get("status") == "True"}

    def cancel(self) -> None:
        if self._name:
            self.client.delete(self._name)
            self._status = {"conditions": [{"type": "Failed", "status": "True", "message": "cancelled"}]}

    def logs(self, submission: Submission) -> Iterator[tuple[str, str]]:
        yield from self.client.logs(_job_of(submission), CONTAINER)


def _job_of(submission: Submission) -> str:
    """Return the name of the Job of a submission; anything else would be another path of the server."""
    name = str(submission.handle.get("job"))
    if not JOB.fullmatch(name):
        raise SecurityError(f"{name!r} is no name of a Job", url=_run_of(submission), hint=NOT_OURS)
    return name


def _run_of(submission: Submission) -> str:
    return submission.plan.place.url


def _is_of(submission: Submission, job: dict[str, Any]) -> bool:
    found = job["metadata"].get("labels", {}).get("webdataset/submission")
    return bool(found == submission.id.lower())


def _exit_code(verdict: Verdict) -> dict[str, Any]:
    return {"containerName": CONTAINER, "operator": "In", "values": [EXIT_CODES[verdict]]}


ENGINE = KubernetesEngine
