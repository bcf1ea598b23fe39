"""Ray: a cluster that runs, one that does not answer, and a machine without Ray."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import webdataset as wds
from runs_support import PYTHON, doubled, make_inputs
from servers.clusters import needs_package
from webdataset.errors import MissingPackageError
from webdataset.runs.engines.base import EngineError

pytestmark = pytest.mark.xdist_group("ray")


def test_a_cluster_that_runs(tmp_path: Path, ray_address: str) -> None:
    make_inputs(tmp_path, 6)
    words = [*PYTHON, "map", "-c", "cls *= 2", str(tmp_path / "in-{000..005}.tar"), "-o", str(tmp_path / "out-{}.tar")]
    told = subprocess.run(
        [*words, "--on", "ray", "--address", ray_address], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert re.search(r"\b6 .*\b0 .*\b0 failed", told.stderr)
    assert len(list(tmp_path.glob("out-*.tar"))) == 6


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
def test_a_cluster_that_does_not_answer(tmp_path: Path, closed_port: int, form: str) -> None:
    needs_package("ray", "ray[data]")
    with pytest.raises(EngineError, match=form.format(closed_port)):
        list(wds.jobs(doubled, make_inputs(tmp_path, 1), on="ray", address=form.format(closed_port)))


def test_ray_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match="ray") as raised:
        list(wds.jobs(doubled, make_inputs(tmp_path, 1), on="ray"))
    assert "webdataset[ray]" in raised.value.hint


def test_a_cluster_of_the_environment_is_asked(
    tmp_path: Path, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_package("ray", "ray[data]")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port}")
    with pytest.raises(EngineError, match=f"127.0.0.1:{closed_port}"):
        list(wds.jobs(doubled, make_inputs(tmp_path, 1), on="ray"))


@pytest.mark.parametrize("token", ["none", "wrong"])
def test_a_cluster_that_wants_a_token(tmp_path: Path, ray_with_token: str, token: str) -> None:
    make_inputs(tmp_path, 1)
    words = [*PYTHON, "map", "-c", "cls *= 2", f"{tmp_path}/in-{{000..000}}.tar", "-o", f"{tmp_path}/out-{{}}.tar"]
    variables = {"none": {"RAY_AUTH_MODE": "disabled"}, "wrong": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "1" * 64}}
    told = subprocess.run(
        [*words, "--on", "ray", "--address", ray_with_token],
        env=os.environ | variables[token] | {"RAY_NUM_REDIS_GET_RETRIES": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert re.search(rf"authentication .*{ray_with_token}.*RAY_AUTH_MODE=token", told.stderr)


PROGRAM = """
import os
import sys
import ray
import webdataset as wds
from webdataset.runs.engines import engine_named
from webdataset.runs.options import TaskOptions

address, folder = sys.argv[1:]
own = {"runtime_env": {"env_vars": {"MARK": "7"}}}

def mark(source):
    return os.environ["MARK"]

def told():
    options = {"on": "ray", "ray": own, "state": folder + "/run", "redo": "all"}
    return wds.distributed_map_unordered(mark, [folder + f"/in-00{n}.tar" for n in range(2)], **options)

ray.init(address=address, log_to_driver=False, logging_level="ERROR")
before = ray.get_runtime_context().get_job_id()
print(told())
engine = engine_named("ray", TaskOptions())
print(engine.places(), engine.shards_per_task(64), engine_named("ray", TaskOptions(cpus=2)).places())
print(ray.get_runtime_context().get_job_id() == before)
ray.shutdown()
os.environ["RAY_ADDRESS"] = address
print(told(), ray.is_initialized())
engine = engine_named("ray", TaskOptions())
print(engine.places(), ray.get_runtime_context().gcs_address == address)
engine.close()
"""


def test_a_cluster_that_the_program_uses_and_one_of_the_environment(tmp_path: Path, ray_address: str) -> None:
    make_inputs(tmp_path, 2)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, str(program), ray_address, str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert told.stdout.splitlines() == [
        "['7', '7']",
        "2 2 1",
        "True",
        "['7', '7'] False",
        "2 True",
    ], told.stderr[-3000:]
