"""Programs that build pipelines, and producers as child processes."""

from __future__ import annotations

import sys

import pytest

import webdataset as wds
from waiting import soon
from webdataset.remote.producer import ProducerStatus
from webdataset.tools.serving import ProducerProcesses, ProgramError, load_pipeline, statuses

STATUS = ProducerStatus(2, 10, 1.5, 5.0, ["rank 0 of 1"], 1, 1, 5, 0)
CHILD = f"""
import json, sys, time
print(json.dumps({{"bound": "tcp://somewhere"}}), flush=True)
print(json.dumps({STATUS._asdict()!r}), flush=True)
"""


def test_the_statuses_of_children_are_added() -> None:
    bound: list[str] = []
    commands = [[sys.executable, "-c", CHILD + "time.sleep(600)"]] * 2
    children = ProducerProcesses(commands, bound.append)
    try:
        assert soon(lambda: all(children.statuses))
        total = children.total()
        assert total is not None
        assert (total.batches, total.byte_rate, total.readers) == (4, 10.0, ["rank 0 of 1"])
        assert bound == ["tcp://somewhere"] * 2
    finally:
        children.close()


def test_children_that_never_serve_are_given_up(monkeypatch) -> None:
    monkeypatch.setattr("webdataset.tools.serving.RESTART_SECONDS", 0.01)
    children = ProducerProcesses([[sys.executable, "-c", "raise SystemExit(1)"]], print)
    try:
        assert soon(lambda: children.failed is not None)
        assert "code 1" in str(children.failed)
    finally:
        children.close()


def test_a_module_of_the_current_folder_is_found(tmp_path, monkeypatch) -> None:
    (tmp_path / "my_corpus.py").write_text("import webdataset as wds\ntrain = wds.DataPipeline(lambda: iter([1, 2]))\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert list(load_pipeline("my_corpus:train")) == [1, 2]


def test_a_program_that_exits_is_told(tmp_path) -> None:
    (tmp_path / "p.py").write_text("raise SystemExit('bye')\n")
    with pytest.raises(ProgramError, match=r"line 1 .*bye"):
        load_pipeline(f"{tmp_path}/p.py:x")


def test_producers_that_do_not_answer_have_no_status(tmp_path) -> None:
    assert [told.status for told in statuses([f"ipc://{tmp_path}/a"], wait=0.05)] == [None]
    with pytest.raises(wds.SecurityError):
        statuses(["tcp://elsewhere:1"])
