"""The process that does items: its answers, its records, its logs, and when it ends by itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from runs_support import PYTHON
from webdataset.runs.items import Item, with_versions
from webdataset.runs.options import TaskOptions
from webdataset.runs.places import Place
from webdataset.runs.plans import RunPlan, RunProgram, write_plan
from webdataset.runs.records import RecordReader


def planned(place: str, script: str, items: list[Item], **options: Any) -> RunPlan:
    program = RunProgram({"kind": "command", "words": ["sh", "-c", script]}, "d")
    return write_plan(Place(place), program, TaskOptions.of(options), with_versions(items))


def asked(plan: RunPlan, *requests: tuple[int, int]) -> list[dict[str, Any]]:
    """What the process answers."""
    lines = "".join(json.dumps({"number": number, "attempt": attempt}) + "\n" for number, attempt in requests)
    words = [*PYTHON, "task", plan.url, "--serve"]
    told = subprocess.run(words, input=lines, capture_output=True, text=True, check=True, timeout=60)
    ready, *lines = told.stdout.splitlines()
    assert ready == "ready"
    return [json.loads(line) for line in lines]


def test_it_answers_what_it_records(tmp_path: Path) -> None:
    plan = planned(str(tmp_path / "run"), "echo to stdout; echo to stderr >&2; cat; exit {}", [Item("0"), Item("1")])
    done, failed = asked(plan, (0, 1), (1, 3))
    assert (done["status"], done["final"], done["code"]) == ("done", True, 0)
    assert (failed["status"], failed["final"], failed["code"]) == ("failed", True, 1)
    records = list(RecordReader(plan.place).new())
    assert [record.status for record in records] == ["start", "done", "start", "failed"]
    assert plan.place.read("logs/1.3.txt") == b"to stdout\nto stderr\n"


def test_an_item_that_prints_nothing_has_no_log(tmp_path: Path) -> None:
    plan = planned(str(tmp_path / "run"), "true {}", [Item("0")])
    asked(plan, (0, 1))
    assert plan.place.sizes("logs/") == {}


def test_an_input_that_changed_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "in.tar"
    path.write_bytes(b"one")
    plan = planned(str(tmp_path / "run"), "true {}", [Item("0", (str(path),))])
    path.write_bytes(b"other")
    (failed,) = asked(plan, (0, 1))
    assert failed["verdict"] == "give up"
    assert "changed" in failed["error"]


def test_outputs_are_described(tmp_path: Path) -> None:
    output = str(tmp_path / "out.txt")
    plan = planned(str(tmp_path / "run"), f"printf abc > {output}; true {{}}", [Item("0", (), (output,))])
    (done,) = asked(plan, (0, 1))
    assert done["bytes_out"] == 3
    assert done["checksum"] == "crc32:352441c2"


def test_a_run_in_a_bucket_has_its_logs_and_records_there(s3_prefix: str) -> None:
    plan = planned(s3_prefix, "echo hello {}", [Item("a/b")])
    (done,) = asked(plan, (0, 1))
    assert done["status"] == "done"
    assert plan.place.read("logs/a%2Fb.1.txt") == b"hello a/b\n"
    assert [record.status for record in RecordReader(plan.place).new()] == ["start", "done"]


def test_a_process_that_nobody_asks_ends(tmp_path: Path) -> None:
    plan = planned(str(tmp_path / "run"), "true {}", [Item("0")])
    program = "import sys; from webdataset.runs.serving import serve; serve(sys.argv[1], None, idle=0.1)"
    reading, writing = os.pipe()
    try:
        subprocess.run([PYTHON[0], "-c", program, plan.url], stdin=reading, check=True, timeout=60)
    finally:
        os.close(reading)
        os.close(writing)
