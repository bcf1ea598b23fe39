"""./run makes an environment and brings the servers of the tests; what the tests leave out is said at the end."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from servers.programs import program
from tests_support import python

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program as a module."""
    loader = importlib.machinery.SourceFileLoader("run", str(ROOT / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# -- verbs and environments --------------------------------------------------------------------------


def test_without_a_verb_it_shows_the_verbs(run: ModuleType) -> None:
    shown = subprocess.run([ROOT / "run"], cwd="/", capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in shown.splitlines()[2:]] == [*run.VERBS]


def test_an_unknown_verb_is_a_mistake_of_use() -> None:
    refused = subprocess.run([ROOT / "run", "dance"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'dance'" in refused.stderr


def test_an_old_python_is_told_what_is_needed(run: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    assert run.main(["venv"]) == 1
    assert "3.11" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("executable", "words", "folder"),
    [
        ("/usr/bin/python3", ["-x"], ".venv"),
        ("/usr/bin/python3.13", ["-x"], ".venv-3.13"),
        ("/a/.venv/bin/python", [], ".venv"),
        ("/usr/bin/python3", ["--oldest"], ".venv-oldest"),
    ],
)
def test_each_python_has_an_environment_which_git_ignores(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, *, executable: str, words: list[str], folder: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert run.environment_name(words) == folder
    assert subprocess.run(["git", "check-ignore", "-q", f"{folder}/x"], cwd=ROOT, check=False).returncode in {0, 128}


@pytest.fixture
def environment(run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An environment whose python, and the servers' script, only write down what they are called with."""
    monkeypatch.setattr(run, "ROOT", str(tmp_path))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    script(tmp_path / "tests/servers/install.sh", f'echo "install.sh $1" >> {tmp_path}/called')
    script(tmp_path / ".venv/bin/python", f'echo "$@" >> {tmp_path}/called')
    script(tmp_path / ".venv/bin/pip", "")
    return run.Environment(str(tmp_path / ".venv"))


def called(folder: Path) -> list[str]:
    lines = (folder / "called").read_text().splitlines()
    (folder / "called").write_text("")
    return lines


def test_packages_are_installed_once_and_again_when_the_project_wants_others(environment, tmp_path: Path) -> None:
    environment.prepare("check")
    [line] = called(tmp_path)
    assert line.startswith("-m pip install ")
    assert "ruff==" in line
    environment.prepare("check")
    assert called(tmp_path) == []
    (tmp_path / "pyproject.toml").write_text((tmp_path / "pyproject.toml").read_text() + "\n")
    environment.prepare("check")
    assert len(called(tmp_path)) == 1


def test_torch_comes_before_everything_that_could_bring_another_build(environment, tmp_path: Path) -> None:
    script(tmp_path / ".venv/bin/python", f'echo "$@" >> {tmp_path}/called; [ "$1" != -c ]')
    environment.prepare("test")
    _, torch, packages = called(tmp_path)
    assert "torch==" in torch
    assert "-e .[all]" in packages
    assert "moto" in packages


def test_what_pip_cannot_install_ends_with_one_line(environment, tmp_path: Path, capsys) -> None:
    script(tmp_path / ".venv/bin/python", "echo 'ERROR: no such package'; exit 1")
    with pytest.raises(SystemExit) as ended:
        environment.prepare("check")
    assert ended.value.code == 1
    assert "no such package" in capsys.readouterr().err.splitlines()[-1]


def test_the_whole_suite_is_shared_and_arguments_are_those_of_pytest(run: ModuleType, environment, tmp_path) -> None:
    servers = f"install.sh {environment.folder}"
    for words in ([], ["--quick"], ["tests/tar", "-k", "sparse"], ["--without-servers", "--lf"]):
        assert run.run_test(environment, words) == 0
    whole, pytest_of_it, quick, servers_again, part, again = called(tmp_path)
    assert whole == servers_again == servers
    assert re.fullmatch(r"-m pytest -n \d+ --dist loadgroup", pytest_of_it)
    assert re.fullmatch(r"-m pytest -n \d+ --dist loadgroup --quick", quick)
    assert part == "-m pytest tests/tar -k sparse"
    assert again == "-m pytest --without-servers --lf"


# -- lower bounds ------------------------------------------------------------------------------------


def test_the_oldest_environment_has_a_release_for_each_bound(run: ModuleType, tmp_path: Path) -> None:
    bounds = run.lower_bounds()
    assert [release for release in bounds.values() if not re.fullmatch(r"[\d.]+(;.*)?", release)] == []
    assert {"numpy", "ray", "torch", "lmdb"} <= bounds.keys()
    assert run.Environment(str(tmp_path)).constraints() == []
    oldest = run.Environment(str(tmp_path / ".venv-oldest"))
    Path(oldest.folder).mkdir()
    *_, constraints = oldest.constraints()
    assert f"torch=={bounds['torch']}" in Path(constraints).read_text().splitlines()
    assert not any(package.startswith("keras") for package in oldest.packages("test frameworks"))


def test_the_pythons_that_are_said_to_be_supported_are_the_same_everywhere(run: ModuleType) -> None:
    said = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert PROJECT["requires-python"] == ">={}.{}".format(*run.OLDEST) == f">={said[0]}"
    assert f"Python {said[0]} to {said[-1]}" in (ROOT / "README.md").read_text()


# -- servers -----------------------------------------------------------------------------------------

DOUBLES = {
    "id": "echo ${USER_ID:-0}",
    # there is what was installed before
    "dpkg-query": 'for last; do :; done; grep -qx "$last" there && echo installed',
    "apt-get": """
        for last; do :; done
        mkdir running || echo "two at once" >> log
        echo "apt-get $last $(tail -n 1 policy)" >> log
        rmdir running
        case " $NOT_TO_BE_HAD " in *" $last "*) echo "E: no $last"; exit 100;; esac
        echo "$last" >> there""",
    "npm": 'for last; do :; done; echo "npm $last" >> log; mkdir -p $5/node_modules/$last',
}


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., tuple[list[str], str]]:
    """Run install.sh on a machine that is a folder: what it called, and what it said."""
    (tmp_path / "there").write_text("")
    for name, text in DOUBLES.items():
        script(tmp_path / "bin" / name, f"cd {tmp_path}\n{text}")
    for name in ("sh", "env", "grep", "mkdir", "rmdir", "tail", "dirname", "chmod", "rm", "flock"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or name)

    def call(**environment: str) -> tuple[list[str], str]:
        (tmp_path / "log").write_text("")
        environment |= {"PATH": str(tmp_path / "bin"), "POLICY": str(tmp_path / "policy")}
        done = subprocess.run(
            [ROOT / "tests/servers/install.sh", tmp_path / "venv"], env=environment, capture_output=True, text=True
        )
        return (tmp_path / "log").read_text().splitlines(), done.stderr

    return call


def test_servers_are_installed_once_and_no_service_is_started(install, tmp_path: Path) -> None:
    log, said = install()
    assert "apt-get nginx-light exit 101" in log
    assert "npm azurite" in log
    assert len(said.splitlines()) == len(log)
    assert not (tmp_path / "policy").exists()
    assert install() == ([], "")


def test_a_server_that_cannot_be_had_costs_no_other(install) -> None:
    log, said = install(NOT_TO_BE_HAD="squid")
    assert "apt-get chromium exit 101" in log
    assert any("squid" in line and line.endswith("E: no squid") for line in said.splitlines())
    log, _ = install()
    assert log == ["apt-get update exit 101", "apt-get squid exit 101"]


def test_without_a_network_only_the_lists_are_asked_for(install) -> None:
    log, _ = install(NOT_TO_BE_HAD="update")
    assert log[0] == "apt-get update exit 101"
    assert [line.split()[0] for line in log[1:]] == ["npm"] * 3


def test_an_ordinary_user_gets_what_needs_no_root(install) -> None:
    log, _ = install(USER_ID="1000")
    assert {line.split()[0] for line in log} == {"npm"}


def test_npm_comes_from_debian_if_there_is_none(install, tmp_path: Path) -> None:
    (tmp_path / "bin/npm").rename(tmp_path / "bin/npm.later")
    log, _ = install()
    assert "apt-get npm exit 101" in log


def test_somebody_elses_word_on_services_stays(install, tmp_path: Path) -> None:
    (tmp_path / "policy").write_text("#!/bin/sh\nexit 7\n")
    log, _ = install()
    assert "apt-get squid exit 7" in log
    assert (tmp_path / "policy").exists()


def test_what_a_killed_run_left_goes(install, tmp_path: Path) -> None:
    ours = re.search(r'OURS="(.*)"', (ROOT / "tests/servers/install.sh").read_text())
    assert ours is not None
    (tmp_path / "policy").write_text(f"#!/bin/sh\n{ours[1]}\nexit 101\n")
    install()
    assert not (tmp_path / "policy").exists()


def test_two_runs_at_once_take_turns(install, tmp_path: Path) -> None:
    words = [ROOT / "tests/servers/install.sh", tmp_path / "venv"]
    environment = {"PATH": str(tmp_path / "bin"), "POLICY": str(tmp_path / "policy")}
    both = [subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    log = (tmp_path / "log").read_text().splitlines()
    assert "two at once" not in log
    assert log.count("apt-get squid exit 101") == 1
    assert not (tmp_path / "policy").exists()


def test_a_server_of_another_python_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "some_server", "")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(pytest.skip.Exception):
        program("some_server", "pip some-server")


# -- the end of a run --------------------------------------------------------------------------------

TESTS = """
import pytest
from servers.programs import leave_out, program
@pytest.mark.framework("keras", "jax")
def test_of_a_framework(): pass
def test_of_a_server(): program("sh", "apt dash")
def test_of_another(): leave_out("pip moto gm")
def test_of_nothing(): pass
"""


@pytest.mark.parametrize(
    ("options", "passed", "needed", "advice"),
    [
        ([], 3, "gm, moto", True),
        (["-n", "2"], 3, "gm, moto", True),
        (["--without-servers"], 2, "dash, gm, moto", False),
        (["--oldest"], 2, "gm, jax, keras, moto", False),
    ],
)
def test_a_run_ends_with_what_was_left_out(
    tmp_path: Path, options: list[str], passed: int, needed: str, advice: bool
) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    words = ["-m", "pytest", "-q", "-p", "left_out", "-p", "no:cacheprovider", *options, "test_some.py"]
    done = python(*words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT / "tests")})
    assert f"{passed} passed" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert re.search(rf"left out: {4 - passed};[a-z ]* {needed}(;|$)", last)
    assert ("./run test" in last) == advice


def test_only_a_framework_can_be_left_out_as_one(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("import pytest\n@pytest.mark.framework('numpy')\ndef test_a(): pass\n")
    words = ["-m", "pytest", "-q", "-p", "left_out", "--oldest", "-p", "no:cacheprovider", "test_some.py"]
    done = python(*words, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT / "tests")})
    assert done.returncode == 1
    assert "numpy" in done.stdout
