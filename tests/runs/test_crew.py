"""The crew: work for every process, processes that die or hang, and what to tell the engine in the end."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from runs_support import PYTHON
from waiting import soon
from webdataset.errors import WorkerError
from webdataset.runs.crew import Crew, do_items, ended
from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunPlan, RunProgram, write_plan
from webdataset.runs.records import RecordReader


def planned(folder: Path, script: str, count: int = 3, **options: Any) -> RunPlan:
    program = RunProgram({"kind": "command", "words": ["sh", "-c", script.replace("HERE", str(folder))]}, "d")
    items = [Item(str(number)) for number in range(count)]
    return write_plan(Place(str(folder / "run")), program, TaskOptions.of(options), items)


def statuses(plan: RunPlan) -> list[str]:
    return [f"{record.item} {record.status} {record.attempt}" for record in RecordReader(plan.place).new()]


@pytest.mark.parametrize(
    ("script", "code"), [("true {}", 0), ("exit 65 {}", 65), ("exit 78 {}", 78), ("exit 1 {}", 65)]
)
def test_the_exit_code_says_how_it_went(tmp_path: Path, script: str, code: int) -> None:
    assert do_items(planned(tmp_path, script, 2, retries=0), [0, 1])[0] == code


def test_one_process_does_many_items(tmp_path: Path) -> None:
    plan = planned(tmp_path, "echo $PPID >> HERE/{}.txt")
    assert do_items(plan, [0, 1, 2])[0] == 0
    assert len({(tmp_path / f"{n}.txt").read_text() for n in range(3)}) == 1


def test_items_are_tried_again_by_a_new_process(tmp_path: Path) -> None:
    """The command kills the process that runs it."""
    plan = planned(tmp_path, "test -e HERE/{} || { touch HERE/{}; kill -9 $PPID; }", 2, retries=1)
    assert do_items(plan, [0, 1])[0] == 0
    assert statuses(plan).count("0 killed 1") == 1
    assert statuses(plan).count("0 done 2") == 1


def test_no_process_is_left_when_a_crew_is_closed(tmp_path: Path) -> None:
    plan = planned(tmp_path, "echo $$ > HERE/pid-{}; sleep 1000", 1)
    crew = Crew(plan, [0])
    path = tmp_path / "pid-0"
    assert soon(lambda: crew.poll(0.05) == [] and path.exists() and path.read_text().strip())
    pid = int(path.read_text())
    crew.close()

    def is_gone() -> bool:
        try:
            os.kill(pid, signal.SIG_DFL)
        except ProcessLookupError:
            return True
        return False

    assert soon(is_gone)


def test_kept_processes_do_the_next_task(tmp_path: Path) -> None:
    plan = planned(tmp_path, "echo $PPID >> HERE/pids; true {}")
    _, hands = do_items(plan, [0], keep=True)
    _, hands = do_items(plan, [1], hands, keep=True)
    ended(hands)
    assert len(set((tmp_path / "pids").read_text().split())) == 1


def test_processes_that_cannot_start_are_an_error(tmp_path: Path) -> None:
    plan = planned(tmp_path, "true {}", 20, retries=0)
    (tmp_path / "run" / "plans" / plan.id / "plan.json").unlink()
    with pytest.raises(WorkerError, match=plan.id):
        do_items(plan, range(20))


def test_wl_task_does_items_and_says_how_it_went(tmp_path: Path) -> None:
    import subprocess

    plan = planned(tmp_path, "test {} != 1 && touch HERE/{}", retries=0)
    assert subprocess.run([*PYTHON, "task", plan.url, "0,2"], check=False).returncode == 0
    assert (tmp_path / "2").exists()
    assert subprocess.run([*PYTHON, "task", plan.url, "1"], check=False).returncode == 65
    environment = os.environ | {"JOB_COMPLETION_INDEX": "0"}
    assert subprocess.run([*PYTHON, "task", plan.url], env=environment, check=False).returncode == 0
    refused = subprocess.run([*PYTHON, "task", plan.url], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "item" in refused.stderr


def test_an_item_that_is_done_before_anybody_has_looked_is_done_once(tmp_path: Path) -> None:
    """What its process says first, and the record, arrive together."""
    plan = planned(tmp_path, "echo >> HERE/{}.txt", 1)
    crew = Crew(plan, [0])
    crew._give_out()
    assert soon(lambda: "0 done 1" in statuses(plan))
    [hand] = crew._busy
    assert soon(lambda: len(peeked(hand.fileno())) > 100)
    records = []
    assert soon(lambda: records.extend(crew.poll(0.05)) or crew.finished)
    crew.close()
    assert [record.status for record in records] == ["done"]
    assert (tmp_path / "0.txt").read_text() == "\n"


def peeked(pipe: int) -> bytes:
    """What there is to be read, and stays there."""
    found = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, found)
    return bytes(int.from_bytes(found, sys.byteorder))


JUMPS = """
import os, sys, time
now = time.time
time.time = lambda: now() + 7200 * os.path.exists("begun")
from webdataset.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_clock_that_jumps_is_no_time_that_a_shard_took(tmp_path: Path) -> None:
    command = ["sh", "-c", "test {} = a || { touch begun; sleep 1; }; touch out-{}"]
    words = ["jobs", "-s", "{a,b}", "--workers", "1", "--timeout", "600", "--output", "out-{}", "--", *command]
    ended = subprocess.run([sys.executable, "-c", JUMPS, *words], cwd=tmp_path, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (run,) = (tmp_path / ".runs").iterdir()
    assert [record.status for record in RecordReader(Place(str(run))).new()] == ["start", "done"] * 2
