"""A cache folder of the test's own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of indices that cannot stand beside their shards."""
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "indices"
