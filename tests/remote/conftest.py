"""Shards, and producers of them, that many tests share."""

from __future__ import annotations

import pytest

from remote_support import Fleet, dataset, write_shards


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("remote"))


@pytest.fixture(scope="session")
def fleet(shards):
    """Four producers that nobody kills."""
    with Fleet(4, dataset, shards) as running:
        yield running
