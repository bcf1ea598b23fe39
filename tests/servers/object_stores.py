"""What the tests of all object stores need of a server."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from webdataset.storage.client import Client

_NUMBERS = itertools.count()


@dataclass
class ObjectServer:
    """A running store: `environment()` is how a user would name it, `bucket()` makes a new one and gives its url."""

    port: int
    checks_keys: bool = True
    lists_parts: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    def environment(self, port: int | None = None) -> dict[str, str]:
        """The variables to set; with a port, those for a way to the server through that one."""
        raise NotImplementedError

    def wrong_key(self) -> dict[str, str]:
        """The variables of somebody with a wrong secret."""
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
