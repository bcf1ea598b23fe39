"""A Kubernetes server: Jobs made, read, watched and deleted, through the `kubernetes` package or through kubectl."""

from __future__ import annotations

import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from webdataset.base.packages import imported
from webdataset.errors import MissingPackageError

from .base import EngineError

SECONDS = 30.0
"""For one request."""
TRIALS = 3


class KubeError(EngineError):
    """The server refuses, or does not answer."""


class ConflictError(KubeError):
    """There is one already."""


class MissingError(KubeError):
    """There is none."""


class KubeClient(ABC):
    """Jobs of one namespace."""

    namespace: str

    @abstractmethod
    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Make a Job, and return it."""

    @abstractmethod
    def read(self, name: str) -> dict[str, Any]:
        """Return a Job."""

    @abstractmethod
    def watch(self, name: str, seconds: float) -> dict[str, Any] | None:
        """Wait until a Job changes and return it; None if that took too long, or the watch broke."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a Job with its pods; one that is gone is fine."""

    @abstractmethod
    def logs(self, name: str, container: str) -> Iterator[tuple[str, str]]:
        """Yield the logs of the pods of a Job."""


def kube_client(own: Mapping[str, Any]) -> KubeClient:
    """Return the client that is here: the `kubernetes` package, else kubectl."""
    wanted = own.get("client")
    if wanted not in (None, "kubernetes", "kubectl"):
        raise ValueError(f"[k8s] client is kubernetes or kubectl, got {wanted!r}")
    if wanted != "kubectl":
        try:
            imported("kubernetes")
        except ImportError:
            pass
        else:
            return PackageClient(own)
    if wanted != "kubernetes" and shutil.which("kubectl"):
        return KubectlClient(own)
    hint = "pip install 'webdataset[k8s]', or install kubectl; --dry-run prints the manifest without"
    raise MissingPackageError("kubectl or the package kubernetes is needed to submit to Kubernetes", hint=hint)


class PackageClient(KubeClient):
    """The `kubernetes` package."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        from kubernetes import client, config
        from kubernetes.config.config_exception import ConfigException

        settings: dict[str, Any] = {"config_file": own.get("kubeconfig"), "context": own.get("context")}
        try:
            config.load_kube_config(**settings)
            _, active = config.list_kube_config_contexts(own.get("kubeconfig"))
            found = active["context"].get("namespace")
        except (ConfigException, TypeError) as error:
            if own.get("kubeconfig"):
                raise EngineError(f"the kubeconfig {own['kubeconfig']} cannot be used: {error}") from error
            found = _of_this_pod(config, error)
        self.namespace = own.get("namespace") or found or "default"
        self._api = client.ApiClient()
        self._batch, self._core = client.BatchV1Api(self._api), client.CoreV1Api(self._api)

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._plain(self._asked(lambda **kw: self._batch.create_namespaced_job(self.namespace, manifest, **kw)))

    def read(self, name: str) -> dict[str, Any]:
        return self._plain(self._asked(lambda **kw: self._batch.read_namespaced_job(name, self.namespace, **kw)))

    def watch(self, name: str, seconds: float) -> dict[str, Any] | None:
        from kubernetes.watch import Watch

        watch = Watch()
        only = f"metadata.name={name}"
        listed = self._batch.list_namespaced_job
        try:
            first = self._asked(lambda **kw: listed(self.namespace, field_selector=only, **kw))
            if not first.items:
                raise MissingError(f"there is no Job {name}")
            since = first.metadata.resource_version
            options = {"field_selector": only, "resource_version": since, "timeout_seconds": max(1, round(seconds))}
            for event in watch.stream(listed, self.namespace, **options, _request_timeout=_limits(seconds + SECONDS)):
                if event["type"] == "DELETED":
                    raise MissingError(f"there is no Job {name}")
                return self._plain(event["object"])
            return self._plain(first.items[0])
        except KubeError:
            raise
        except Exception:  # a watch ends in many ways, and asking tells what it would have told
            return None
        finally:
            watch.stop()

    def delete(self, name: str) -> None:
        try:
            how = {"propagation_policy": "Background"}
            self._asked(lambda **kw: self._batch.delete_namespaced_job(name, self.namespace, **how, **kw))
        except MissingError:
            return

    def logs(self, name: str, container: str) -> Iterator[tuple[str, str]]:
        selector = f"job-name={name}"
        pods = self._asked(lambda **kw: self._core.list_namespaced_pod(self.namespace, label_selector=selector, **kw))
        for pod in pods.items:
            yield pod.metadata.name, str(self._log(pod.metadata.name, container))

    def _log(self, pod: str, container: str) -> Any:
        read = self._core.read_namespaced_pod_log
        return self._asked(lambda **kw: read(pod, self.namespace, container=container, **kw))

    def _plain(self, found: object) -> dict[str, Any]:
        plain: dict[str, Any] = self._api.sanitize_for_serialization(found)
        return plain

    def _asked(self, call: Callable[..., Any]) -> Any:
        """Send a request, again if the server did not answer."""
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        for trial in range(TRIALS):
            try:
                return call(_request_timeout=_limits(SECONDS))
            except ApiException as error:
                if error.status in (500, 502, 503, 504, 429) and trial + 1 < TRIALS:
                    continue
                raise _error_of(error.status, _message(error.body) or str(error.reason)) from error
            except (HTTPError, OSError) as error:
                if trial + 1 == TRIALS:
                    raise KubeError(f"the Kubernetes server does not answer: {error}", hint=ANSWER) from error
        raise AssertionError


def _limits(seconds: float) -> tuple[float, float]:
    """The time to connect, and to answer: a single float is no limit at all to older releases of the package."""
    return seconds, seconds


class KubectlClient(KubeClient):
    """The user's kubectl, as a way to send requests."""

    def __init__(self, own: Mapping[str, Any]) -> None:
        self._words = ["kubectl", f"--request-timeout={SECONDS:g}s"]
        self._words += [f"--{name}={own[name]}" for name in ("kubeconfig", "context") if own.get(name)]
        found = own.get("namespace") or self._called("config", "view", "--minify", "--output=jsonpath={..namespace}")
        self.namespace = found.strip() or "default"
        self._jobs = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        return self._json("create", f"--raw={self._jobs}", "-f", "-", text=json.dumps(manifest))

    def read(self, name: str) -> dict[str, Any]:
        return self._json("get", f"--raw={self._jobs}/{name}")

    def watch(self, name: str, seconds: float) -> dict[str, Any] | None:
        import time

        time.sleep(seconds)
        return self.read(name)

    def delete(self, name: str) -> None:
        try:
            self._called("delete", f"--raw={self._jobs}/{name}?propagationPolicy=Background")
        except MissingError:
            return

    def logs(self, name: str, container: str) -> Iterator[tuple[str, str]]:
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        for pod in self._json("get", f"--raw={pods}?labelSelector=job-name%3D{name}")["items"]:
            own = pod["metadata"]["name"]
            yield own, self._called("get", f"--raw={pods}/{own}/log?container={container}")

    def _json(self, *words: str, text: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._called(*words, text=text))
        return found

    def _called(self, *words: str, text: str = "") -> str:
        limit = SECONDS * 2
        try:
            told = subprocess.run(  # noqa: S603 - the user's kubectl
                [*self._words, *words], input=text, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired as error:
            raise KubeError("kubectl does not answer", hint=ANSWER) from error
        if told.returncode:
            reason = " ".join(told.stderr.split())
            status = 409 if "AlreadyExists" in reason else 404 if "NotFound" in reason else 0
            raise _error_of(status, reason)
        return told.stdout


ANSWER = "does `kubectl get jobs` answer?"


def _error_of(status: int | None, reason: str) -> KubeError:
    kind = {404: MissingError, 409: ConflictError}.get(status or 0, KubeError)
    hint = "may this user make Jobs here? `kubectl auth can-i create jobs` tells" if status == 403 else ""
    return kind(f"the Kubernetes server answers: {reason}", hint=hint)


def _message(body: Any) -> str:
    try:
        return str(json.loads(body)["message"])
    except (KeyError, TypeError, ValueError):
        return ""


def _of_this_pod(config: ModuleType, error: Exception) -> str:
    """Use the service account of the pod in which this runs."""
    try:
        config.load_incluster_config()
        with open("/var/run/secrets/kubernetes.io/serviceaccount/namespace", encoding="utf-8") as file:
            return file.read().strip()
    except Exception:
        hint = "~/.kube/config or KUBECONFIG names it; [k8s] kubeconfig and context choose another"
        raise EngineError("no Kubernetes cluster is configured here", hint=hint) from error
