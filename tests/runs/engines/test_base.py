"""What all engines have in common, and names that are none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import webdataset as wds
from runs_support import allocates_for_one, doubled, make_inputs
from webdataset.base.settings import settings
from webdataset.runs.crew import ended
from webdataset.runs.engines import NAMES, base, engine_named
from webdataset.runs.engines.base import SHELF, EngineError, FuturesEngine, cores, do_task, workers_here
from webdataset.runs.generations import SupersededError, own
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunPlan, RunProgram, write_plan
from webdataset.runs.records import AttemptRecord, RecordReader, RecordWriter
from webdataset.runs.runs import Submission


def planned(folder: Path, count: int) -> RunPlan:
    program = RunProgram({"kind": "command", "words": ["sh", "-c", f"echo $PPID > {folder}/{{}}"]}, "d")
    return write_plan(Place(str(folder / "run")), program, TaskOptions(), [Item(str(n)) for n in range(count)])


class Instant(FuturesEngine):
    """Futures that end when they are asked for."""

    name = "instant"

    def __init__(self) -> None:
        super().__init__(TaskOptions())
        self.started: list[list[int]] = []
        self.most = 0

    def connect(self) -> None:
        """There is nothing to connect to."""

    def places(self) -> int:
        return 4

    def start(self, submission: Submission, numbers: list[int]) -> Any:
        self.started.append(numbers)
        return numbers

    def ended(self, futures: list[Any], seconds: float) -> Any:
        self.most = max(self.most, len(futures))
        return futures[:2], futures[2:]

    def error_of(self, future: Any) -> str:
        return "seven" if future == [7] else ""

    @property
    def running(self) -> int:
        return len(self._futures)

    def cancel(self) -> None:
        """There is nothing to cancel."""


def test_a_bounded_number_of_futures_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "MOST_QUEUED", 5)
    engine = Instant()
    engine.submit(Submission("s", "instant", planned(tmp_path, 20), list(range(20))))
    while not engine.finished:
        engine.poll(0)
    assert engine.started == [[n] for n in range(20)]
    assert engine.most == 5
    assert engine.reason == "seven"


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_is_there_without_its_packages(name: str) -> None:
    assert engine_named(name, TaskOptions()).name == name


@pytest.mark.parametrize("name", ["local", "dask", "ray"])
def test_tasks_that_end_with_their_process_cannot_be_found_again(tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineError, match=name) as raised:
        engine_named(name, TaskOptions()).attach(Submission("s", name, planned(tmp_path, 1), [0]))
    assert "wl jobs resume" in raised.value.hint


def owned_task(plan: RunPlan) -> str:
    """The name of a task of an owner who is still there."""
    generation = own(plan.place, {"plan": plan.id, "engine": "instant"})
    generation.make_stages(plan)
    return f"{generation.name}-abc-0"


def test_a_worker_keeps_its_process_for_the_next_task(tmp_path: Path) -> None:
    plan = planned(tmp_path, 2)
    task = owned_task(plan)
    assert [do_task(plan.url, f"{task}{n}", [n], {}, thread=7) for n in range(2)] == [0, 0]
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text()
    (hand,) = SHELF.take(plan.url, 7)
    ended([hand])
    assert not hand.is_alive


def test_a_task_that_is_started_again_does_only_the_rest(tmp_path: Path) -> None:
    """Engines start tasks again when a worker dies, with all their items."""
    script = f"echo begun >> {tmp_path}/{{}}; test {{}} = 0 -o -e {tmp_path}/again || kill -9 $$"
    program = RunProgram({"kind": "command", "words": ["sh", "-c", script]}, "d")
    items = [Item("0"), Item("1"), Item("2")]
    plan = write_plan(Place(str(tmp_path / "run")), program, TaskOptions(retries=1), items)
    task = owned_task(plan)
    RecordWriter(plan.place, task).write(AttemptRecord("2", "start", number=2))
    assert do_task(plan.url, task, [0, 1, 2], {}) == 65
    (tmp_path / "again").touch()
    assert do_task(plan.url, task, [0, 1, 2], {}) == 65, "what was lost goes alone, what was given up stays so"
    assert [len((tmp_path / name).read_text().splitlines()) for name in "01"] == [1, 2]
    assert not (tmp_path / "2").exists()
    assert do_task(plan.url, f"{task}9", [2], {2: 1}) == 0
    SHELF.clear()
    attempts = [record.attempt for record in RecordReader(plan.place).new() if record.item == "2"]
    assert sorted(attempts) == [1, 2, 2]


def test_a_task_of_an_earlier_owner_begins_nothing(tmp_path: Path) -> None:
    plan = planned(tmp_path, 1)
    task = owned_task(plan)
    own(plan.place, {"plan": plan.id, "engine": "instant"}, take_over=True)
    with pytest.raises(SupersededError):
        do_task(plan.url, task, [0], {})
    assert not (tmp_path / "0").exists()


def test_gpus_are_not_handed_out_here(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="GPUs"):
        list(wds.jobs(doubled, make_inputs(tmp_path, 1), on="local", gpus=1))


def test_many_shards_are_several_a_task_where_the_number_of_workers_is_known() -> None:
    engine = Instant()
    engine.options = TaskOptions(workers=2)
    assert [engine.shards_per_task(count) for count in (1, 63, 100, 10_000)] == [1, 1, 3, 20]
    engine.options = TaskOptions()
    assert [engine.shards_per_task(count) for count in (1, 63, 130, 10_000)] == [1, 1, 2, 20]


def test_a_cluster_of_others_has_no_more_tasks_at_a_time_than_workers(tmp_path: Path) -> None:
    engine = Instant()
    engine.options, engine.is_shared = TaskOptions(workers=3), True
    engine.submit(Submission("s", "instant", planned(tmp_path, 20), list(range(20))))
    while not engine.finished:
        engine.poll(0)
    assert engine.most == 3


@pytest.mark.parametrize("name", ["local", "dask"])
@pytest.mark.parametrize(
    "options",
    [
        {"cpus": cores() + 1},
        {"cpus": cores() + 1, "workers": 2},
        {"memory": "999Ti"},
        {"memory": "1Ti", "workers": 999},
    ],
)
def test_tasks_that_do_not_fit_this_machine_are_refused(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match=next(iter(options))):
        list(wds.jobs(doubled, make_inputs(tmp_path, 1), on=name, **options))


@pytest.mark.parametrize("name", ["local", "dask"])
def test_memory_is_limited(tmp_path: Path, name: str) -> None:
    """Of each process, and with as many of them as there is memory for."""
    pairs = make_inputs(tmp_path, 2)
    (first, second) = wds.jobs(allocates_for_one, pairs, on=name, memory="1Gi", retries=0)
    told = {done.item: done for done in (first, second)}
    assert told["out-000"].ok, told["out-000"].error
    assert not told["out-001"].ok
    assert "MemoryError" in told["out-001"].error
    assert str(1 << 30) in told["out-001"].error


def test_a_command_has_the_limit_too(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "x = b'1' * (2 << 30); print('{}')"]
    plan = write_plan(
        Place(str(tmp_path / "run")),
        RunProgram({"kind": "command", "words": words}, "d"),
        TaskOptions.of({"memory": "1Gi", "retries": 0}),
        [Item("0")],
    )
    assert do_task(plan.url, "", [0], {}, memory=plan.options.memory) == 65
    SHELF.clear()


def test_cores_bound_how_many_tasks_run() -> None:
    assert workers_here(TaskOptions()) == cores()
    assert workers_here(TaskOptions(cpus=cores())) == 1
    assert workers_here(TaskOptions(memory=settings.memory // 2 + 1)) == 1
    assert workers_here(TaskOptions(workers=cores() * 3)) == cores() * 3, "which may wait for something else"
