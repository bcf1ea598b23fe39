"""--on: the same line on an engine, done once, again, or only said; and lines that make no sense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import webdataset as wds
from runs_support import PYTHON
from servers.clusters import needs_package
from waiting import soon

pytestmark = pytest.mark.usefixtures("here")


LINE = ("map", "-c", "cls *= 2", "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local")


def test_the_same_line_does_only_what_is_missing(wl: Any, here: Path) -> None:
    first = wl(*LINE, "--json").facts
    assert (first["done"], first["skipped"], first["failed"], first["samples"]) == (3, 0, 0, 9)
    expected = {path.name: path.read_bytes() for path in here.glob("out-*")}
    wl("map", "-c", "cls *= 2", "in-000.tar", "-o", "plain.tar")
    assert expected["out-000.tar"] == (here / "plain.tar").read_bytes()
    (here / "out-001.tar").unlink()
    again = wl(*LINE, "--json").facts
    assert (again["done"], again["skipped"]) == (1, 2)
    assert {path.name: path.read_bytes() for path in here.glob("out-*")} == expected


def test_other_code_is_done_anew_and_said(wl: Any, here: Path) -> None:
    (here / "code.py").write_text("def transform(sample):\n    return sample\n")
    line = ("map", "-l", "code.py", "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local")
    wl(*line)
    (here / "code.py").write_text("def transform(sample):\n    return dict(sample, new=b'1')\n")
    (run,) = (here / ".runs").iterdir()
    refused = wl("jobs", "resume", run)
    assert (refused.code, "changed" in refused.err) == (1, True)
    assert "3 stale" in wl(*line).err


def test_dry_run_says_what_would_be_done(wl: Any, here: Path) -> None:
    said = wl(*LINE, "--dry-run")
    assert said.out.decode().splitlines()[1] == f"missing\t001\t{here}/in-001.tar\t{here}/out-001.tar"
    assert ("3 of 3 shards" in said.err, "3 tasks" in said.err) == (True, True)
    assert sorted(path.name for path in here.iterdir()) == ["in-000.tar", "in-001.tar", "in-002.tar"]
    job = wl(*LINE[:-1], "k8s", "--image", "my/image", "--state", "s3://none/run", "--dry-run")
    assert job.code == 1  # whether anything is done already cannot be known


def test_redo(wl: Any) -> None:
    wl(*LINE)
    for which, count in (("*[12]", 2), ("all", 3), ("failed", 0)):
        assert f"{count} shards done" in wl(*LINE, "--redo", which).err


def test_errors_of_samples_go_into_a_file_of_the_shard(wl: Any, here: Path) -> None:
    line = ("map", "-c", "cls = 1 // (cls - 1)", "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local")
    ended = wl(*line, "--on-error", "skip", "--state", "run")
    assert ended.code == 0
    (error,) = [json.loads(text) for text in (here / "run/errors/001.jsonl").read_text().splitlines()]
    assert error["key"] == "001001"
    assert "ZeroDivisionError" in error["error"]
    facts = json.loads(wl("jobs", "status", "run", "--json").out)
    assert (facts["done"], facts["samples"], facts["dropped"]) == (3, 6, 3)
    assert "001001" in wl("jobs", "logs", "run", "--item", "001").out.decode()


def test_a_shard_that_fails_is_listed_and_the_others_are_done(wl: Any, here: Path) -> None:
    (here / "in-001.tar").write_bytes((here / "in-001.tar").read_bytes()[:700])
    ended = wl(*LINE, "--state", "run", "--html", "page.html")
    assert ended.code == 1
    assert any(line.startswith("001: ") and "early" in line for line in ended.err.splitlines())
    assert not (here / "out-001.tar").exists()
    assert "early" in (here / "page.html").read_text()
    status = wl("jobs", "status", "run", "--json")
    facts = json.loads(status.out)
    assert (status.code, facts["done"], facts["failed"]) == (1, 2, 1)
    assert [failure["item"] for failure in facts["failures"]] == ["001"]
    assert facts["attempts"] == 3, "bad data stays bad"


def test_a_wrong_expression_stops_the_run(wl: Any) -> None:
    ended = wl("map", "-c", "cls *=", "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local", "--workers", "1")
    assert ended.code == 1
    assert "stopped: 000:" in ended.err


def test_progress_as_json(wl: Any) -> None:
    lines = [json.loads(line) for line in wl(*LINE, "--json").err.splitlines()]
    assert lines[-1]["end"] is True
    assert (lines[-1]["done"], lines[-1]["failures"], lines[-1]["samples"]) == (3, [], 9)


def test_options_of_a_file(wl: Any, here: Path) -> None:
    (here / "jobs.toml").write_text("retries = 0\nworkers = 1\n[slurm]\npartition = 'cpu'\n")
    assert wl(*LINE, "--config", "jobs.toml").code == 0
    (here / "jobs.toml").write_text("retrys = 0\n")
    refused = wl(*LINE, "--config", "jobs.toml")
    assert refused.code == 2
    assert "'retrys'" in refused.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("map -c pass in-000.tar in-000.tar -o out-{}.tar --on local", "'in-000'"),
        ("map -c pass in-{000..003}.tar -o out-{}.tar --on local", "in-003.tar]"),
        ("map -c pass in-{000..002}.tar -o in-{}.tar --on local", "own"),
        ("map -c pass in-000.tar -o out.tar --retries 3", "--on"),
        ("map -c pass in-{000..002}.tar -o out-{}.tar --on local --detach", "--detach"),
        ("map -c pass in-{000..002}.tar -o out-{}.tar --on k8s", "--image"),
        ("map -c pass in-{000..002}.tar -o out-{}.tar --on local --gpus 1", "--gpus"),
        ("map -l none.py in-{000..002}.tar -o out-{}.tar --on local", "none.py"),
        ("jobs", "COMMAND"),
        ("jobs -s {0..9} -- echo", "{}"),
        ("jobs -- echo {}", "--items-from"),
        ("jobs -s {0..9} -- cp in-{}.tar -o out.tar", "{}"),
        ("jobs dance", "'dance'"),
        ("jobs status", "RUN"),
        ("jobs status nothing-here", "nothing-here]"),
        ("jobs --items-from none.txt -- echo {}", "'none.txt'"),
        ("jobs -s {0..9} --env X -- echo {}", "'X'"),
    ],
)
def test_lines_that_make_no_sense(wl: Any, words: str, named: str) -> None:
    ended = wl(*words.split())
    assert ended.code in (1, 2)
    assert named in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("ending", ["cancel", "leave"])
def test_an_interrupt_says_how_to_go_on(here: Path, ending: str) -> None:
    words = [*PYTHON, "jobs", "-s", "{0..1}", "--workers", "2", "--state", "run", "--on-interrupt", ending]
    line = [*words, "--", "sh", "-c", "echo $$ > begun-{}; sleep 1000"]
    child = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert soon(lambda: all((here / f"begun-{n}").exists() and (here / f"begun-{n}").read_text() for n in range(2)))
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert child.returncode == 130
    assert {"cancel": "`wl jobs resume", "leave": "`wl jobs status"}[ending] in told
    for n in range(2):
        pid = int((here / f"begun-{n}").read_text())
        if ending == "leave":
            os.killpg(os.getpgid(pid), signal.SIGKILL)
        else:
            assert soon(lambda: not Path(f"/proc/{pid}").exists())  # noqa: B023 - called now


def test_a_dataset_in_a_bucket(wl: Any, here: Path, moto_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs, outputs and the run itself."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket = moto_server.bucket()
    assert wl("cp", "-q", *sorted(here.glob("in-*.tar")), f"{bucket}/data/").code == 0
    line = ("map", "-c", "cls *= 2", f"{bucket}/data/in-{{000..002}}.tar", "-o", f"{bucket}/data/out-{{}}.tar")
    first = wl(*line, "--on", "local")
    assert first.code == 0, first.err
    assert f"run {bucket}/data/.runs/map-" in first.err
    assert wl(*line, "--on", "local", "--json").facts["skipped"] == 3
    wl("map", "-c", "cls *= 2", "in-001.tar", "-o", "plain.tar")
    wl("cp", "-q", f"{bucket}/data/out-001.tar", "copy.tar")
    assert (here / "copy.tar").read_bytes() == (here / "plain.tar").read_bytes()
    job = wl(*line, "--on", "k8s", "--image", "my/image", "--dry-run", "--redo", "all")
    assert "completions: 3" in job.out.decode()


@pytest.mark.parametrize("output", [["-o", "out.tar"], []])
def test_an_output_without_a_place_for_the_name_is_wrong_usage(wl: Any, output: list[str]) -> None:
    refused = wl("map", "-e", "pass", "in-{000..002}.tar", *output, "--on", "local")
    assert (refused.code, "-o 'out-{}.tar'" in refused.err) == (2, True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_leaves_nothing_half_written(wl: Any, here: Path, number: int, code: int) -> None:
    program = f"import time; open({str(here / 'begun')!r}, 'w').close(); time.sleep(600)"
    words = [
        sys.executable,
        "-m",
        "webdataset",
        "map",
        "-e",
        program,
        "in-{000..002}.tar",
        "-o",
        "out-{}.tar",
        "--on",
        "local",
        "--state",
        "run",
    ]
    with subprocess.Popen(words, cwd=here, stderr=subprocess.PIPE, text=True) as process:
        assert soon((here / "begun").exists)
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert process.returncode == code
    assert "wl jobs resume" in told
    facts = json.loads(wl("jobs", "status", "run", "--json").out)
    assert (facts["done"], facts["failed"]) == (0, 0)
    assert [path.name for path in here.iterdir() if "out-" in path.name] == []


def test_a_second_interrupt_hides_no_hint_and_leaves_nothing(here: Path) -> None:
    """The second one comes while the shards are asked to end."""
    asked = "import signal; signal.signal(signal.SIGTERM, lambda *_: open('asked', 'w').close())"
    code = f"import time; {asked}; open('begun', 'w').close(); time.sleep(600)"
    line = [*PYTHON, "map", "-e", code, "in-{000..002}.tar", "-o", "out-{}.tar", "--on", "local"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert soon((here / "begun").exists)
        process.send_signal(signal.SIGINT)
        assert soon((here / "asked").exists)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "wl jobs resume" in told
    assert not [path.name for path in here.iterdir() if "out-" in path.name or ".webdataset-" in path.name]


def test_an_engine_that_does_not_exist_is_refused_at_the_call() -> None:
    with pytest.raises(ValueError, match="daks"):
        wds.jobs(print, [("in-000.tar", "out.tar")], on="daks")


def test_shards_of_several_folders_keep_them(wl: Any, here: Path) -> None:
    for name in ("a/ds-v1.0-0", "b/ds-v1.0-0", "b/ds-v1.0-1"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / f"{name}.tar").write_bytes((here / "in-000.tar").read_bytes())
    ended = wl("map", "-c", "cls *= 2", "*/ds-v1.0-*.tar", "-o", "out/{}.tar", "--on", "local")
    assert ended.code == 0, ended.err
    made = sorted(str(path.relative_to(here / "out")) for path in here.glob("out/*/*.tar"))
    assert made == ["a/ds-v1.0-0.tar", "b/ds-v1.0-0.tar", "b/ds-v1.0-1.tar"]


ON_K8S = ("--on", "k8s", "--image", "my/image", "--config", "k8s.toml", "--state", "run", "--dry-run")


@pytest.fixture
def k8s_options(here: Path, kubernetes_double: Any) -> None:
    """Options for a cluster whose pods are processes of this machine, where `wl` is this package."""
    needs_package("kubernetes", "kubernetes")
    own = {"claim": "data", "namespace": "tests", "kubeconfig": kubernetes_double.kubeconfig, "command": PYTHON}
    (here / "k8s.toml").write_text(
        "[k8s]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in own.items())
    )


@pytest.mark.parametrize(
    "line",
    [
        ("map", "-c", "cls *= 2", "in-{000..002}.tar", "-o", "out-{}.tar", *ON_K8S, "-o", "yaml"),
        ("map", "-c", "cls *= 2", "in-{000..002}.tar", *ON_K8S, "-o", "yaml", "-o", "out-{}.tar"),
        (
            "jobs",
            "-s",
            "{000..002}",
            *ON_K8S,
            "-o",
            "yaml",
            "--output",
            "out-{}.tar",
            "--",
            "cp",
            "in-{}.tar",
            "out-{}.tar",
        ),
    ],
)
@pytest.mark.usefixtures("k8s_options")
def test_a_manifest_that_is_printed_with_its_plan_does_the_shards(
    wl: Any, here: Path, kubernetes_double: Any, line: tuple[str, ...]
) -> None:
    printed = wl(*line)
    assert printed.code == 0, printed.err
    manifest = yaml.safe_load(printed.out)
    needs_package("kubernetes_validate", "kubernetes-validate")
    import kubernetes_validate

    kubernetes_validate.validate(manifest, "1.29", strict=True)
    assert kubernetes_double.asked["create"] == 0, "nothing is submitted"
    kubernetes_double.create(manifest)
    assert soon(lambda: len(list(here.glob("out-*.tar"))) == 3)
    (job,) = kubernetes_double.jobs.values()
    assert soon(lambda: job["status"].get("completedIndexes") == "0-2" or job["status"].get("succeeded") == 3)
    assert json.loads(wl("jobs", "status", "run", "--json").out)["done"] == 3
    assert "0 shards" in wl(*line).err


@pytest.mark.usefixtures("k8s_options")
def test_a_dry_run_alone_writes_nothing(wl: Any, here: Path) -> None:
    before = sorted(here.rglob("*"))
    assert "kind: Job" in wl("map", "-c", "cls *= 2", "in-000.tar", "-o", "out-{}.tar", *ON_K8S).out.decode()
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("words", ["--dry-run -o yaml", "--on local --dry-run -o yaml", "--on k8s -o yaml"])
def test_a_manifest_where_there_is_none(wl: Any, words: str) -> None:
    ended = wl("map", "-c", "cls *= 2", "in-000.tar", "-o", "out-{}.tar", *words.split())
    assert ended.code == 2
    assert "--dry-run" in ended.err
