"""./run brings the servers of the tests where it may, and says what is missing where it may not."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from servers import missing

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "apt nginx squid  # web servers\npip moto\nnpm azurite\napt gm\n"
PROGRAMS = {
    # there is what was installed, or is written into the file before
    "dpkg-query": 'for name; do grep -qx "$name" there && echo "$name installed"; done; exit 0',
    "apt-get": """
        for word; do last=$word; done
        mkdir running || echo "two at once" >> log
        echo "apt-get $last $(cat policy | tail -n 1)" >> log
        [ "$last" = update ] || case " $NOT_TO_BE_HAD " in *" $last "*) failed=1;; *) echo "$last" >> there;; esac
        [ "$last" != update ] || [ -z "$OFFLINE" ] || failed=1
        rmdir running; exit ${failed:-0}""",
    "npm": 'for word; do last=$word; done; echo "npm $last" >> log; mkdir -p .venv/node/node_modules/$last',
    ".venv/bin/python": 'for word; do last=$word; done; echo "python $last" >> log; [ "$last" != "$FAILING" ]',
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, for a project and a machine that are a folder; its user is root."""
    (tmp_path / "tests" / "servers").mkdir(parents=True)
    (tmp_path / "tests" / "servers" / "packages.txt").write_text(PACKAGES)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "there").write_text("")
    for name, script in PROGRAMS.items():
        path = tmp_path / "bin" / name if "/" not in name else tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
        path.chmod(0o755)
    for name in ("sh", "env", "grep", "mkdir", "rmdir", "cat", "tail"):
        (tmp_path / "bin" / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    loader = importlib.machinery.SourceFileLoader("run", str(ROOT / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    for name, value in {"ROOT": "", "VENV": ".venv", "STAMP": ".venv/installed.json", "POLICY": "policy"}.items():
        monkeypatch.setattr(module, name, str(tmp_path / value))
    monkeypatch.setattr(module, "LOG", str(tmp_path / ".venv" / "install.log"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return module


@pytest.fixture
def log(tmp_path: Path) -> Callable[[], list[str]]:
    """What was called since the last look."""

    def read() -> list[str]:
        path = tmp_path / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return lines

    return read


NOTHING: dict[str, list[str]] = {"apt": [], "pip": [], "npm": []}
EVERYTHING = [
    *(f"apt-get {name} exit 101" for name in ("update", "nginx", "squid", "gm")),
    "python moto",
    "npm azurite",
]


def test_test_brings_all_servers_once_and_starts_no_service(
    run: ModuleType, log: Callable[[], list[str]], tmp_path: Path, capsys: Any
) -> None:
    assert run.run_test(["tests/tar"]) == 0
    assert log() == [*EVERYTHING, "python tests/tar"]
    assert not (tmp_path / "policy").exists()
    told = capsys.readouterr().err.splitlines()
    assert [line.split(" ... ")[0] for line in told] == [
        f"run: installing {name}" for name in ("apt's lists", "nginx", "squid", "gm", "moto", "azurite")
    ]
    assert run.run_test(["tests/tar"]) == 0
    assert log() == ["python tests/tar"]


def test_what_cannot_be_had_costs_no_other_and_is_tried_again_only_by_a_whole_run(
    run: ModuleType, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOT_TO_BE_HAD", "squid")
    monkeypatch.setenv("FAILING", "moto")
    assert run.run_test(["-q"]) == 0
    assert log() == [*EVERYTHING, "python -q"]
    assert run.run_test(["-q"]) == 0
    assert log() == ["python -q"]
    assert run.run_servers([]) == 1
    assert log() == ["apt-get update exit 101", "apt-get squid exit 101", "python moto"]
    monkeypatch.delenv("NOT_TO_BE_HAD")
    run.run_test([])
    assert log()[:3] == ["apt-get update exit 101", "apt-get squid exit 101", "python moto"]
    monkeypatch.delenv("FAILING")
    assert run.run_servers([]) == 0


def test_the_whole_suite_is_shared_and_what_failed_runs_alone(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[str] = []
    monkeypatch.setattr(run, "python", lambda *words: called.append(" ".join(words)) or 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert run.run_test(["--without-servers"]) == 0
    assert run.run_test(["--without-servers", "-x"]) == 0
    assert called == ["-m pytest --without-servers --share 4", "-m pytest --without-servers -x"]
    called.clear()
    path = tmp_path / ".pytest_cache/v/cache/lastfailed"
    assert run.run_test(["--without-servers", "--again"]) == 1  # nothing is known
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({f"a.py::test_{n}": True for n in range(51)}))
    assert run.run_test(["--without-servers", "--again"]) == 1  # that is no bad luck
    path.write_text(json.dumps({"b.py::test_x[a@b]": True, "a.py::test_y": True, "a.py::test_z": True}))
    assert run.run_test(["--without-servers", "--again"]) == 0
    assert called == ["-m pytest --without-servers --verbose a.py::test_y a.py::test_z b.py::test_x[a@b]"]


def test_without_a_network_the_tests_run_nevertheless(
    run: ModuleType, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFLINE", "1")
    monkeypatch.setenv("NOT_TO_BE_HAD", "nginx squid gm")
    assert run.run_test(["-q"]) == 0
    assert log() == ["apt-get update exit 101", "apt-get nginx exit 101", "python moto", "npm azurite", "python -q"]


def test_an_ordinary_user_gets_what_needs_no_root(
    run: ModuleType, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run.run_test(["-q"]) == 0
    assert log() == ["python moto", "npm azurite", "python -q"]
    assert "apt" not in capsys.readouterr().err
    assert run.run_servers([]) == 1
    assert "as root: apt-get install --no-install-recommends nginx squid gm" in capsys.readouterr().err


def test_npm_comes_from_debian_only_if_there_is_none(
    run: ModuleType, log: Callable[[], list[str]], tmp_path: Path
) -> None:
    (tmp_path / "bin" / "npm").rename(tmp_path / "bin" / "npm.later")
    run.bring_servers(again=True)
    assert "apt-get npm exit 101" in log()


def test_elsewhere_than_on_debian_nothing_is_tried_that_cannot_work(
    run: ModuleType, log: Callable[[], list[str]], tmp_path: Path
) -> None:
    for name in ("apt-get", "dpkg-query"):
        (tmp_path / "bin" / name).unlink()
    assert run.bring_servers(again=True) == NOTHING | {"apt": ["nginx", "squid", "gm"]}
    assert log() == ["python moto", "npm azurite"]


def test_two_runs_at_once_take_turns(run: ModuleType, log: Callable[[], list[str]], tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=run.install_debian, args=(["nginx", "squid", "gm"],)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert log() == EVERYTHING[:4]
    assert not (tmp_path / "policy").exists()


@pytest.mark.parametrize(("found", "left"), [("#!/bin/sh\nexit 7\n", True), (None, False)])
def test_somebody_elses_word_on_services_stays_and_what_a_killed_run_left_goes(
    run: ModuleType, tmp_path: Path, found: str | None, left: bool
) -> None:
    (tmp_path / "policy").write_text(found or run.NO_SERVICES)
    run.bring_servers(again=True)
    assert (tmp_path / "policy").exists() is left


@pytest.mark.parametrize(
    ("display", "arguments", "last"),
    [
        ("", [], "--no-browser"),
        (":0", [], "docs/notebooks"),
        (":0", ["--port", "0"], "0"),
        ("", ["--execute", "decoding"], "decoding"),
    ],
)
def test_notebooks_are_opened_in_a_browser_where_there_is_a_display(
    run: ModuleType,
    log: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    display: str,
    *,
    arguments: Any,
    last: str,
) -> None:
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert run.run_notebook(arguments) == 0
    assert log() == [f"python {last}"]
    assert os.environ["PATH"].startswith(os.path.join(run.VENV, "bin"))


def test_the_list_of_packages_is_read_as_it_is(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ROOT", str(ROOT))
    kinds = {line.split()[0] for line in (ROOT / "tests/servers/packages.txt").read_text().splitlines()}
    assert {kind for kind, names in run.missing_servers().items() if names} == kinds


# -- the end of a run --------------------------------------------------------------------------------


def test_a_run_ends_with_what_was_left_out(tmp_path: Path) -> None:
    tests = "from servers.programs import leave_out\ndef test_a(): leave_out('apt squid')\ndef test_b(): pass\n"
    (tmp_path / "test_some.py").write_text(tests + "def test_c(): leave_out('pip moto gm')\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    for processes in (["-p", "sharing", "--share", "2"], []):
        words = [sys.executable, "-m", "pytest", "-q", "-p", "servers.missing", *processes, str(tmp_path)]
        ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        last = ended.stdout.splitlines()[-1]
        assert last.startswith("left out: 2 tests, which need gm, moto, squid; to install them: ")


@pytest.mark.parametrize(
    ("kinds", "user", "programs", "command"),
    [
        ({"apt", "pip"}, 0, ["apt-get"], "./run servers"),
        ({"apt"}, 1000, ["apt-get"], "sudo ./run servers"),
        ({"apt"}, 0, [], "this system's package manager, then ./run servers"),
        ({"npm"}, 1000, [], "./run servers"),
    ],
)
def test_the_cure_is_one_that_works_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, kinds: set[str], user: int, programs: list[str], command: str
) -> None:
    for name in programs:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert missing.cure(kinds) == command
    one = missing.closing_line(Counter({"npm azurite": 1}))
    assert one == "left out: 1 test, which needs azurite; to install it: ./run servers"
    both = missing.closing_line(Counter({"framework keras": 2, "npm azurite": 1}), chosen=True)
    frameworks = "2 tests, which need keras, as --oldest installs no frameworks"
    assert both == f"left out: {frameworks}; 1 test, which needs azurite, as --without-servers asks"


def test_what_is_installed_is_remembered_with_the_packages(run: ModuleType, tmp_path: Path) -> None:
    run.bring_servers(again=True)
    state = json.loads((tmp_path / ".venv" / "installed.json").read_text())
    assert (state["servers"], state["not to be had"]) == (["moto"], [])
