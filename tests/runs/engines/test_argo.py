"""Argo: a Workflow that its models accept, and that runs the same command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servers.clusters import needs_package
from servers.models import model_verdicts
from webdataset.runs.engines import engine_named
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunProgram, write_plan
from webdataset.runs.runs import Submission

MODEL = "@kubernetes-models/argo-workflows/argoproj.io/v1alpha1/Workflow.js"


@pytest.fixture
def workflow(tmp_path: Path) -> dict[str, Any]:
    items = (Item(f"{n}", (f"s3://b/in-{n}.tar",), (f"s3://b/out-{n}.tar",)) for n in range(5000))
    plan = write_plan(Place(str(tmp_path)), RunProgram({"kind": "command", "words": ["x"]}, "d"), TaskOptions(), items)
    own = {"claim": "data", "namespace": "argo", "workflow": {"spec": {"activeDeadlineSeconds": 3600}}}
    engine: Any = engine_named("argo", TaskOptions.of({"image": "my/ocr", "workers": 50, "gpus": 1, "argo": own}))
    submission = Submission("20260101-120000-abcdef", "argo", plan, list(range(5000)), engine.shards_per_task(5000))
    made: dict[str, Any] = engine.manifest(submission)
    return made


def test_the_models_of_argo_accept_it(workflow: dict[str, Any]) -> None:
    wrong = workflow | {"spec": workflow["spec"] | {"parallelism": "many"}}
    good, bad = model_verdicts(MODEL, "Workflow", [workflow, wrong])
    assert good == "valid"
    assert bad != "valid"


def test_the_models_of_hera_accept_it(workflow: dict[str, Any]) -> None:
    needs_package("hera", "hera")
    from hera.workflows.models import Workflow

    made = Workflow.model_validate(workflow)
    assert made.spec.parallelism == 50
    with pytest.raises(ValueError, match="parallelism"):
        Workflow.model_validate(workflow | {"spec": workflow["spec"] | {"parallelism": "many"}})


def test_tasks_are_a_sequence_and_know_their_index(workflow: dict[str, Any]) -> None:
    spec = workflow["spec"]
    every, task = spec["templates"]
    assert every["dag"]["tasks"][0]["withSequence"] == {"count": "1667"}
    assert task["container"]["command"][-1] == "{{inputs.parameters.index}}"
    assert task["retryStrategy"]["expression"] == "lastRetry.exitCode != '65' && lastRetry.exitCode != '78'"
    assert (spec["parallelism"], spec["activeDeadlineSeconds"]) == (50, 3600)
