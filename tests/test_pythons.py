"""./run finds the Pythons of a machine, and has an environment for each; the bounds of the extras are releases."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from servers.programs import program

ROOT = Path(__file__).resolve().parent.parent
HERE = "{}.{}".format(*sys.version_info)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, for a project that is an empty folder, on a machine without any Python but this one."""
    for name in ("PATH", "PYENV_ROOT", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("run", str(ROOT / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))  # type: ignore[arg-type]
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", str(tmp_path))
    return module


def other_python(path: Path, version: str, *, works: bool = True) -> str:
    """A program that takes itself for a Python of this version, or is a shim of pyenv that leads nowhere.

    It is asked with `-c QUESTION VERSION`; otherwise it tells what it was to run.
    """
    answer = f'[ "$3" = {version} ]' if works else "exit 127"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] || {{ echo "$@"; exit 7; }}\n{answer}\n')
    path.chmod(0o755)
    return str(path)


def another(minor: int) -> str:
    """A version that this Python does not have."""
    return f"3.{minor}" if f"3.{minor}" != HERE else f"3.{minor + 1}"


@pytest.mark.parametrize(
    "place",
    ["PATH/python{}", "PYENV_ROOT/versions/{}.4/bin/python{}", "UV_PYTHON_INSTALL_DIR/cpython-{}.4-linux/bin/python{}"],
)
def test_pythons_on_path_of_pyenv_and_of_uv_are_found(run: ModuleType, tmp_path: Path, place: str) -> None:
    version = another(12)
    found = other_python(tmp_path / place.format(version, version), version)
    assert run.pythons() == {HERE: sys.executable, version: found}
    assert list(run.pythons()) == sorted([HERE, version], key=lambda text: int(text[2:]))


def test_a_shim_that_does_not_work_hides_no_python(run: ModuleType, tmp_path: Path) -> None:
    version = another(13)
    other_python(tmp_path / "PATH" / f"python{version}", version, works=False)
    assert version not in run.pythons()
    folder = tmp_path / "PYENV_ROOT" / "versions"
    other_python(folder / f"{version}.9" / "bin" / f"python{version}", version)
    newest = other_python(folder / f"{version}.10" / "bin" / f"python{version}", version)
    assert run.pythons()[version] == newest


def test_a_python_of_another_version_or_without_venv_is_none(run: ModuleType, tmp_path: Path) -> None:
    version = another(12)
    other_python(tmp_path / "PATH" / f"python{version}", "3.9")
    assert list(run.pythons()) == [HERE]


def test_a_python_that_torch_has_no_wheels_for_is_none(run: ModuleType, tmp_path: Path) -> None:
    too_new = f"3.{run.NEWEST[1] + 1}"
    other_python(tmp_path / "PATH" / f"python{too_new}", too_new)
    assert too_new not in run.pythons()


@pytest.mark.parametrize("words", [["--python", "3.99"], ["--python=3.99"], ["--python"]])
def test_a_python_that_is_not_there_is_one_line_with_those_that_are(run: ModuleType, words: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["test", *words])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert line.startswith("run: error: no Python ")
    assert line.endswith(f"found: {HERE} ({sys.executable})")


def test_the_oldest_releases_have_a_python_of_their_own(run: ModuleType, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main(["test", "--oldest", "--python", HERE])
    assert ended.value.code == 2
    assert "give one of --oldest and --python" in capsys.readouterr().err


def test_each_python_has_an_environment_and_venv_is_that_of_its_own(run: ModuleType, tmp_path: Path) -> None:
    def chosen(*words: str) -> str:
        assert run.choose_environment(["-k", "tar", *words, "-q"]) == ["-k", "tar", "-q"]
        assert {Path(run.STAMP).parent, Path(run.LOG).parent} == {Path(run.VENV)}
        return os.path.relpath(run.VENV, tmp_path)

    assert chosen() == ".venv"
    assert chosen("--python", HERE) == f".venv-{HERE}"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / f"python{HERE}").write_text("")
    assert chosen(f"--python={HERE}") == ".venv"
    assert chosen("--oldest") == ".venv-oldest"


def test_git_ignores_every_environment() -> None:
    assert {".venv/", ".venv-*/"} <= set((ROOT / ".gitignore").read_text().split())


def test_the_python_that_is_asked_for_goes_on_with_the_same_words(tmp_path: Path) -> None:
    version = another(13)
    folder = Path(other_python(tmp_path / "PATH" / f"python{version}", version)).parent
    words = ["test", "--python", version, "-k", "a b"]
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    told = subprocess.run(
        [sys.executable, ROOT / "run", *words], env=environment, capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (7, f"{ROOT / 'run'} test --python {version} -k a b\n")


# -- the bounds ------------------------------------------------------------------------------------------


def test_every_extra_has_lower_bounds_which_the_oldest_environment_installs(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ROOT", str(ROOT))
    bounds = run.lower_bounds()
    assert [bound for bound in bounds if not re.fullmatch(r"[\w.]+==[\d.]+(;.*)?", bound.replace("-", ""))] == []
    assert {"numpy==1.26", "ray==2.41"} <= set(bounds)
    monkeypatch.setattr(run, "VENV", str(tmp_path / ".venv"))
    assert (run.oldest_releases(), run.torch_release()) == ([], run.TORCH)
    monkeypatch.setattr(run, "VENV", str(tmp_path / ".venv-oldest"))
    (tmp_path / ".venv-oldest").mkdir()
    *_, constraints = run.oldest_releases()
    assert Path(constraints).read_text().splitlines() == bounds
    assert f"torch=={run.torch_release()}" in bounds
    assert not any(package.startswith("keras") for package in run.requirements(["all"], ["test", "frameworks"])[1])


def test_only_the_oldest_releases_do_without_frameworks(
    run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(run, "python", lambda *words: called.append(words) or 0)
    for folder in (".venv", f".venv-{HERE}", ".venv-oldest"):
        monkeypatch.setattr(run, "VENV", str(tmp_path / folder))
        run.run_test(["--without-servers", "-x"])
    assert [words[2:] for words in called] == [
        ("--without-servers", "-x"),
        ("--without-servers", "-x"),
        ("--oldest", "--without-servers", "-x"),
    ]


def test_tests_of_frameworks_are_left_out_where_that_is_asked_for_and_counted(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.framework('keras', 'jax')\ndef test_a(): pass\n"
        "@pytest.mark.framework('jax')\ndef test_b(): pass\n"
        "def test_c(): pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "servers.missing", "-p", "oldest", "--strict-markers"]
    words += ["-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    last = {}
    for option in ("--oldest", "--verbose"):
        told = subprocess.run(
            [*words, option], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        *_, last[option] = told.stdout.splitlines()
    assert last["--oldest"] == "left out: 2 tests, which need jax, keras, as --oldest installs no frameworks"
    assert "3 passed" in last["--verbose"]


def test_only_a_framework_can_be_left_out_as_one(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text("import pytest\n@pytest.mark.framework('numpy')\ndef test_a(): pass\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "oldest", "--oldest", "-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    told = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "not of the group `frameworks`, which --oldest does without: numpy" in told.stdout


def test_the_pythons_that_are_said_to_be_supported_are_those_that_are_tested(run: ModuleType) -> None:
    said = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if ":: Python :: 3." in line]
    assert said == [f"3.{minor}" for minor in range(run.OLDEST[1], run.NEWEST[1] + 1)]
    assert PROJECT["requires-python"] == f">={said[0]}"
    assert f"Python {said[0]} to {said[-1]}" in (ROOT / "README.md").read_text()


# -- the servers' programs -------------------------------------------------------------------------------


def test_a_server_of_another_python_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_python(tmp_path / "some_server", HERE)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(pytest.skip.Exception):
        program("some_server", "pip some-server")


def test_tests_of_servers_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "from servers.programs import program\ndef test_a(): program('sh', 'apt dash')\ndef test_b(): pass\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "servers.programs", "-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for option, expected in (([], "2 passed"), (["--without-servers"], "1 passed, 1 skipped")):
        told = subprocess.run(
            [*words, *option], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        assert expected in told.stdout
