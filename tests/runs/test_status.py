"""The status of a run, from its records alone, and its page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from webdataset.runs.items import Item
from webdataset.runs.options import TaskOptions
from webdataset.runs.pages import page
from webdataset.runs.plans import RunProgram, write_plan
from webdataset.runs.records import AttemptRecord, RecordWriter
from webdataset.runs.runs import Run
from webdataset.runs.status import status_of


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """One shard is done, one failed, one runs, one waits."""
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    run = Run(str(tmp_path / "run"))
    items = [Item(name) for name in ("a", "b", "c", "<d>")]
    plan = write_plan(run.place, RunProgram({"kind": "command"}, "d"), TaskOptions(), items)
    with run.owned(plan, "slurm") as generation:
        writer, now = RecordWriter(run.place, f"{generation.name}-a-1"), time.time()
        common = {"plan": plan.id, "digest": "d", "time": now - 10, "generation": generation.name}
        for number, name in enumerate("abc"):
            writer.write(AttemptRecord(name, "start", **common, number=number))
        done = {"seconds": 10, "samples_out": 50, "bytes_in": 2_000_000, "final": True}
        writer.write(AttemptRecord("a", "done", **common, **done, number=0))
        failed = {"seconds": 1, "error": "<script>alert(1)</script>", "final": True}
        writer.write(AttemptRecord("b", "failed", **common, **failed, number=1))
        yield run


def test_the_status(run: Run) -> None:
    facts = status_of(run).facts()
    assert {name: facts[name] for name in ("total", "done", "failed", "running", "attempts", "samples")} == {
        "total": 4,
        "done": 1,
        "failed": 1,
        "running": 1,
        "attempts": 3,
        "samples": 50,
    }
    assert (facts["samples_per_second"], facts["mb_per_second"], facts["eta"]) == (5.0, 0.2, 20.0)
    assert re.search(r"\bb\b.*<script>", status_of(run).text())


def test_the_page_shows_it_and_runs_nothing(run: Run) -> None:
    status = status_of(run)
    made = page(run, run.plan(), status.facts(), status.failures)
    assert "<script" not in made
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in made
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(made)
    assert {"table", "svg", "h1"} <= set(tags)
    assert "http" not in made.replace("http-equiv", "")
