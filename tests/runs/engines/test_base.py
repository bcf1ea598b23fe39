"""What all engines have in common, and names that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from webdataset.runs.engines import NAMES, base, engine_named
from webdataset.runs.engines.base import SHELF, EngineError, FuturesEngine, do_task
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunPlan, RunProgram, write_plan
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


def test_an_engine_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="there is no engine 'spark'; engines are local, dask, ray"):
        engine_named("spark", TaskOptions())


@pytest.mark.parametrize("name", ["local", "dask", "ray"])
def test_tasks_that_end_with_their_process_cannot_be_found_again(tmp_path: Path, name: str) -> None:
    with pytest.raises(EngineError, match="end with the process that submitted them"):
        engine_named(name, TaskOptions()).attach(Submission("s", name, planned(tmp_path, 1), [0]))


def test_a_worker_keeps_its_process_for_the_next_task(tmp_path: Path) -> None:
    plan = planned(tmp_path, 2)
    assert [do_task(plan.url, "s", [n], thread=7) for n in range(2)] == [0, 0]
    assert (tmp_path / "0").read_text() == (tmp_path / "1").read_text()
    (hand,) = SHELF.take(plan.url, 7)
    hand.dismiss()
    assert not hand.is_alive


def test_a_task_that_is_started_again_does_only_the_rest(tmp_path: Path) -> None:
    """Engines start tasks again when a worker dies, with all their items."""
    script = f"echo begun >> {tmp_path}/{{}}; test {{}} = 0 -o -e {tmp_path}/again"
    program = RunProgram({"kind": "command", "words": ["sh", "-c", script]}, "d")
    options = TaskOptions(retries=0)
    plan = write_plan(Place(str(tmp_path / "run")), program, options, [Item("0"), Item("1")])
    assert do_task(plan.url, "first", [0, 1]) == 65
    (tmp_path / "again").touch()
    assert do_task(plan.url, "first", [0, 1]) == 0
    assert [len((tmp_path / name).read_text().splitlines()) for name in "01"] == [1, 2]
    assert do_task(plan.url, "second", [0]) == 0, "another submission wants it anew"
    SHELF.clear()
    assert len((tmp_path / "0").read_text().splitlines()) == 2


def test_gpus_are_not_handed_out_here(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="there are no GPUs to hand out on local"):
        engine_named("local", TaskOptions(gpus=1)).submit(Submission("s", "local", planned(tmp_path, 1), [0]))


def test_many_shards_are_several_a_task_where_the_number_of_workers_is_known() -> None:
    engine = Instant()
    engine.options = TaskOptions(workers=2)
    assert [engine.shards_per_task(count) for count in (1, 63, 100, 10_000)] == [1, 1, 3, 20]
    engine.options = TaskOptions(address="tcp://cluster:8786")
    assert engine.shards_per_task(10_000) == 1
