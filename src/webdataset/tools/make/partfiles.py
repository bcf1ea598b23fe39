"""Partial downloads: a later run continues where an earlier one was interrupted, or even killed.

>>> import os, pathlib, tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     for text in (b"hello ", b"world"):
...         file = PartFile(f"{folder}/a.txt", "version 1", least=1)
...         before = file.size
...         file.write(text)
...         file.leave()
...     file = PartFile(f"{folder}/a.txt", "version 1")
...     file.publish()
...     before, os.listdir(folder), pathlib.Path(folder, "a.txt").read_text()
(6, ['a.txt'], 'hello world')
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from glob import escape, glob

from webdataset.base.locks import locked
from webdataset.storage.publish import as_storage_error, checked_target

ENDING = ".part"
LEAST = 1 << 20
"""Smaller parts are not kept."""


class BusyError(Exception):
    """Another process is writing this file, or it is not ours."""


class PartFile:
    """A file that is called `.NAME.DIGEST.part` until it is complete.

    `identity` names its contents and version: parts of other contents are not continued, and removed in the end. `size`
    is how much there is.
    """

    def __init__(self, path: str, identity: str, *, least: int = LEAST) -> None:
        self.path = checked_target(path)
        self.least = least
        folder, name = os.path.split(self.path)
        self._stem = os.path.join(folder, f".{os.fsdecode(os.fsencode(name)[:200])}.")
        digest = hashlib.blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        self.temporary = f"{self._stem}{digest}{ENDING}"
        self._held = contextlib.ExitStack()
        try:
            self._file = open(self.temporary, "a+b", buffering=0, opener=_not_through_links)  # noqa: SIM115 - held
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise BusyError from None
            raise as_storage_error(error, self.path) from error
        self._held.enter_context(self._file)
        if not self._held.enter_context(locked(self._file, wait=False)) or not self._is_ours():
            self._held.close()
            raise BusyError
        self.size = os.fstat(self._file.fileno()).st_size

    def write(self, data: bytes) -> None:
        """Append bytes; if the disk is full, the file is removed."""
        try:
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            self.abort()
            raise as_storage_error(error, self.path) from error
        self.size += len(data)

    def read(self, start: int, stop: int) -> bytes:
        """Read some of what there is."""
        return os.pread(self._file.fileno(), stop - start, start)

    def restart(self) -> None:
        """Discard what there is."""
        self._file.truncate(0)
        self.size = 0

    def publish(self) -> None:
        """Rename the complete file to its name, replacing an existing file."""
        with contextlib.suppress(OSError):  # as if the file had been written in place
            os.chmod(self.temporary, stat.S_IMODE(os.stat(self.path).st_mode))
        try:
            os.replace(self.temporary, self.path)
            self._held.close()  # network file systems report a full disk here
        except OSError as error:
            raise as_storage_error(error, self.path) from error
        for other in glob(f"{escape(self._stem)}*{ENDING}"):
            _remove_unless_used(other)

    def leave(self) -> None:
        """Close the file, and keep it for the next run if it is large enough."""
        if self.size < self.least:
            self.abort()
        self._held.close()

    def abort(self) -> None:
        """Remove the file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.temporary)
        self._held.close()

    def _is_ours(self) -> bool:
        """Whether this user owns it, and it was not renamed or removed between opening and locking."""
        found = os.fstat(self._file.fileno())
        try:
            same = os.path.samestat(os.stat(self.temporary), found)
        except FileNotFoundError:
            return False
        return same and stat.S_ISREG(found.st_mode) and (not hasattr(os, "geteuid") or found.st_uid == os.geteuid())


def _not_through_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _remove_unless_used(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "rb") as file, locked(file, wait=False) as free:
        if free:
            os.unlink(path)
