"""The modules of `website/`, and the site as `./run docs` builds it, once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def website(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Import a module of `website/` by its name."""
    pytest.importorskip("nbformat")

    def module(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(ROOT / "website"))
        return __import__(name)

    return module


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, ROOT / "website/build.py", "--to", folder / "site", "--pages", folder / "pages"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stderr
    return folder / "site"
