"""Imports point down only, and every module has its place in the contract of pyproject.toml."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the contract on the package that lies under this folder."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "COLUMNS": "200"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def copy_of_the_project(folder: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_imports_point_down_only() -> None:
    checked = lint(ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_module_without_a_place_breaks_the_contract(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    (project / "src/webdataset/newcomer.py").write_text('"""Nobody said where this belongs."""\n')
    checked = lint(project)
    assert checked.returncode != 0
    assert "webdataset.newcomer" in checked.stdout


def test_an_import_that_points_up_breaks_the_contract(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    with open(project / "src/webdataset/tar/__init__.py", "a") as module:
        module.write("\nfrom .. import pipeline\n")
    checked = lint(project)
    assert checked.returncode != 0
    assert "webdataset.tar is not allowed to import webdataset.pipeline" in checked.stdout


def test_engines_do_not_know_each_other(tmp_path: Path) -> None:
    project = copy_of_the_project(tmp_path)
    with open(project / "src/webdataset/tar/__init__.py", "a") as module:
        module.write("\nfrom .. import storage\n")
    checked = lint(project)
    assert checked.returncode != 0
    assert "webdataset.tar is not allowed to import webdataset.storage" in checked.stdout
