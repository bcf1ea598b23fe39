"""The controller: what an engine loses is submitted again, and given up in the end."""

from __future__ import annotations

from pathlib import Path

from webdataset.runs.control import RunController, RunCounts
from webdataset.runs.engines.base import Engine
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.plans import RunPlan, RunProgram, write_plan
from webdataset.runs.records import AttemptRecord, RecordWriter, generation_of
from webdataset.runs.runs import Run, Submission


class Forgetful(Engine):
    """Does every other item, loses number 3, and forgets the rest."""

    name = "forgetful"
    reason = "it was forgotten"

    def __init__(self, options: TaskOptions) -> None:
        super().__init__(options)
        self.submitted: list[list[int]] = []
        self.cancelled = False

    def submit(self, submission: Submission) -> None:
        self.submitted.append(submission.numbers)
        plan = submission.plan
        writer = RecordWriter(plan.place, submission.task_name(submission.numbers))
        for number in sorted({*submission.numbers[::2], *({3} & set(submission.numbers))}):
            facts = {"number": number, "plan": plan.id, "digest": "d", "generation": generation_of(submission.id)}
            writer.write(AttemptRecord(plan.item(number).name, "start", **facts))
            if number != 3:
                status = "failed" if number == 4 else "done"
                facts |= {"samples_out": 2, "bytes_in": 10, "final": True}
                writer.write(AttemptRecord(plan.item(number).name, status, **facts))

    def poll(self, seconds: float) -> None:
        """There is nothing to wait for."""

    @property
    def finished(self) -> bool:
        return True

    @property
    def running(self) -> int:
        return 0

    def cancel(self) -> None:
        self.cancelled = True


def planned(folder: Path, count: int, **options: int) -> tuple[Run, RunPlan]:
    run = Run(str(folder / "run"))
    items = [Item(f"item-{n}") for n in range(count)]
    return run, write_plan(run.place, RunProgram({"kind": "command"}, "d"), TaskOptions.of(options), items)


def test_what_was_lost_is_submitted_again_and_given_up_in_the_end(tmp_path: Path) -> None:
    run, plan = planned(tmp_path, 6, retries=1)
    engine = Forgetful(plan.options)
    with run.owned(plan, engine.name) as generation:
        controller = RunController(run, plan, engine, list(range(6)), generation)
        told = [(record.number, record.status) for record in controller]
        controller.finish()
    assert engine.submitted == [[0, 1, 2, 3, 4, 5], [1, 5], [3], [5], [3]]
    assert told == [(0, "done"), (2, "done"), (4, "failed"), (1, "done"), (5, "done"), (3, "lost")]
    assert not controller.stopped
    assert [(record.number, record.error) for record in controller.failures] == [(4, ""), (3, "it was forgotten")]
    counts = controller.counts
    assert (counts.done, counts.failed, counts.samples, counts.bytes) == (4, 2, 10, 40)


def test_too_many_failures_cancel_the_rest(tmp_path: Path) -> None:
    run, plan = planned(tmp_path, 6, retries=1, max_failures=0)
    engine = Forgetful(plan.options)
    with run.owned(plan, engine.name) as generation:
        controller = RunController(run, plan, engine, list(range(6)), generation)
        list(controller)
    assert engine.cancelled
    assert "item-4" in controller.stopped
    assert len(engine.submitted) == 1


def test_nothing_to_do_submits_nothing(tmp_path: Path) -> None:
    run, plan = planned(tmp_path, 2)
    engine = Forgetful(plan.options)
    assert list(RunController(run, plan, engine, [])) == []
    assert engine.submitted == []


def test_the_time_left() -> None:
    counts = RunCounts(total=10, skipped=2)
    assert counts.left is None
    counts.done = 8
    assert counts.left == 0


class Idle(Forgetful):
    """Begins nothing."""

    def submit(self, submission: Submission) -> None:
        self.submitted.append(submission.numbers)


def test_shards_that_nobody_begins_are_submitted_again_before_they_are_given_up(tmp_path: Path) -> None:
    run, plan = planned(tmp_path, 2, retries=0)
    engine = Idle(plan.options)
    with run.owned(plan, engine.name) as generation:
        told = [record.status for record in RunController(run, plan, engine, [0, 1], generation)]
    assert (engine.submitted, told) == ([[0, 1]] * 3, ["lost", "lost"])
