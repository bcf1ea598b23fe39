"""A double of a Kubernetes server for Indexed Jobs: it runs the container's command of each index as a local process.

It answers as a server does: names that exist are a conflict, watches are lines of JSON from a version on, a Job's
status has active, succeeded, failedIndexes and conditions, and backoffLimitPerIndex, podFailurePolicy and
maxFailedIndexes decide. On demand it loses answers, is unavailable, hangs, or breaks watches.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

JOBS = "/apis/batch/v1/namespaces/tests/jobs"
PODS = "/api/v1/namespaces/tests/pods"


class KubernetesDouble:
    """The server; `faults` counts what is still to go wrong, `asked` what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.faults: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.changed = threading.Condition()
        self.version = 0
        self.held = threading.Event()
        """Set when pods may start."""
        self.held.set()
        self._threads: list[threading.Thread] = []
        double = self

        class Handler(_Handler):
            server_double = double

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def kubeconfig(self) -> str:
        """A file that leads clients here."""
        path = self.folder / "kubeconfig"
        here = f"http://127.0.0.1:{self.server.server_port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": {"cluster": "c", "user": "u", "namespace": "tests"}}],
            "clusters": [{"name": "c", "cluster": {"server": here}}],
            "users": [{"name": "u", "user": {}}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    def close(self) -> None:
        self.held.set()
        for job in self.jobs.values():
            job["deleted"] = True
        self.server.shutdown()
        self.server.server_close()
        for thread in self._threads:
            thread.join(60)

    # -- Jobs ------------------------------------------------------------------------------------------

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        job = copy.deepcopy(manifest)
        job["metadata"] |= {"namespace": "tests", "uid": f"uid-{self.version}"}
        job["status"] = {"active": 0, "succeeded": 0, "failed": 0}
        self._update(job)
        self.jobs[job["metadata"]["name"]] = job
        thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return job

    def _update(self, job: dict[str, Any], **status: Any) -> None:
        with self.changed:
            self.version += 1
            job["status"] = job["status"] | status
            job["metadata"]["resourceVersion"] = str(self.version)
            self.changed.notify_all()

    def _run(self, job: dict[str, Any]) -> None:
        """What the Job controller does, one pod at a time."""
        spec = job["spec"]
        failures: Counter[int] = Counter()
        failed: list[int] = []
        done: list[int] = []
        self.held.wait()
        for index in range(spec["completions"]):
            while not job.get("deleted"):
                self._update(job, active=1)
                code = self._pod(job, index)
                if code == 0:
                    done.append(index)
                    break
                action = _action(spec, code)
                if action == "FailJob":
                    self._end(job, "Failed", "PodFailurePolicy", f"container task failed with exit code {code}")
                    return
                failures[index] += 1
                if action == "FailIndex" or failures[index] > spec["backoffLimitPerIndex"]:
                    failed.append(index)
                    break
            if job.get("deleted"):
                return
            self._update(job, active=0, succeeded=len(done), failed=sum(failures.values()))
            self._update(job, failedIndexes=_text(failed), completedIndexes=_text(done))
            if len(failed) > spec.get("maxFailedIndexes", spec["completions"]):
                self._end(
                    job,
                    "Failed",
                    "MaxFailedIndexesExceeded",
                    "Job has exceeded the specified maximal number of failed indexes",
                )
                return
        if failed:
            self._end(job, "Failed", "FailedIndexes", "Job has failed indexes")
        else:
            self._end(job, "Complete", "CompletionsReached", "Reached expected number of succeeded pods")

    def _end(self, job: dict[str, Any], kind: str, reason: str, message: str) -> None:
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        self._update(job, active=0, conditions=[condition])

    def _pod(self, job: dict[str, Any], index: int) -> int:
        """Run the container of a pod as a process, and return its exit code."""
        (container,) = job["spec"]["template"]["spec"]["containers"]
        variables = {each["name"]: each["value"] for each in container.get("env", ())}
        environment = os.environ | variables | {"JOB_COMPLETION_INDEX": str(index)}
        told = subprocess.run(container["command"], env=environment, capture_output=True, text=True, check=False)
        name = f"{job['metadata']['name']}-{index}-{len(self.logs)}"
        self.logs[name] = told.stdout + told.stderr
        return told.returncode if told.returncode >= 0 else 128 - told.returncode


def _action(spec: dict[str, Any], code: int) -> str:
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        if code in rule.get("onExitCodes", {}).get("values", ()):
            return str(rule["action"])
    return "Count"


def _text(indexes: list[int]) -> str:
    return ",".join(map(str, indexes))


class _Handler(BaseHTTPRequestHandler):
    server_double: KubernetesDouble
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        double, url = self.server_double, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        name = url.path.removeprefix(JOBS).strip("/")
        double.asked["watch" if query.get("watch") else "get"] += 1
        if self._goes_wrong("watch" if query.get("watch") else "get"):
            return
        if url.path == PODS:
            wanted = query["labelSelector"].removeprefix("job-name=")
            pods = [{"metadata": {"name": pod}} for pod in double.logs if pod.startswith(wanted)]
            self._answer(200, {"kind": "PodList", "apiVersion": "v1", "items": pods})
        elif url.path.startswith(PODS):
            self._text(double.logs[url.path.split("/")[-2]])
        elif name:
            self._job(name)
        elif query.get("watch"):
            self._watch(query)
        else:
            self._list(query)

    def do_POST(self) -> None:
        double = self.server_double
        double.asked["create"] += 1
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if double.faults["hang"] > 0:
            double.faults["hang"] -= 1
            time.sleep(3)  # longer than the client waits, who hangs up
            return
        if self._goes_wrong("create"):
            return
        name = manifest["metadata"]["name"]
        if name in double.jobs:
            self._status(409, "AlreadyExists", f'jobs.batch "{name}" already exists')
            return
        job = double.create(manifest)
        if double.faults["lost answer"] > 0:
            double.faults["lost answer"] -= 1
            self.close_connection = True
            return
        self._answer(201, job)

    def do_DELETE(self) -> None:
        double = self.server_double
        double.asked["delete"] += 1
        job = double.jobs.pop(urlsplit(self.path).path.rpartition("/")[2], None)
        if job is None:
            self._status(404, "NotFound", "jobs.batch not found")
            return
        job["deleted"] = True
        double._update(job)
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _goes_wrong(self, kind: str) -> bool:
        faults = self.server_double.faults
        if faults[f"unavailable {kind}"] <= 0:
            return False
        faults[f"unavailable {kind}"] -= 1
        self._status(503, "ServiceUnavailable", "the server is currently unable to handle the request")
        return True

    def _job(self, name: str) -> None:
        job = self.server_double.jobs.get(name)
        if job is None:
            self._status(404, "NotFound", f'jobs.batch "{name}" not found')
        else:
            self._answer(200, job)

    def _chosen(self, query: dict[str, str]) -> list[dict[str, Any]]:
        name = query.get("fieldSelector", "").removeprefix("metadata.name=")
        return [job for own, job in self.server_double.jobs.items() if own == name]

    def _list(self, query: dict[str, str]) -> None:
        version = str(self.server_double.version)
        facts = {"kind": "JobList", "apiVersion": "batch/v1", "metadata": {"resourceVersion": version}}
        self._answer(200, facts | {"items": self._chosen(query)})

    def _watch(self, query: dict[str, str]) -> None:
        """Send each version after the one that is known, until the time is over."""
        double = self.server_double
        known = int(query.get("resourceVersion", "0"))
        end = threading.Event()
        threading.Timer(float(query.get("timeoutSeconds", "1")), end.set).start()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while not end.is_set():
            with double.changed:
                double.changed.wait(0.05)
                found = [copy.deepcopy(job) for job in self._chosen(query)]
            for job in found:
                if int(job["metadata"]["resourceVersion"]) > known:
                    known = int(job["metadata"]["resourceVersion"])
                    line = json.dumps({"type": "MODIFIED", "object": job}).encode() + b"\n"
                    if double.faults["broken watch"] > 0:
                        double.faults["broken watch"] -= 1
                        self.wfile.write(line[: len(line) // 2])
                        return
                    try:
                        self.wfile.write(line)
                        self.wfile.flush()
                    except OSError:
                        return

    def _status(self, code: int, reason: str, message: str) -> None:
        facts = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
        self._answer(code, facts | {"message": message})

    def _answer(self, code: int, facts: dict[str, Any]) -> None:
        data = json.dumps({key: value for key, value in facts.items() if key != "deleted"}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _text(self, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def kubernetes_double(tmp_path: Path) -> Iterator[KubernetesDouble]:
    double = KubernetesDouble(tmp_path)
    try:
        yield double
    finally:
        double.close()
