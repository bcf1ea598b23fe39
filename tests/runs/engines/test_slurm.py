"""Slurm, a real one: arrays, tasks that are found again, cancelled, or never start; and a machine without it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import runs_support
import webdataset as wds
from runs_support import PYTHON, make_inputs
from waiting import soon
from webdataset.runs.engines import engine_named
from webdataset.runs.engines.base import EngineError
from webdataset.runs.generations import own
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunProgram, write_plan
from webdataset.runs.runs import Run, Submission

OWN = {"poll": 0.2}


@pytest.fixture
def here(slurm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.configuration)
    monkeypatch.setenv("PYTHONPATH", str(Path(runs_support.__file__).parent))


def submission(folder: Path, script: str, count: int, **options: Any) -> Submission:
    program = RunProgram({"kind": "command", "words": ["sh", "-c", script]}, "d")
    run = Run(str(folder / "run"))
    items = [Item(str(n)) for n in range(count)]
    plan = write_plan(run.place, program, TaskOptions.of({"slurm": OWN} | options), items)
    generation = own(run.place, {"plan": plan.id, "engine": "slurm"})
    return run.submission(plan, "slurm", list(range(count)), 1, generation=generation)


@pytest.mark.xdist_group("slurm")
@pytest.mark.usefixtures("here")
def test_an_array_does_every_shard_once(tmp_path: Path) -> None:
    pairs = make_inputs(tmp_path, 4)
    told = list(wds.jobs(runs_support.fails_for_one, pairs, on="slurm", shards_per_task=2, retries=0, slurm=OWN))
    assert sorted((done.item, done.ok) for done in told) == [(f"out-00{n}", n != 1) for n in range(4)]
    assert [done.error for done in told if not done.ok] == ["ValueError: of my own"]


@pytest.mark.xdist_group("slurm")
@pytest.mark.usefixtures("here")
def test_tasks_are_found_again_by_another_process_and_cancelled(tmp_path: Path) -> None:
    made = submission(tmp_path, "sleep 1000; true {}", 2)
    engine_named("slurm", made.plan.options).submit(made)
    other = engine_named("slurm", made.plan.options)
    other.attach(Run(str(tmp_path / "run")).read_submission(made.id))
    assert not other.finished
    words = [*PYTHON, "jobs", "cancel", str(tmp_path / "run")]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "1 submission" in told.stderr
    assert soon(lambda: other.poll(0.2) is None and other.finished)


@pytest.mark.xdist_group("slurm")
@pytest.mark.usefixtures("here")
def test_more_tasks_than_an_array_may_have_are_several_arrays(tmp_path: Path) -> None:
    """This Slurm allows 101."""
    made = submission(tmp_path, "true {}", 205)
    engine: Any = engine_named("slurm", TaskOptions.of({"slurm": OWN | {"options": ["--begin=now+1hour"]}}))
    engine.submit(made)
    assert len(made.handle["jobs"]) == 3
    assert engine.script(made, 202).endswith(f"--submission {made.id} --offset 202\n")
    engine.cancel()
    assert soon(lambda: engine.poll(0.2) is None and engine.finished)


@pytest.mark.xdist_group("slurm")
@pytest.mark.usefixtures("here")
def test_a_partition_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"sbatch .*partition"):
        list(wds.jobs(runs_support.doubled, make_inputs(tmp_path, 1), on="slurm", slurm={"partition": "nowhere"}))


def test_what_the_options_ask_for_is_in_the_script(tmp_path: Path) -> None:
    own = {"partition": "cpu", "time": "1:00:00", "setup": "module load python", "options": ["--nice=10"]}
    given = {"cpus": 4, "memory": "2Gi", "gpus": 2, "workers": 8, "environment": {"A": "x y"}, "slurm": own}
    plan = write_plan(Place(str(tmp_path)), RunProgram({"kind": "command"}, "d"), TaskOptions(), [Item("a")])
    engine: Any = engine_named("slurm", TaskOptions.of(given | {"python": "/opt/python"}))
    script = engine.manifest_text(Submission("ID", "slurm", plan, [0] * 100))
    for line in ("--array=0-99%8", "--cpus-per-task=4", "--mem=2048M", "--gres=gpu:2", "--partition=cpu", "--nice=10"):
        assert f"#SBATCH {line}\n" in script
    assert script.startswith("#!/bin/bash\n#SBATCH")
    last = f"exec /opt/python -m webdataset task {plan.url} --submission ID\n"
    assert script.endswith(f"module load python\nexport A='x y'\n{last}")


def test_a_machine_without_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="scontrol") as raised:
        list(wds.jobs(runs_support.doubled, make_inputs(tmp_path, 1), on="slurm"))
    assert "slurm-client" in raised.value.hint


def test_many_shards_are_few_tasks() -> None:
    engine = engine_named("slurm", TaskOptions())
    assert [engine.shards_per_task(count) for count in (1, 200, 1000, 1_000_000)] == [1, 1, 5, 5000]
