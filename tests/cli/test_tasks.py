"""Our own commands inside a task: counted, their errors kept, their endings understood."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runs_support import make_inputs
from webdataset.cli.tasks import run_own_command
from webdataset.runs.outcomes import Verdict
from webdataset.runs.performing import Performed


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_inputs(tmp_path, 1)


def run(*words: str) -> Performed:
    done = run_own_command({"kind": "command", "words": list(words)}, "errors.jsonl")
    assert done is not None
    return done


@pytest.mark.parametrize(
    "line",
    [
        "wl map -c cls+=1 in-000.tar -o out.tar",
        "tarproc -c true in-000.tar -o out.tar",
        "tarp cat in-000.tar -o out.tar",
    ],
)
def test_samples_are_counted(line: str) -> None:
    done = run(*line.split())
    assert (done.verdict, done.samples_in, done.samples_out, done.dropped) == (Verdict.DONE, 3, 3, 0)


def test_a_command_by_its_options() -> None:
    options: dict[str, Any] = {"code": "cls += 1", "inputs": ["in-000.tar"], "output": "out.tar"}
    done = run_own_command({"kind": "wl", "command": "map", "options": options}, "errors.jsonl")
    assert done is not None
    assert (done.verdict, done.samples_out) == (Verdict.DONE, 3)


@pytest.mark.parametrize(
    "words", [["ls"], ["/usr/bin/wl", "map"], ["wl", "dance"], ["kujob", "-s", "x"], ["tarp", "x"]]
)
def test_commands_of_others_are_left_to_them(words: list[str]) -> None:
    assert run_own_command({"kind": "command", "words": words}, "errors.jsonl") is None


@pytest.mark.parametrize(
    ("line", "verdict", "text"),
    [
        ("wl map -c cls= in-000.tar -o out.tar", Verdict.STOP, "cls="),
        ("wl map --nonsense in-000.tar", Verdict.STOP, "wrong"),
        ("wl map -c cls/=0 in-000.tar -o out.tar", Verdict.GIVE_UP, "division"),
        ("wl map -c pass none.tar -o out.tar", Verdict.GIVE_UP, "none.tar"),
        ("wl map -c pass in-000.tar -o /dev/full", Verdict.RETRY, "space"),
        ("wl map -c cls/=0 --on-error stop in-000.tar -o out.tar", Verdict.GIVE_UP, "code 1"),
    ],
)
def test_how_a_command_ended(line: str, verdict: Verdict, text: str) -> None:
    done = run(*line.split())
    assert (done.verdict, text in done.error) == (verdict, True), done


def test_errors_of_samples_are_written_down() -> None:
    done = run("wl", "map", "-c", "cls //= cls", "--on-error", "skip", "in-000.tar", "-o", "out.tar")
    assert (done.verdict, done.samples_out, done.dropped) == (Verdict.DONE, 2, 1)
    (error,) = map(json.loads, Path("errors.jsonl").read_text().splitlines())
    assert error["key"] == "000000"
