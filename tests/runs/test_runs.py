"""Runs: what is done, missing, stale or failed follows from plan, records and outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from webdataset.errors import StateError
from webdataset.runs.items import Item, output_versions, with_versions
from webdataset.runs.options import TaskOptions
from webdataset.runs.plans import RunPlan, RunProgram, write_plan
from webdataset.runs.records import AttemptRecord, RecordWriter
from webdataset.runs.runs import Run, Standing, found_run, is_wanted


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    return Run(str(tmp_path / "runs" / "map-1"))


def planned(run: Run, folder: Path, digest: str = "d") -> RunPlan:
    items = []
    for name in "abc":
        (folder / f"{name}.in").touch()
        items.append(Item(name, (str(folder / f"{name}.in"),), (str(folder / f"{name}.out"),)))
    return write_plan(run.place, RunProgram({"kind": "command"}, digest), TaskOptions(), with_versions(items))


def finish(run: Run, plan: RunPlan, number: int, **more: object) -> None:
    item = plan.item(number)
    Path(item.outputs[0]).write_bytes(b"out")
    facts = {"digest": plan.digest, "version": item.version, "final": True} | more
    facts |= {"outputs": list(output_versions(item.outputs).values())}
    RecordWriter(run.place).write(AttemptRecord(item.name, "done", **facts))


def standings(run: Run, plan: RunPlan) -> list[str]:
    return [standing for _, _, standing in run.standings(plan)]


def test_done_needs_the_output_and_a_record_that_fits(run: Run, tmp_path: Path) -> None:
    plan = planned(run, tmp_path)
    assert standings(run, plan) == ["missing"] * 3
    finish(run, plan, 0)
    finish(run, plan, 1, version="older")
    finish(run, plan, 2)
    (tmp_path / "c.out").unlink()
    assert standings(run, plan) == ["done", "stale", "missing"]
    (tmp_path / "a.out").write_bytes(b"somebody else's")
    assert standings(run, plan) == ["stale", "stale", "missing"]


def test_an_output_without_a_record_is_not_ours(run: Run, tmp_path: Path) -> None:
    plan = planned(run, tmp_path)
    (tmp_path / "a.out").touch()
    assert standings(run, plan)[0] == "missing"


def test_what_failed_is_known_until_it_is_done(run: Run, tmp_path: Path) -> None:
    plan = planned(run, tmp_path)
    RecordWriter(run.place).write(AttemptRecord("a", "failed", error="x"))
    assert standings(run, plan)[0] == "missing"
    RecordWriter(run.place).write(AttemptRecord("a", "failed", generation="1", error="x", final=True))
    assert standings(run, plan)[0] == "failed"
    finish(run, plan, 0)
    assert standings(run, plan)[0] == "done", "what stands there decides"


@pytest.mark.parametrize(
    ("redo", "wanted"),
    [(None, "bcd"), ("all", "abcd"), ("failed", "d"), ("[ab]", "ab")],
)
def test_redo(redo: str | None, wanted: str) -> None:
    found = zip("abcd", Standing, strict=True)
    assert "".join(name for name, standing in found if is_wanted(Item(name), standing, redo)) == wanted


def test_a_submission_is_read_as_it_was_written(run: Run, tmp_path: Path) -> None:
    plan = planned(run, tmp_path)
    with run.owned(plan, "slurm") as generation:
        made = run.submission(plan, "slurm", [0, 2], 1, generation=generation, tried={2: 1})
    made.handle = {"jobs": ["7"]}
    run.save(made)
    assert run.submissions() == [made.id]
    again = run.read_submission(made.id)
    assert (again.engine, again.numbers, again.handle, again.plan.id) == ("slurm", [0, 2], {"jobs": ["7"]}, plan.id)
    assert (list(again.tasks()), again.tried) == ([[0], [2]], {2: 1})
    with pytest.raises(StateError, match="2"):
        again.task(2)


def test_a_run_is_found_by_its_place_and_by_its_name(run: Run, tmp_path: Path) -> None:
    with run.owned(planned(run, tmp_path), "local"):
        """It is remembered."""
    assert found_run(run.url).url == run.url
    assert found_run("map-1").url == run.url
    with pytest.raises(StateError) as raised:
        found_run(str(tmp_path / "nothing"))
    assert raised.value.url == str(tmp_path / "nothing")
