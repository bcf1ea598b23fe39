"""Fixtures that run commands."""

from pathlib import Path

import pytest

from cli_support import members, names, wl, wl_process
from runs_support import make_inputs

__all__ = ["members", "names", "wl", "wl_process"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with three shards and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    make_inputs(tmp_path, 3)
    return tmp_path
