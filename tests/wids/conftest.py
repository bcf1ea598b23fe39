"""Shards, and a cache folder of the test's own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WDS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("WIDS_CACHE", raising=False)


@pytest.fixture
def shards(make_shards):
    return [{"url": shard, "nsamples": 5} for shard in make_shards(3, samples=5)]
