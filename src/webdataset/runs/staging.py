"""Outputs that appear only when they are complete, also if they are written by code that does not care.

A function or command writes local outputs into a hidden folder beside their place, under their own names; when it has
succeeded, everything in that folder is moved, the output itself last.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Self

from webdataset.errors import WebDatasetError
from webdataset.storage.publish import as_storage_error
from webdataset.storage.urls import local_path

PREFIX = ".webdataset-"


class MissingOutputError(WebDatasetError):
    """A function or command that ended well, but wrote nothing."""


class StagedOutputs:
    """Places to write outputs to, until `publish`.

    >>> with tempfile.TemporaryDirectory() as folder, staged([f"{folder}/out.tar"]) as outputs:
    ...     open(outputs.paths[0], "w").close()
    ...     outputs.publish()
    ...     os.path.exists(f"{folder}/out.tar")
    True
    """

    def __init__(self, outputs: Sequence[str]) -> None:
        self.outputs = list(outputs)
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
                os.makedirs(folder, exist_ok=True)
                self.folders[folder] = tempfile.mkdtemp(prefix=PREFIX, dir=folder)
                os.chmod(self.folders[folder], 0o777 & ~_umask())
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
        for folder, hidden in self.folders.items():
            for name in sorted(os.listdir(hidden), key=lambda name: name in main):
                _moved(os.path.join(hidden, name), os.path.join(folder, name))

    def remove(self) -> None:
        """Remove what is left."""
        for hidden in self.folders.values():
            shutil.rmtree(hidden, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@contextlib.contextmanager
def staged(outputs: Sequence[str]) -> Iterator[StagedOutputs]:
    """Make places for outputs; what is not published is removed."""
    with StagedOutputs(outputs) as places:
        yield places


def _moved(source: str, target: str) -> None:
    try:
        if os.path.isdir(target) and os.path.isdir(source):
            shutil.rmtree(target)
        os.replace(source, target)
    except OSError as error:
        raise as_storage_error(error, target) from error


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
