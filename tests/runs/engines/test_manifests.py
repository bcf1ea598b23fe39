"""Pods: names that Kubernetes takes, and manifests as text."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.runs.engines.manifests import as_text, merged, object_name
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunPlan
from webdataset.runs.runs import Submission


@given(st.text(min_size=1).filter(lambda text: not re.search(r"[/\0]", text)))
def test_any_run_has_a_name_that_kubernetes_takes(name: str) -> None:
    plan = RunPlan(Place(f"/runs/{name}"), "id", {}, "d", TaskOptions(), 1, "/", [])
    made = object_name(Submission("20260101-120000-abcdef", "k8s", plan, [0]))
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", made)


def test_a_users_part_comes_on_top() -> None:
    base = {"spec": {"containers": [{"name": "a"}], "restartPolicy": "Never"}}
    assert merged(base, {"spec": {"containers": [{"name": "b"}], "priority": 1}}) == {
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "restartPolicy": "Never", "priority": 1}
    }
    assert base == {"spec": {"containers": [{"name": "a"}], "restartPolicy": "Never"}}


def test_text_is_yaml_or_json(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    manifest = {"kind": "Job", "spec": {"values": [65]}}
    assert as_text(manifest) == "kind: Job\nspec:\n  values:\n  - 65\n"
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert json.loads(as_text(manifest)) == manifest
