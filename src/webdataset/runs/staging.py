"""Outputs that appear only when they are complete, also if they are written by code that does not care.

A function or command writes local outputs into a hidden folder beside their place, under their own names; when it has
succeeded, everything in that folder is moved, the output itself last. The hidden folder is in the stage of the task's
generation, which the next owner of the run removes: then there is nothing left to move.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from webdataset.errors import WebDatasetError
from webdataset.storage.publish import as_storage_error
from webdataset.storage.urls import local_path

from .generations import STAGE
from .items import file_version
from .outcomes import StopRunError


class MissingOutputError(WebDatasetError):
    """A function or command that ended well, but wrote nothing."""


class UnseenFolderError(StopRunError):
    """A folder that is there for whoever began the run, but not for the worker."""


class Stages:
    """Where the tasks of a generation write; without one, each folder is a stage of its own.

    Hidden folders that have been emptied are kept for the next outputs: some disks take long to remove one.
    """

    def __init__(self, generation: str = "", check: Callable[[], None] = lambda: None) -> None:
        self.generation = generation
        self.check = check
        """Raises an error if the generation is not the newest any more."""
        self._spare: dict[str, str] = {}

    def take(self, folder: str) -> str:
        """Return a hidden folder for outputs of this one, under a name that nothing was ever told to write to."""
        name = os.urandom(8).hex()
        stage = os.path.join(folder, f"{STAGE}{self.generation}")
        hidden = os.path.join(stage, name) if self.generation else f"{stage}{name}"
        spare = self._spare.pop(folder, None)
        if spare is not None:
            with contextlib.suppress(OSError):  # somebody has removed it
                os.rename(spare, hidden)
                return hidden
        try:
            os.mkdir(hidden)
        except FileNotFoundError as error:  # whoever began the run has made the folder around it
            self.check()
            hint = "folders of outputs must be on a disk that all workers share; or write to a store"
            raise UnseenFolderError("this worker does not see the folder", url=folder, hint=hint) from error
        return hidden

    def put(self, folder: str, hidden: str) -> None:
        """Keep a hidden folder, which is empty."""
        self._spare[folder] = hidden

    def remove(self) -> None:
        """Remove those that are kept."""
        while self._spare:
            shutil.rmtree(self._spare.popitem()[1], ignore_errors=True)


class StagedOutputs:
    """Places to write outputs to, until `publish`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, StagedOutputs([f"{folder}/out.tar"], Stages()) as outputs:
    ...     open(outputs.paths[0], "w").close()
    ...     _ = outputs.publish()
    ...     os.path.exists(f"{folder}/out.tar")
    True
    """

    def __init__(self, outputs: Sequence[str], stages: Stages) -> None:
        self.outputs = list(outputs)
        self._stages = stages
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
                self.folders[folder] = self._stages.take(folder)
            except WebDatasetError:
                raise
            except OSError as error:
                raise as_storage_error(error, path) from error
        return os.path.join(self.folders[folder], os.path.basename(path))

    def placed_in(self, words: Sequence[str], written: Sequence[str]) -> list[str]:
        """Return the words of a command with the places instead of the outputs, as they are written there."""
        found = list(words)
        for output, path in zip(written, self.paths, strict=True):
            whole = re.compile(rf"(?<![\w./-]){re.escape(output)}(?![\w./-])")
            found = [whole.sub(lambda _, path=path: path, word) for word in found]  # type: ignore[misc]
        return found

    def publish(self) -> dict[str, str]:
        """Move what was written to its place, and return what tells each file from all others."""
        versions = {url: self._version(url, path) for url, path in zip(self.outputs, self.paths, strict=True)}
        self._stages.check()
        main = {os.path.basename(path) for path in self.paths}
        for folder, hidden in list(self.folders.items()):
            for name in sorted(self._listed(hidden), key=lambda name: name in main):
                self._move(os.path.join(hidden, name), os.path.join(folder, name))
            self._stages.put(folder, self.folders.pop(folder))
        return {url: version for url, version in versions.items() if version}

    def _version(self, url: str, path: str) -> str:
        if local_path(url) is None:
            return ""
        if os.path.exists(path):
            # a clock's ticks are long enough for two files of one size
            os.utime(path, ns=(time.time_ns(), time.time_ns() // 10**9 * 10**9 - int.from_bytes(os.urandom(3))))
            return file_version(os.stat(path))
        if os.path.exists(url):
            return file_version(os.stat(url))
        self._stages.check()
        hint = "write to the name that the function or command is given"
        raise MissingOutputError("the output was not written", url=url, hint=hint)

    def _listed(self, hidden: str) -> list[str]:
        try:
            return os.listdir(hidden)
        except OSError as error:
            self._stages.check()
            raise as_storage_error(error, hidden) from error

    def _move(self, source: str, target: str) -> None:
        try:
            if os.path.isdir(target) and os.path.isdir(source):
                shutil.rmtree(target)
            os.replace(source, target)
        except OSError as error:
            self._stages.check()
            raise as_storage_error(error, target) from error

    def remove(self) -> None:
        """Remove what is left."""
        for hidden in self.folders.values():
            shutil.rmtree(hidden, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


@contextlib.contextmanager
def staged(outputs: Sequence[str], stages: Stages | None = None) -> Iterator[StagedOutputs]:
    """Make places for outputs, in these stages or beside them; what is not published is removed."""
    own = Stages() if stages is None else stages
    try:
        with StagedOutputs(outputs, own) as places:
            yield places
    finally:
        if stages is None:
            own.remove()
