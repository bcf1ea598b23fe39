"""Outputs that appear only when they are complete, also if they are written by code that does not care.

A function or command writes local outputs into a hidden folder beside their place, under their own names; when it has
succeeded, everything in that folder is moved, the output itself last.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Self

from webdataset.errors import WebDatasetError
from webdataset.storage.publish import as_storage_error
from webdataset.storage.urls import local_path

PREFIX = ".webdataset-"


class MissingOutputError(WebDatasetError):
    """A function or command that ended well, but wrote nothing."""


class SpareFolders:
    """Hidden folders that have been emptied, for the next outputs beside them: some disks take long to remove one."""

    def __init__(self) -> None:
        self._spare: dict[str, str] = {}

    def take(self, folder: str) -> str:
        """Return a hidden folder in this one, under a name that nothing was ever told to write to."""
        hidden = os.path.join(folder, f"{PREFIX}{os.urandom(8).hex()}")
        spare = self._spare.pop(folder, None)
        if spare is not None:
            with contextlib.suppress(OSError):  # somebody has removed it
                os.rename(spare, hidden)
                return hidden
        os.makedirs(hidden)
        return hidden

    def put(self, folder: str, hidden: str) -> None:
        """Keep a hidden folder, which is empty."""
        self._spare[folder] = hidden

    def remove(self) -> None:
        """Remove them."""
        while self._spare:
            shutil.rmtree(self._spare.popitem()[1], ignore_errors=True)


class StagedOutputs:
    """Places to write outputs to, until `publish`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, staged([f"{folder}/out.tar"]) as outputs:
    ...     open(outputs.paths[0], "w").close()
    ...     outputs.publish()
    ...     os.path.exists(f"{folder}/out.tar")
    True
    """

    def __init__(self, outputs: Sequence[str], spare: SpareFolders) -> None:
        self.outputs = list(outputs)
        self._spare = spare
        self.folders: dict[str, str] = {}
        """The hidden folder of each folder."""
        try:
            self.paths = [self._staged(url) for url in self.outputs]
        except BaseException:
            self.remove()
            raise

    def _staged(self, url: str) -> str:
        path = local_path(url)
        if path is None:
            return url
        folder = os.path.dirname(os.path.abspath(path))
        if folder not in self.folders:
            try:
                self.folders[folder] = self._spare.take(folder)
            except OSError as error:
                raise as_storage_error(error, path) from error
        return os.path.join(self.folders[folder], os.path.basename(path))

    def placed_in(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command with the places instead of the outputs."""
        found = list(words)
        for output, path in zip(self.outputs, self.paths, strict=True):
            whole = re.compile(rf"(?<![\w./-]){re.escape(output)}(?![\w./-])")
            found = [whole.sub(lambda _, path=path: path, word) for word in found]  # type: ignore[misc]
        return found

    def publish(self) -> None:
        """Move what was written to its place."""
        main = {os.path.basename(path) for path in self.paths}
        for output, path in zip(self.outputs, self.paths, strict=True):
            if local_path(output) is not None and not os.path.exists(path) and not os.path.exists(output):
                hint = "write to the name that the function or command is given"
                raise MissingOutputError("the output was not written", url=output, hint=hint)
        for folder, hidden in list(self.folders.items()):
            for name in sorted(os.listdir(hidden), key=lambda name: name in main):
                _moved(os.path.join(hidden, name), os.path.join(folder, name))
            self._spare.put(folder, self.folders.pop(folder))

    def remove(self) -> None:
        """Remove what is left."""
        for hidden in self.folders.values():
            shutil.rmtree(hidden, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@contextlib.contextmanager
def staged(outputs: Sequence[str], spare: SpareFolders | None = None) -> Iterator[StagedOutputs]:
    """Make places for outputs, in spare folders if there are some; what is not published is removed."""
    own = SpareFolders() if spare is None else spare
    try:
        with StagedOutputs(outputs, own) as places:
            yield places
    finally:
        if spare is None:
            own.remove()


def _moved(source: str, target: str) -> None:
    try:
        if os.path.isdir(target) and os.path.isdir(source):
            shutil.rmtree(target)
        os.replace(source, target)
    except OSError as error:
        raise as_storage_error(error, target) from error
