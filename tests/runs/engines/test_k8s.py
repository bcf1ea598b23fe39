"""Kubernetes: manifests that two validators accept, and a client that takes what servers do."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import runs_support
import webdataset as wds
from runs_support import calls_of, make_inputs
from servers.clusters import needs_package
from servers.models import model_verdicts
from webdataset.runs.api import RunError
from webdataset.runs.engines import engine_named, kube
from webdataset.runs.engines.base import Engine, EngineError
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunProgram, write_plan
from webdataset.runs.runs import Submission

VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
OWN_COMMAND = {"command": [sys.executable, "-m", "webdataset"], "claim": "data", "poll": 0.5}
RICH = {
    "image": "my/ocr:1",
    "cpus": 4,
    "memory": "8Gi",
    "gpus": 1,
    "environment": {"AWS_REGION": "eu"},
    "workers": 100,
    "max_failures": 10,
    "k8s": {
        "namespace": "data",
        "claim": "shards",
        "mount": "/shards",
        "secrets": ["aws"],
        "service_account": "loader",
        "ttl": 3600,
        "pod": {"nodeSelector": {"pool": "cpu"}, "tolerations": [{"key": "spot", "operator": "Exists"}]},
        "container": {"imagePullPolicy": "IfNotPresent"},
        "job": {"metadata": {"labels": {"team": "ocr"}}},
    },
}


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    """A thousand tasks."""
    items = (Item(f"{n:04d}", (f"s3://b/in-{n:04d}.tar",), (f"s3://b/out-{n:04d}.tar",)) for n in range(1000))
    plan = write_plan(Place(str(tmp_path)), RunProgram({"kind": "command", "words": ["x"]}, "d"), TaskOptions(), items)
    return Submission("20260101-120000-abcdef", "k8s", plan, list(range(1000)))


def manifest(submission: Submission, options: dict[str, Any], name: str = "k8s") -> dict[str, Any]:
    engine: Any = engine_named(name, TaskOptions.of(options))
    made: dict[str, Any] = engine.manifest(submission)
    return made


PLAIN = {"image": "my/ocr", "k8s": {"claim": "shards"}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("options", [PLAIN, RICH], ids=["plain", "rich"])
def test_the_manifest_is_valid_in_every_version(submission: Submission, version: str, options: dict[str, Any]) -> None:
    needs_package("kubernetes_validate", "kubernetes-validate")
    import kubernetes_validate

    job = manifest(submission, options)
    kubernetes_validate.validate(job, version, strict=True)
    job["spec"]["completionMod"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, version, strict=True)


def test_another_validator_finds_wrong_values_too(submission: Submission) -> None:
    wrong = manifest(submission, RICH)
    wrong["spec"]["completionMode"] = "Numbered"
    valid = [manifest(submission, PLAIN), manifest(submission, RICH)]
    *told, last = model_verdicts("kubernetes-models/batch/v1/Job.js", "Job", [*valid, wrong])
    assert told == ["valid", "valid"]
    assert last != "valid"


def test_what_the_options_ask_for_is_in_the_manifest(submission: Submission) -> None:
    job = manifest(submission, RICH)
    spec, (container,) = job["spec"], job["spec"]["template"]["spec"]["containers"]
    assert (spec["completions"], spec["parallelism"], spec["maxFailedIndexes"]) == (1000, 100, 10)
    assert spec["ttlSecondsAfterFinished"] == 3600
    assert spec["backoffLimitPerIndex"] == 2
    assert container["command"][:2] == ["wl", "task"]
    assert container["resources"] == {
        "requests": {"cpu": "4", "memory": "8589934592"},
        "limits": {"memory": "8589934592", "nvidia.com/gpu": "1"},
    }
    owner = {"name": "WDS_OWNER", "value": str(os.geteuid())}
    assert container["env"] == [{"name": "AWS_REGION", "value": "eu"}, owner]
    assert job["metadata"]["labels"]["team"] == "ocr"


def test_a_job_that_has_ended_is_removed_in_the_end(submission: Submission) -> None:
    assert manifest(submission, PLAIN)["spec"]["ttlSecondsAfterFinished"] == 24 * 3600


def test_pods_need_an_image_and_a_place_that_they_can_reach(submission: Submission) -> None:
    with pytest.raises(EngineError, match="image") as raised:
        manifest(submission, {"k8s": {"claim": "data"}})
    assert "--image" in raised.value.hint
    with pytest.raises(EngineError) as raised:
        manifest(submission, {"image": "my/ocr"})
    assert (raised.value.url, "--state" in raised.value.hint) == (submission.plan.place.url, True)
    with pytest.raises(ValueError, match="'namspace'"):
        manifest(submission, {"image": "my/ocr", "k8s": {"namspace": "x"}})


# -- the client, and a server that is not always well ------------------------------------------------------


def run_there(
    double: Any, pairs: list[tuple[str, str]], function: Any = runs_support.doubled, **more: Any
) -> list[Any]:
    own = OWN_COMMAND | {"kubeconfig": double.kubeconfig, "client": more.pop("client", "kubernetes")}
    here = {"PYTHONPATH": os.path.dirname(runs_support.__file__)}
    return list(wds.jobs(function, pairs, on="k8s", image="none", environment=here, k8s=own, **more))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_package("kubernetes", "kubernetes")
    monkeypatch.setattr(kube, "SECONDS", 1.0)


def test_a_job_does_every_shard_once(kubernetes_double: Any, tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 3)
    told = run_there(kubernetes_double, pairs, shards_per_task=2)
    assert sorted((done.item, done.ok) for done in told) == [(f"out-00{n}", True) for n in range(3)]
    assert [calls_of(source) for source, _ in pairs] == [1, 1, 1]
    (job,) = kubernetes_double.jobs.values()
    assert job["spec"]["completions"] == 2
    assert job["status"]["completedIndexes"] == "0,1"


@pytest.mark.parametrize("fault", ["lost answer", "hang", "unavailable create", "unavailable get", "broken watch"])
def test_a_server_that_is_not_well(kubernetes_double: Any, tmp_path: Path, fault: str) -> None:
    kubernetes_double.faults[fault] = 2 if "unavailable" in fault else 1
    pairs = make_inputs(tmp_path, 1)
    assert [done.ok for done in run_there(kubernetes_double, pairs)] == [True]
    assert len(kubernetes_double.jobs) == 1
    assert kubernetes_double.faults[fault] == 0
    assert calls_of(pairs[0][0]) == 1


def test_a_shard_that_was_given_up_fails_its_index(kubernetes_double: Any, tmp_path: Path) -> None:
    told = {
        done.item: done
        for done in run_there(kubernetes_double, make_inputs(tmp_path, 3), runs_support.fails_for_one, retries=1)
    }
    assert [told[f"out-00{n}"].ok for n in range(3)] == [True, False, True]
    assert told["out-001"].error == "ValueError: of my own"
    (job,) = kubernetes_double.jobs.values()
    assert job["status"]["failedIndexes"] == "1"
    assert job["status"]["conditions"][0]["reason"] == "FailedIndexes"


def test_too_many_failed_indexes_end_the_job(kubernetes_double: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="0 shards"):
        run_there(kubernetes_double, make_inputs(tmp_path, 3), runs_support.fills_the_disk, retries=0, max_failures=0)


def test_a_job_that_somebody_deletes(kubernetes_double: Any, tmp_path: Path) -> None:
    kubernetes_double.held.clear()
    pairs = make_inputs(tmp_path, 1)
    engine, made = submitted(kubernetes_double, tmp_path, pairs)
    kubernetes_double.jobs.clear()
    engine.poll(0.5)
    assert engine.finished
    assert "deleted" in engine.reason
    other = engine_named("k8s", made.plan.options)
    other.attach(made)
    assert other.finished


def submitted(double: Any, folder: Path, pairs: list[tuple[str, str]]) -> tuple[Engine, Submission]:
    own = OWN_COMMAND | {"kubeconfig": double.kubeconfig}
    options = TaskOptions.of({"image": "none", "k8s": own})
    items = [Item(str(n), (source,), (target,)) for n, (source, target) in enumerate(pairs)]
    program = RunProgram({"kind": "command", "words": ["cp", "{}", "x"]}, "d")
    plan = write_plan(Place(str(folder / "run")), program, options, items)
    made = Submission("20260101-000000-aaaaaa", "k8s", plan, list(range(len(items))))
    engine = engine_named("k8s", options)
    engine.submit(made)
    return engine, made


def test_another_job_of_the_same_name_is_an_error(kubernetes_double: Any, tmp_path: Path) -> None:
    kubernetes_double.held.clear()
    pairs = make_inputs(tmp_path, 1)
    _, made = submitted(kubernetes_double, tmp_path, pairs)
    submitted(kubernetes_double, tmp_path, pairs)  # the same submission: its first answer may have been lost
    (job,) = kubernetes_double.jobs.values()
    job["metadata"]["labels"]["webdataset/submission"] = "another"
    with pytest.raises(EngineError, match=job["metadata"]["name"]):
        engine_named("k8s", made.plan.options).submit(made)


def test_a_job_is_found_again_and_cancelled(kubernetes_double: Any, tmp_path: Path) -> None:
    kubernetes_double.held.clear()
    _, made = submitted(kubernetes_double, tmp_path, make_inputs(tmp_path, 1))
    other = engine_named("k8s", made.plan.options)
    other.attach(made)
    assert not other.finished
    other.cancel()
    other.cancel()
    assert other.finished
    assert kubernetes_double.jobs == {}
    assert kubernetes_double.asked["delete"] == 2
