"""Files written to web servers by PUT, as WebDAV servers accept them.

What is written is collected in a temporary file, so that the request can say how long it is and be repeated; the
server makes the file visible when all of it has arrived.
"""

from __future__ import annotations

import functools
from typing import Any, BinaryIO

from webdataset.errors import StorageError
from webdataset.storage.http.requests import request

from .client import FINAL
from .uploads import FileBody, FileUpload

STORED = (200, 201, 202, 204)
_HINTS = {
    401: "check the user and password",
    403: "check the user and password, and that they may write here",
    404: "the server does not take files at this place",
    405: "the server does not take files; WebDAV must be switched on",
    409: "make the folder on the server first",
    413: "the server limits the size of a file (nginx: client_max_body_size)",
}


def open_put(url: str, **options: object) -> FileUpload:
    """A stream whose bytes are stored under the url when it is closed."""
    return FileUpload(url, functools.partial(_put, url, options))


def _put(url: str, options: dict[str, Any], file: BinaryIO, size: int) -> None:
    headers = {"Content-Type": "application/octet-stream"} | options.pop("headers", {})
    response = request("PUT", url, headers=headers, body=FileBody(file, size), ok=FINAL, **options)
    if response.status not in STORED:
        hint = _HINTS.get(response.status, "")
        raise StorageError(f"the server answers {response.status} to PUT", url=url, hint=hint, status=response.status)
