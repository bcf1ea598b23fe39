"""wl jobs: any command once for each item, the seed's line, and what can be asked of a run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runs_support import PYTHON, make_inputs
from waiting import soon

pytestmark = pytest.mark.usefixtures("here")


def test_any_command_for_each_item(wl: Any, here: Path) -> None:
    line = ("jobs", "-s", "{000..002}", "--", "sh", "-c", "tar tf in-{}.tar > list-{}.txt")
    ended = wl(*line)
    assert ended.code == 0, ended.err
    assert (here / "list-002.txt").read_text().splitlines()[0] == "002000.cls"
    assert wl(*line[:3], "--json", *line[3:]).facts["skipped"] == 3


def test_outputs_that_are_named_are_part_of_being_done(wl: Any, here: Path) -> None:
    line = ["jobs", "-s", "{000..002}", "--output", "list-{}.txt", "--input", "in-{}.tar", "--name", "lists"]
    line += ["--", "sh", "-c", "tar tf in-{}.tar > list-{}.txt"]
    assert wl(*line).code == 0
    (here / "list-001.txt").unlink()
    make_inputs(here, 1, samples=5)
    again = wl(*line).err
    assert all(count in again for count in ("1 done", "1 missing", "1 stale"))


def test_items_of_a_file(wl: Any, here: Path) -> None:
    (here / "items.txt").write_text("000\n\n002\n")
    assert wl("jobs", "--items-from", "items.txt", "--", "touch", "done-{}").code == 0
    assert sorted(path.name for path in here.glob("done-*")) == ["done-000", "done-002"]


@pytest.mark.parametrize("program", ["wl jobs", "kujob"])
def test_the_line_of_the_seed(wl: Any, here: Path, program: str) -> None:
    words = ["-s", "{000..002}", "--json", "--", "tarproc", "-p", "2", "-c", "wc -c < sample.txt > sample.n"]
    words += ["in-{}.tar", "-o", "ocr-{}.tar"]
    ended = wl.old("kujob", *words) if program == "kujob" else wl("jobs", *words)
    assert ended.code == 0, ended.err
    assert [ended.facts[name] for name in ("done", "skipped", "failed", "samples")] == [3, 0, 0, 9]
    assert len(list(here.glob("ocr-*.tar"))) == 3


def test_kujob_with_an_image_is_a_job_of_kubernetes(wl: Any, here: Path) -> None:
    (here / "jobs.toml").write_text("[k8s]\nclaim = 'data'\n")
    words = ["-s", "{000..002}", "-I", "my/ocr", "-C", "jobs.toml", "-P", "--", "tarproc", "-c", "x", "in-{}.tar"]
    ended = wl.old("kujob", *words, "-o", "ocr-{}.tar")
    assert ended.code == 0, ended.err
    assert "completionMode: Indexed" in ended.out.decode()


def test_argo_prints_a_workflow_whose_tasks_are_written_down(wl: Any, here: Path) -> None:
    (here / "jobs.toml").write_text("image = 'my/ocr'\n[argo]\nclaim = 'data'\n")
    words = ["jobs", "-s", "{000..002}", "--on", "argo", "--config", "jobs.toml", "--state", "run", "--", "touch", "{}"]
    made = wl(*words).out.decode()
    assert "kind: Workflow" in made
    import yaml

    command = yaml.safe_load(made)["spec"]["templates"][1]["container"]["command"]
    ended = subprocess.run([*PYTHON, *command[1:-1], "1"], check=False)
    assert ended.returncode == 0
    assert (here / "001").exists()
    assert json.loads(wl("jobs", "status", "run", "--json").out)["done"] == 1


def test_status_and_logs_while_it_runs(wl: Any, here: Path) -> None:
    line = [*PYTHON, "jobs", "-s", "{0..2}", "--state", "run", "--workers", "1", "-q", "--", "sh", "-c"]
    child = subprocess.Popen([*line, "echo hello {}; test {} = 0 || { touch begun; sleep 1000; }"])
    try:
        assert soon(lambda: (here / "begun").exists())
        facts = json.loads(wl("jobs", "status", "run", "--json").out)
        assert (facts["done"], facts["running"], facts["total"]) == (1, 1, 3)
        shown = wl("jobs", "status", "run").out.decode()
        assert "shards    3\n" in shown
        assert "hello 0\n" in wl("jobs", "logs", "run").out.decode()
        assert wl("jobs", "logs", "run", "--item", "2").out == b""
    finally:
        child.terminate()
        child.wait(60)


def test_resume_does_what_is_left_by_the_name_of_the_run(wl: Any, here: Path) -> None:
    (here / "switch").touch()
    line = ["jobs", "-s", "{0..2}", "--state", "runs/mine", "--retries", "0", "--", "sh", "-c"]
    assert wl(*line, "test ! -e switch -o {} = 0 && touch done-{}").code == 1
    (here / "switch").unlink()
    ended = wl("jobs", "resume", "mine", "--json")
    assert [ended.facts[name] for name in ("done", "skipped", "failed")] == [2, 1, 0]
    assert ended.code == 0
    assert len(list(here.glob("done-*"))) == 3


def test_cancel_of_a_run_that_ended(wl: Any) -> None:
    wl("jobs", "-s", "{0..2}", "--state", "run", "--", "touch", "{}")
    ended = wl("jobs", "cancel", "run")
    assert (ended.code, ended.err.startswith("0 ")) == (0, True)


def test_exit_codes_of_the_user(wl: Any, here: Path) -> None:
    line = ["jobs", "-s", "{0..5}", "--workers", "1", "--stop-codes", "9", "--state", "run"]
    ended = wl(*line, "--", "sh", "-c", "touch begun-{}; exit 9")
    assert (ended.code, "exit code 9" in ended.err) == (1, True)
    assert len(list(here.glob("begun-*"))) == 1
