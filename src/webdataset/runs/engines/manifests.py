"""The pod of a task, which Kubernetes and Argo have in common, and manifests as text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from webdataset.base.packages import imported
from webdataset.runs.options import TaskOptions
from webdataset.runs.runs import Submission

from .base import EngineError

CONTAINER = "task"
COMMON = ("namespace", "claim", "mount", "secrets", "service_account", "pod", "container", "command")
"""Options of the sections [k8s] and [argo]."""


def task_container(options: TaskOptions, own: Mapping[str, Any], submission: Submission) -> dict[str, Any]:
    """Return the container that does a task; its index is in the environment."""
    if not options.image:
        hint = "--image NAME, of an image in which this package is installed"
        raise EngineError("pods need a container image", hint=hint)
    place = submission.plan.place
    if place.folder is not None and not own.get("claim") and "volumes" not in own.get("pod", {}):
        hint = "keep the run in a store with --state s3://bucket/run, or name a volume: [k8s] claim and mount"
        raise EngineError("pods cannot reach this folder", url=place.url, hint=hint)
    command = [*own.get("command", ["wl"]), "task", submission.plan.url, "--submission", submission.id]
    container: dict[str, Any] = {"name": CONTAINER, "image": options.image, "command": command}
    # in a pod this process has another user's number, and would take the folder for a stranger's
    owner = {"WDS_OWNER": str(os.geteuid())} if place.folder is not None else {}
    if environment := owner | options.environment:
        container["env"] = [{"name": name, "value": value} for name, value in sorted(environment.items())]
    if own.get("secrets"):
        container["envFrom"] = [{"secretRef": {"name": name}} for name in own["secrets"]]
    if own.get("claim"):
        container["volumeMounts"] = [{"name": "data", "mountPath": own.get("mount", "/data")}]
    container["resources"] = _resources(options)
    return merged(container, own.get("container", {}))


def pod_options(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a pod has beside its container."""
    pod: dict[str, Any] = {}
    if own.get("service_account"):
        pod["serviceAccountName"] = own["service_account"]
    if own.get("claim"):
        pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": own["claim"]}}]
    return merged(pod, own.get("pod", {}))


def _resources(options: TaskOptions) -> dict[str, Any]:
    requests: dict[str, str] = {"cpu": str(options.cpus)}
    limits: dict[str, str] = {}
    if options.memory:
        requests["memory"] = limits["memory"] = str(options.memory)
    if options.gpus:
        limits["nvidia.com/gpu"] = str(options.gpus)
    return {"requests": requests, "limits": limits} if limits else {"requests": requests}


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest with another one put over it.

    >>> merged({"a": {"b": 1}, "c": [1]}, {"a": {"d": 2}, "c": [2]})
    {'a': {'b': 1, 'd': 2}, 'c': [1, 2]}
    """
    found = dict(base)
    for name, value in more.items():
        before = found.get(name)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            found[name] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            found[name] = before + value
        else:
            found[name] = value
    return found


def object_name(submission: Submission) -> str:
    """Return the name of a submission as Kubernetes allows it: short, of letters, digits and dashes."""
    run = submission.plan.place.url.rpartition("/")[2]
    name = re.sub(r"[^a-z0-9]+", "-", f"{run[:30]}-{submission.id}".lower()).strip("-")
    return re.sub(r"^[^a-z]+", "", name)[:52].rstrip("-") or "webdataset"


def labels(submission: Submission) -> dict[str, str]:
    """Return the labels by which objects are found again."""
    return {"app.kubernetes.io/managed-by": "webdataset", "webdataset/submission": submission.id.lower()}


def as_text(manifest: Mapping[str, Any]) -> str:
    """Return a manifest as YAML, or as JSON, which is YAML too, where PyYAML is missing."""
    try:
        yaml = imported("yaml")
    except ImportError:
        return json.dumps(manifest, indent=2) + "\n"
    return str(yaml.safe_dump(dict(manifest), sort_keys=False, width=1000))
