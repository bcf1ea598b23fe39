"""wldocker runs a program in a container; the old scripts call ./run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from examples.loaded import ROOT

RECORDING = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done >> "$RECORD"
echo --- >> "$RECORD"
if [ "$1" = image ]; then exit "${NO_IMAGE:-0}"; fi
"""


def stand_in(folder: Path, name: str) -> None:
    """A program that only writes down how it is called."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(RECORDING)
    (folder / name).chmod(0o755)


class Machine:
    """A folder and a home to call wldocker from, and what docker was called with."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work, self.record = folder / "home", folder / "work", folder / "record"
        self.home.mkdir()
        self.work.mkdir()
        self.bin = folder / "bin"
        stand_in(self.bin, "docker")
        self.has_gpu(False)

    def has_gpu(self, there: bool) -> None:
        (self.bin / "nvidia-smi").write_text(f"#!/bin/sh\nexit {0 if there else 9}\n")
        (self.bin / "nvidia-smi").chmod(0o755)

    def __call__(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), "RECORD": str(self.record)}
        command = [str(ROOT / "wldocker"), *words]
        return subprocess.run(
            command,
            cwd=self.work,
            env=kept | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[list[str]]:
        return [call.splitlines() for call in self.record.read_text().split("---\n") if call]


@pytest.fixture
def wldocker(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def pairs(call: list[str], option: str) -> list[str]:
    """The values of an option."""
    return [value for name, value in pairwise(call) if name == option]


def test_a_program_runs_here_as_this_user(wldocker: Machine) -> None:
    done = wldocker("python3", "train.py", "a b", "--cuda")
    assert done.returncode == 0, done.stderr
    inspected, call = wldocker.calls()
    assert inspected == ["image", "inspect", "webdataset:cpu"]
    assert call[0] == "run"
    assert call[-5:] == ["webdataset:cpu", "python3", "train.py", "a b", "--cuda"]  # its own options stay its own
    assert pairs(call, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert pairs(call, "--workdir") == [str(wldocker.work)]
    assert f"{wldocker.work}:{wldocker.work}" in pairs(call, "--volume")
    assert "--tty" not in call


def test_credentials_are_there_but_cannot_be_changed(wldocker: Machine) -> None:
    (wldocker.home / ".aws").mkdir()
    (wldocker.home / ".config/gcloud").mkdir(parents=True)
    (wldocker.home / ".ssh").mkdir()
    done = wldocker("true", AWS_SECRET_ACCESS_KEY="very-secret", HF_TOKEN="t", EDITOR="vi")
    assert done.returncode == 0, done.stderr
    call = wldocker.calls()[-1]
    home = wldocker.home
    assert {f"{home}/.aws:{home}/.aws:ro", f"{home}/.config/gcloud:{home}/.config/gcloud:ro"} <= set(
        pairs(call, "--volume")
    )
    assert not any(".ssh" in word for word in call)
    assert {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN"} <= set(pairs(call, "--env"))
    assert "EDITOR" not in pairs(call, "--env")
    assert not any("very-secret" in word for word in call)


def test_an_image_that_is_missing_is_built_first(wldocker: Machine) -> None:
    assert wldocker("--cuda", "true", NO_IMAGE="1").returncode == 0
    _, build, call = wldocker.calls()
    assert build[0] == "build"
    assert pairs(build, "--build-arg") == ["DEVICE=cuda"]
    assert pairs(build, "--tag") == ["webdataset:cuda"]
    assert (Path(build[-1]) / "pyproject.toml").exists()
    assert Path(pairs(build, "--file")[0]).exists()
    assert pairs(call, "--gpus") == ["all"]


def test_a_machine_with_a_gpu_uses_it(wldocker: Machine) -> None:
    wldocker.has_gpu(True)
    assert wldocker("true").returncode == 0
    assert wldocker.calls()[-1][-2:] == ["webdataset:cuda", "true"]


def test_an_image_is_built_again_on_demand(wldocker: Machine) -> None:
    assert wldocker("--cpu", "--build", "true").returncode == 0
    assert [call[0] for call in wldocker.calls()] == ["build", "run"]


def test_another_program_than_docker_can_be_named(wldocker: Machine) -> None:
    stand_in(wldocker.bin, "podman")
    (wldocker.bin / "docker").unlink()
    assert wldocker("true", DOCKER="podman").returncode == 0
    assert wldocker.calls()[-1][0] == "run"


def volumes(wldocker: Machine, *words: str) -> list[str]:
    """What docker is asked to mount, but for the folder itself and the cache of shards."""
    done = wldocker(*words, "true")
    assert (done.returncode, done.stderr) == (0, "")
    always = [f"{place}:{place}" for place in (wldocker.work, wldocker.home / ".cache/webdataset")]
    return [volume for volume in pairs(wldocker.calls()[-1], "--volume") if volume not in always]


def test_data_from_elsewhere_is_mounted_as_docker_does_it(wldocker: Machine) -> None:
    words = ["-v", "/data:/data", "--volume", "/fast/my shards:/shards:ro", "--volume=cache:/cache:rw,z"]
    assert volumes(wldocker, *words) == ["/data:/data", "/fast/my shards:/shards:ro", "cache:/cache:rw,z"]
    assert "--tmpfs" in wldocker.calls()[-1]


def test_a_volume_replaces_what_would_be_mounted_there(wldocker: Machine) -> None:
    (wldocker.home / ".aws").mkdir()
    own = [f"/keys:{wldocker.home}/.aws", f"{wldocker.home}:{wldocker.home}", f"{wldocker.work}:{wldocker.work}:ro"]
    assert volumes(wldocker, *(word for volume in own for word in ("-v", volume))) == own
    assert "--tmpfs" not in wldocker.calls()[-1]


def test_a_link_out_of_the_folder_works_in_the_container(wldocker: Machine) -> None:
    data = wldocker.work.parent / "disk/imagenet"
    (data / "train").mkdir(parents=True)
    (wldocker.work / "data").symlink_to(data)
    assert volumes(wldocker) == [f"{data}:{data}"]


def test_links_are_followed_as_they_say(wldocker: Machine) -> None:
    top, work = wldocker.work.parent, wldocker.work
    (top / "disk/imagenet").mkdir(parents=True)
    (top / "disk/one.tar").touch()
    (top / "latest").symlink_to("disk/imagenet")
    (work / "parts/deep").mkdir(parents=True)
    (work / "parts/deep/out").symlink_to("../../../disk")
    links = {
        "chain": str(top / "latest"),  # the container finds it under the name that the link has
        "relative": "../disk/one.tar",
        "again": "../latest",
        "through": "parts/deep/out/imagenet",
        ".hidden": "chain",
        "inside": str(work / "parts"),
        "dangling": "/nowhere/at all",
        "loop": "loop",
        "python": "/usr/bin/env",  # which the container has itself
    }
    for name, target in links.items():
        (work / name).symlink_to(target)
    real = top / "disk/imagenet"
    assert sorted(volumes(wldocker)) == [
        f"{real}:{real}",
        f"{real}:{top}/latest",
        f"{top}/disk/one.tar:{top}/disk/one.tar",
    ]


def test_a_link_to_data_that_is_mounted_already_is_left_as_it_is(wldocker: Machine) -> None:
    data = wldocker.work.parent / "disk/imagenet"
    data.mkdir(parents=True)
    (wldocker.work / "data").symlink_to(data)
    volume = f"{data.parent}:{data.parent}:ro"
    assert volumes(wldocker, "-v", volume) == [volume]


def test_a_link_to_all_of_the_home_is_not_followed(wldocker: Machine) -> None:
    (wldocker.work / "up").symlink_to("..")
    done = wldocker("true")
    assert done.returncode == 0
    assert str(wldocker.work.parent) in done.stderr
    assert not any(volume.endswith(f":{wldocker.work.parent}") for volume in pairs(wldocker.calls()[-1], "--volume"))


@pytest.mark.parametrize("name", ["pytorch-resnet50.py", "keras-resnet50.py"])
def test_the_programs_of_the_clone_run_in_a_container_by_their_names(wldocker: Machine, name: str) -> None:
    wldocker.work = ROOT
    done = wldocker("--cpu", "python3", name)
    assert done.returncode == 0, done.stderr
    call = wldocker.calls()[-1]
    assert call[-3:] == ["webdataset:cpu", "python3", name]
    assert f"{ROOT}:{ROOT}" in pairs(call, "--volume")
    assert (ROOT / name).resolve().is_relative_to(ROOT)  # so the container has it, too


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["-v", "/data", "true"], 2, "/data:/data:ro"),
        (["true", "-v"], 127, "nowhere"),
        (["-v"], 2, "PLACE:PATH"),
        ([], 2, "command"),
        (["--gpu", "true"], 2, "--gpu"),
        (["true"], 127, "nowhere"),
    ],
)
def test_mistakes_are_told_in_a_line(wldocker: Machine, words: list[str], status: int, message: str) -> None:
    done = wldocker(*words, DOCKER="nowhere")
    assert done.returncode == status
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_shows_how_it_is_called(wldocker: Machine) -> None:
    shown = wldocker("--help")
    assert shown.returncode == 0
    assert shown.stdout.startswith("usage: wldocker ")


def test_the_dockerfile_passes_its_linter() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert linter is not None, "hadolint comes with the tests' packages"
    done = subprocess.run([linter, ROOT / "docker/Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_what_the_dockerfile_copies_is_there() -> None:
    lines = [line.split() for line in (ROOT / "docker/Dockerfile").read_text().splitlines() if line.startswith("COPY")]
    assert all((ROOT / name).exists() for line in lines for name in line[1:-1])


@pytest.mark.parametrize(("script", "verb"), [("setup-venv", "venv"), ("start-notebook", "notebook")])
def test_the_old_scripts_call_run(tmp_path: Path, script: str, verb: str) -> None:
    shutil.copy(ROOT / script, tmp_path / script)
    stand_in(tmp_path, "run")
    record = tmp_path / "record"
    subprocess.run([tmp_path / script, "--new", "a b"], cwd="/", env={**os.environ, "RECORD": str(record)}, check=True)
    assert record.read_text().splitlines()[:3] == [verb, "--new", "a b"]
