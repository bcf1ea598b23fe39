"""A prefix in a bucket."""

from __future__ import annotations

import pytest


@pytest.fixture
def s3_prefix(moto_server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix in a bucket of moto's S3, to which the environment leads."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    return f"{moto_server.bucket()}/run"
