"""The folder, or the prefix in a bucket, in which a run keeps its plan and its records."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from webdataset.base import private
from webdataset.errors import LimitError, MissingShardError, StateError, StorageError, WebDatasetError
from webdataset.gopen import gopen
from webdataset.storage.local import allowed_path
from webdataset.storage.publish import as_storage_error
from webdataset.storage.stores.lookup import STORES, listed
from webdataset.storage.streams import read_up_to
from webdataset.storage.urls import is_local, local_path, scheme_of

PARALLEL = 32
"""How many objects of a store are read at a time."""
MOST_BYTES = 1 << 30
"""Of a file of a run: a part of a plan or the records of a task."""
PIECE = 1 << 20


class Place:
    """Files by name in one folder or prefix; a folder is this user's own, and nobody else can write to it.

    With `foreign` it may be anybody's, to be shown.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Place(folder)
    ...     place.write("plan/a.json", b"{}")
    ...     place.read("plan/a.json"), place.sizes("plan/")
    (b'{}', {'plan/a.json': 2})
    """

    def __init__(self, url: str, *, foreign: bool = False) -> None:
        if url == "-" or not (is_local(url) or scheme_of(url) in STORES):
            hint = f"a folder, or a prefix of a store ({', '.join(sorted(STORES))})"
            raise StorageError("a run cannot be kept here", url=url, hint=hint)
        path = local_path(url)
        self.folder = None if path is None else os.path.abspath(path)
        self.url = self.folder or url.rstrip("/")
        self.foreign = foreign

    def join(self, name: str) -> str:
        """Return the url of a file."""
        return f"{self.url}/{name}"

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        if self.folder is not None:
            return self._read_from(name, 0)
        with gopen(self.join(name)) as stream:
            return read_up_to(MOST_BYTES, stream, self.join(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the contents of a file of any size."""
        with contextlib.ExitStack() as opened:
            stream: BinaryIO
            if self.folder is not None:
                number = opened.enter_context(self._opened(name, os.O_RDONLY))
                stream = open(number, "rb", closefd=False)  # noqa: SIM115 - closed with its number
            else:
                stream = opened.enter_context(gopen(self.join(name)))
            while piece := stream.read(PIECE):
                yield piece

    def facts(self, name: str) -> dict[str, Any]:
        """Return what a file says that holds a JSON object."""
        return self._facts(name, self.read(name))

    def facts_if_there(self, name: str) -> dict[str, Any] | None:
        """Return the same, or None if there is no such file or nothing is in it."""
        data = self.read_if_there(name)
        return self._facts(name, data) if data else None

    def _facts(self, name: str, data: bytes) -> dict[str, Any]:
        with self.understood(name):
            found: dict[str, Any] = json.loads(data)
            return dict(found.items())

    @contextlib.contextmanager
    def understood(self, name: str) -> Iterator[None]:
        """Raise one error for whatever a file says that no run of ours would: anybody may have written it."""
        try:
            yield
        except WebDatasetError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            what = f"this is no file of a run ({type(error).__name__}: {error})"
            raise StateError(what, url=self.join(name)) from error

    def read_if_there(self, name: str) -> bytes | None:
        """Return the contents of a file, or None if there is none."""
        try:
            return self.read(name)
        except (MissingShardError, FileNotFoundError):
            return None

    def read_new(self, starts: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        """Yield what these files have from an offset on; some cannot be read yet, though they are listed."""
        found: Iterable[bytes] = map(self._read_new, starts, starts.values())
        if self.folder is None:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(PARALLEL, "webdataset-records") as pool:
                found = list(pool.map(self._read_new, starts, starts.values()))
        yield from ((name, data) for name, data in zip(starts, found, strict=True) if data)

    def _read_new(self, name: str, start: int) -> bytes:
        try:
            return self.read(name)[start:] if self.folder is None else self._read_from(name, start)
        except LimitError:
            raise
        except (WebDatasetError, OSError):
            return b""

    def _read_from(self, name: str, start: int) -> bytes:
        with self._opened(name, os.O_RDONLY) as number, open(number, "rb", closefd=False) as file:
            file.seek(start)
            return read_up_to(MOST_BYTES, file, self.join(name))

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, which appears when it is complete."""
        if self.folder is None:
            stream = gopen(self.join(name), "wb")
            stream.write(data)
            stream.close()
            return
        with self._told(name):
            private.write_private(allowed_path(self.folder), name, data)

    def append(self, name: str, data: bytes) -> None:
        """Append to a file of a folder."""
        with self._opened(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT) as number:
            os.write(number, data)

    def created(self, name: str) -> int:
        """Make a file of a folder, in place of one that is there, and return its descriptor."""
        assert self.folder is not None
        with self._told(name), private.inside(allowed_path(self.folder), name, make=True) as (parent, last):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(last, dir_fd=parent)  # not emptied: it could be another file's second name
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | private.NO_LINKS
            return os.open(last, flags, 0o644, dir_fd=parent)

    def make(self, name: str) -> None:
        """Make a folder in a folder."""
        assert self.folder is not None
        with self._told(name), private.inside(allowed_path(self.folder), f"{name}/file", make=True):
            """It is there now."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the files whose names begin like this, and their sizes."""
        if self.folder is None:
            return dict(self._listed(prefix))
        folder, _, start = prefix.rpartition("/")
        found: dict[str, int] = {}
        with (
            contextlib.suppress(FileNotFoundError),
            self._told(prefix),
            private.inside(allowed_path(self.folder), f"{prefix}-", foreign=self.foreign) as (number, _),
        ):
            found.update(_found(number, folder, start))
        return found

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        for url, size in listed(self.join(prefix)):
            yield url[len(self.url) + 1 :], size

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int]:
        assert self.folder is not None
        with self._told(name), private.opened(allowed_path(self.folder), name, flags, foreign=self.foreign) as number:
            yield number

    @contextlib.contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """Raise errors of the system as ours."""
        try:
            yield
        except WebDatasetError:
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingShardError("no such file", url=self.join(name)) from error
        except OSError as error:
            raise as_storage_error(error, self.join(name)) from error


def _found(parent: int, folder: str, start: str = "") -> Iterator[tuple[str, int]]:
    """Yield the files in an open folder and its folders; links are none."""
    with os.scandir(parent) as entries:
        for entry in entries:
            name = f"{folder}/{entry.name}"
            if not entry.name.startswith(start) or entry.name.startswith("."):
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if entry.is_dir(follow_symlinks=False):
                    inner = os.open(entry.name, os.O_RDONLY | os.O_DIRECTORY | private.NO_LINKS, dir_fd=parent)
                    try:
                        yield from _found(inner, name)
                    finally:
                        os.close(inner)
                elif entry.is_file(follow_symlinks=False):
                    yield name, entry.stat(follow_symlinks=False).st_size
