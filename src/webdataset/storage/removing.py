"""Removal of files and objects."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from webdataset.errors import StorageError

from .local import allowed_path
from .options import WRITE, StorageOptions
from .publish import as_storage_error
from .stores.lookup import is_stored, stored_object
from .urls import FAMILIES, address_of, local_path, opened_scheme

REMOVED = (200, 202, 204, 404, 410)


def remove(url: str, *, storage_options: StorageOptions | None = None) -> None:
    """Remove what `gopen(url, "wb", storage_options=...)` writes: a file or an object. A missing one is no error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open(f"{folder}/a.tar", "w").close()
    ...     remove(f"{folder}/a.tar")
    ...     remove(f"{folder}/a.tar")
    ...     os.listdir(folder)
    []
    """
    address = address_of(url, "removed")
    path = local_path(address)
    options = StorageOptions.of(storage_options).for_url(address, WRITE)
    if path is not None and address != "-":
        remove_file(path)
    elif is_stored(address):
        stored_object(address, **options).delete()
    elif FAMILIES.get(opened_scheme(address)) == "http":
        _remove_from_server(address, options)
    else:
        hint = "remove it there by other means"
        raise StorageError("only files, objects of stores and files of web servers can be removed", url=url, hint=hint)


def remove_file(path: str) -> None:
    """Remove a file of this machine, whatever GOPEN_REWRITE says of its name; a missing one is no error."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(allowed_path(path))
    except OSError as error:
        raise as_storage_error(error, path) from error


def _remove_from_server(url: str, options: dict[str, Any]) -> None:
    from .http.requests import request
    from .stores.client import FINAL

    response = request("DELETE", url, ok=FINAL, **options)
    if response.status not in REMOVED:
        hint = "remove it there by other means"
        line = f"the server answers {response.status} to DELETE"
        raise StorageError(line, url=url, hint=hint, status=response.status)
