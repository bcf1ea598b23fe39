"""The folder, or the prefix in a bucket, in which a run keeps its plan and its records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from webdataset.errors import MissingShardError, StorageError
from webdataset.gopen import gopen
from webdataset.storage.options import LIST, StorageOptions
from webdataset.storage.publish import AtomicFile, as_storage_error
from webdataset.storage.stores.lookup import STORES, stored_object
from webdataset.storage.urls import is_local, local_path, scheme_of


class Place:
    """Files by name in one folder or prefix.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Place(folder)
    ...     place.write("plan/a.json", b"{}")
    ...     place.read("plan/a.json"), place.sizes("plan/")
    (b'{}', {'plan/a.json': 2})
    """

    def __init__(self, url: str) -> None:
        if url == "-" or not (is_local(url) or scheme_of(url) in STORES):
            hint = f"a folder, or a prefix of a store ({', '.join(sorted(STORES))})"
            raise StorageError("a run cannot be kept here", url=url, hint=hint)
        path = local_path(url)
        self.folder = None if path is None else os.path.abspath(path)
        self.url = self.folder or url.rstrip("/")

    def join(self, name: str) -> str:
        """Return the url of a file."""
        return f"{self.url}/{name}"

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        with gopen(self.join(name)) as stream:
            data: bytes = stream.read()
            return data

    def read_if_there(self, name: str) -> bytes | None:
        """Return the contents of a file, or None if there is none."""
        try:
            return self.read(name)
        except (MissingShardError, FileNotFoundError):
            return None

    def read_from(self, name: str, start: int) -> bytes:
        """Return what a file has from an offset on."""
        if self.folder is None:
            return self.read(name)[start:]
        with open(self.join(name), "rb") as file:
            file.seek(start)
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, which appears when it is complete."""
        if self.folder is None:
            stream = gopen(self.join(name), "wb")
            stream.write(data)
            stream.close()
            return
        file = AtomicFile(self._made(name))
        file.write(data)
        file.publish()

    def append(self, name: str, data: bytes) -> None:
        """Append to a file of a folder."""
        number = self.opened(name, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(number, data)
        except OSError as error:
            raise as_storage_error(error, self.join(name)) from error
        finally:
            os.close(number)

    def opened(self, name: str, flags: int) -> int:
        """Open a file of a folder, made if it is not there, and return its descriptor."""
        path = self.join(name)
        try:
            try:
                return os.open(path, flags | os.O_CREAT, 0o666)
            except FileNotFoundError:  # the first file of its folder
                return os.open(self._made(name), flags | os.O_CREAT, 0o666)
        except OSError as error:
            raise as_storage_error(error, path) from error

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the files whose names begin with a folder's name, and their sizes."""
        if self.folder is None:
            return dict(self._listed(prefix))
        found: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for path, _, names in os.walk(self.join(prefix.rstrip("/"))):
                for name in names:
                    if not name.startswith("."):
                        full = os.path.join(path, name)
                        found[os.path.relpath(full, self.folder)] = os.path.getsize(full)
        return found

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        start = self.join(prefix)
        objects = stored_object(start, **StorageOptions.of(None).for_url(start, LIST))
        for url, size in objects.list():
            yield url[len(self.url) + 1 :], size

    def _made(self, name: str) -> str:
        path = self.join(name)
        try:
            if self.folder is not None and not os.path.isdir(self.folder):
                os.makedirs(os.path.dirname(self.folder), exist_ok=True)
                # for this user only: plans have storage options and code that tasks run
                with contextlib.suppress(FileExistsError):
                    os.mkdir(self.folder, 0o700)
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise as_storage_error(error, path) from error
        return path
