"""What the tests of all object stores need of a server."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from webdataset.gopen import gopen
from webdataset.storage.stores import aws, google, s3
from webdataset.storage.stores.client import Client

_NUMBERS = itertools.count()


@dataclass
class ObjectServer:
    """A running store: `environment()` is how a user would name it, `bucket()` makes a new one and gives its url."""

    port: int
    extra: dict[str, Any] = field(default_factory=dict)

    def environment(self, port: int | None = None) -> dict[str, str]:
        """The variables to set; with a port, those for a way to the server through that one."""
        raise NotImplementedError

    @property
    def data_port(self) -> int:
        """Where the bytes of objects come from."""
        return self.port

    def store(self, url: str, data: bytes) -> None:
        """Put an object there."""
        with gopen(url, "wb") as stream:
            stream.write(data)

    def wrong_key(self, port: int | None = None) -> dict[str, str]:
        """The same of somebody with a wrong secret."""
        raise NotImplementedError

    def bucket(self) -> str:
        raise NotImplementedError

    def unfinished(self, bucket: str) -> int:
        """How many uploads are neither complete nor forgotten."""
        raise NotImplementedError

    def name(self) -> str:
        return f"bucket{next(_NUMBERS)}"


def asked(client: Client, method: str, path: str, **options: Any) -> Any:
    """A request of our own to the server, below the store's interface."""
    return client.ask(method, lambda: path, **options)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, closed_port: int) -> Iterator[None]:
    """A machine on which nobody has logged in to anything, and which is no machine of a cloud."""
    kinds = ("AWS_", "AZURE_", "GOOGLE_", "HF_", "HUGGING_FACE_", "STORAGE_EMULATOR_", "CLOUDSDK_", "USE_AIS_FOR")
    for name in list(os.environ):
        if name.startswith(kinds):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{closed_port}")
    yield
    for remembered in (aws._sections, aws._from_boto3, aws._from_role, google._from_file, google._from_machine):
        remembered.cache_clear()
    s3._regions.cache_clear()
