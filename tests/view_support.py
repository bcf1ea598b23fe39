"""Requests to a view."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlencode


class Reply:
    """What a server sent back."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.data = answer.read()

    @property
    def json(self) -> Any:
        return json.loads(self.data)


def request(view: Any, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, **words: Any) -> Reply:
    """Ask a view, as a browser does."""
    connection = http.client.HTTPConnection("127.0.0.1", view.server.port, timeout=60)
    target = f"/{view.server.token}/{path}" if not path.startswith("/") else path
    connection.request(method, f"{target}?{urlencode(words)}" if words else target, headers=headers or {})
    try:
        return Reply(connection.getresponse())
    finally:
        connection.close()
