"""The folder, or the prefix in a bucket, in which a run keeps its plan and its records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

from webdataset.errors import MissingShardError, StorageError, WebDatasetError
from webdataset.gopen import gopen
from webdataset.storage.publish import AtomicFile, as_storage_error
from webdataset.storage.stores.lookup import STORES, listed
from webdataset.storage.urls import is_local, local_path, scheme_of

PARALLEL = 32
"""How many objects of a store are read at a time."""


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

    def read_new(self, starts: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Yield what these files have from an offset on; some cannot be read yet, though they are listed."""
        found: Iterable[bytes] = map(self._read_from, starts, starts.values())
        if self.folder is None:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(PARALLEL, "webdataset-records") as pool:
                found = list(pool.map(self._read_from, starts, starts.values()))
        yield from ((name, data) for name, data in zip(starts, found, strict=True) if data)

    def _read_from(self, name: str, start: int) -> bytes:
        try:
            if self.folder is None:
                return self.read(name)[start:]
            with open(self.join(name), "rb") as file:
                file.seek(start)
                return file.read()
        except (WebDatasetError, OSError):
            return b""

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
        """Return the files whose names begin like this, and their sizes."""
        if self.folder is None:
            return dict(self._listed(prefix))
        folder, _, start = prefix.rpartition("/")
        return dict(self._found(folder, start))

    def _found(self, folder: str, start: str) -> Iterator[tuple[str, int]]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.join(folder)) as entries:
            for entry in entries:
                name = f"{folder}/{entry.name}"
                if not entry.name.startswith(start) or entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    yield from self._found(name, "")
                else:
                    with contextlib.suppress(FileNotFoundError):
                        yield name, entry.stat().st_size

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        for url, size in listed(self.join(prefix)):
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
