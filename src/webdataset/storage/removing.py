"""Removal of files and objects."""

from __future__ import annotations

import contextlib
import os

from webdataset.errors import StorageError

from .local import allowed_path
from .options import LIST, StorageOptions
from .publish import as_storage_error
from .stores.lookup import STORES, stored_object
from .urls import local_path, scheme_of

REMOVED = (200, 202, 204, 404, 410)


def remove(url: str, *, storage_options: StorageOptions | None = None) -> None:
    """Remove a file or an object, reached with these options; a missing one is no error.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open(f"{folder}/a.tar", "w").close()
    ...     remove(f"{folder}/a.tar")
    ...     remove(f"{folder}/a.tar")
    ...     os.listdir(folder)
    []
    """
    path = local_path(url)
    with contextlib.suppress(FileNotFoundError):  # as a missing object is, too
        if path is not None:
            _remove_file(path)
        elif scheme_of(url) in STORES:
            stored_object(url, **StorageOptions.of(storage_options).for_url(url, LIST)).delete()
        else:
            _remove_from_server(url)


def _remove_file(path: str) -> None:
    try:
        os.unlink(allowed_path(path))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise as_storage_error(error, path) from error


def _remove_from_server(url: str) -> None:
    from .http.requests import request
    from .stores.client import FINAL

    response = request("DELETE", url, ok=FINAL)
    if response.status not in REMOVED:
        hint = "remove it there by other means"
        raise StorageError(f"the server answers {response.status} to DELETE", url=url, hint=hint)
