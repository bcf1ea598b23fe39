"""A hundred shards, and kill -9 of whoever does them: what is finished stays, and the same line again does the rest."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from runs_support import PYTHON, make_inputs
from waiting import soon
from webdataset.runs.records import DONE, START
from webdataset.runs.runs import Run

SHARDS = 100
CODE = ["-C", "import time", "-c", "time.sleep(0.004); cls *= 2"]


def line(folder: Path, *more: str) -> list[str]:
    """The command of the test."""
    inputs, outputs = str(folder / "in-{000..099}.tar"), str(folder / "out-{}.tar")
    return [*PYTHON, "map", *CODE, inputs, "-o", outputs, "--state", str(folder / "run"), "-q", *more]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The outputs of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    make_inputs(folder, SHARDS)
    subprocess.run(line(folder, "--on", "local", "--workers", "2"), check=True)
    return outputs(folder)


def outputs(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("out-*.tar")}


def processes_of(folder: Path, controller: int) -> dict[int, int]:
    """The processes that do items of a run, each with its parent; on this machine they are copies of the controller."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                serves = b"--serve" in words and any(word.startswith(f"{folder}/".encode()) for word in words)
                if serves or parent == controller:
                    found[int(entry.name)] = parent
            except OSError:
                continue
    return found


def kill(pid: int) -> None:
    """What the worst of luck does."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def items(folder: Path, status: str) -> Counter[str]:
    return Counter(record.item for record in Run(str(folder / "run")).records() if record.status == status)


def done_so_far(folder: Path) -> int:
    """How many shards are done; quickly, as this is asked often."""
    data = b"".join(path.read_bytes() for path in (folder / "run/records").glob("*/*"))
    return len(set(re.findall(rb'"item":"(\d+)","status":"done"', data)))


def disturb(folder: Path, words: list[str], kill_parents: bool) -> None:
    """Run until half is done, and kill workers and in the end the controller."""
    luck = random.Random(len(words))
    with subprocess.Popen(words) as controller:
        try:
            for done in (15, 30):
                assert soon(lambda: done_so_far(folder) >= done or controller.poll() is not None)  # noqa: B023 - called now
                for pid in luck.sample(sorted(found := processes_of(folder, controller.pid)), min(1, len(found))):
                    kill(pid)
                    if kill_parents and found[pid] not in (1, controller.pid):
                        kill(found[pid])
            assert soon(lambda: done_so_far(folder) >= 45 or controller.poll() is not None)
        finally:
            controller.kill()


def check(folder: Path, words: list[str], undisturbed: dict[str, bytes], kill_parents: bool = False) -> None:
    make_inputs(folder, SHARDS)
    disturb(folder, words, kill_parents)
    finished, begun = items(folder, DONE), items(folder, START)
    assert 45 <= len(finished) < SHARDS
    again = subprocess.run(words, check=False)
    assert again.returncode == 0
    assert outputs(folder) == undisturbed
    afterwards = items(folder, START)
    assert {item: afterwards[item] for item in finished} == {item: begun[item] for item in finished}
    assert set(items(folder, DONE)) == {f"{n:03d}" for n in range(SHARDS)}
    assert not list(folder.glob(".webdataset-*"))


def test_on_this_machine(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    check(tmp_path, line(tmp_path, "--on", "local", "--workers", "2"), undisturbed)


@pytest.mark.xdist_group("dask")
def test_on_dask(tmp_path: Path, undisturbed: dict[str, bytes], dask_address: str) -> None:
    check(tmp_path, line(tmp_path, "--on", "dask", "--address", dask_address), undisturbed, kill_parents=True)


@pytest.mark.xdist_group("ray")
def test_on_ray(tmp_path: Path, undisturbed: dict[str, bytes], ray_address: str) -> None:
    check(tmp_path, line(tmp_path, "--on", "ray", "--address", ray_address), undisturbed, kill_parents=True)


@pytest.mark.xdist_group("slurm")
def test_on_slurm(tmp_path: Path, undisturbed: dict[str, bytes], slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm.configuration)
    (tmp_path / "options.toml").write_text("[slurm]\npoll = 0.3\n")
    words = line(tmp_path, "--on", "slurm", "--shards-per-task", "10", "--config", str(tmp_path / "options.toml"))
    check(tmp_path, words, undisturbed, kill_parents=True)
