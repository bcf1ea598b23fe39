"""A prefix in a bucket."""

from __future__ import annotations

import pytest

from cli_support import here, wl

__all__ = ["here", "wl"]


@pytest.fixture
def s3_prefix(moto_server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix in a bucket of moto's S3, to which the environment leads."""
    for name, value in moto_server.environment().items():
        monkeypatch.setenv(name, value)
    return f"{moto_server.bucket()}/run"


@pytest.fixture(params=["moto", pytest.param("ceph", marks=pytest.mark.xdist_group("ceph"))])
def s3_bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of its own, to which the environment leads."""
    server = request.getfixturevalue(f"{request.param}_server")
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    bucket: str = server.bucket()
    return bucket
