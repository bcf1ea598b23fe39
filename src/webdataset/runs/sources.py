"""The sources of a plan's code, as a process finds them: what other code makes is no result of the plan."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from .outcomes import StopRunError


class ChangedCodeError(StopRunError):
    """Code that is not what the plan was made for."""


class PlannedSources:
    """Files that a plan's code is read from, each with its digest; those that are not on this machine do not count."""

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = dict(digests)
        self._leave_imported()

    def check(self) -> None:
        """Raise ChangedCodeError if something was changed that this process is going to read, or has just read."""
        for path, digest in self._digests.items():
            if _digest_here(path) not in (digest, ""):
                hint = "give the whole line again, which redoes all shards that other code has made"
                raise ChangedCodeError("the code has changed since the run was planned", url=path, hint=hint)
        self._leave_imported()

    def _leave_imported(self) -> None:
        """Forget modules that are imported, and stay what they are in this process."""
        if self._digests:
            imported = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
            for path in filter(None, imported):
                self._digests.pop(os.path.abspath(path), None)


def source_text(data: bytes) -> str:
    """Return a source without its comments.

    >>> source_text(b"a = 1") == source_text(b"a = 1 # first") != source_text(b"a = 2")
    True
    """
    try:
        return ast.dump(ast.parse(data))
    except (SyntaxError, ValueError):
        return data.hex()


def source_digest(data: bytes) -> str:
    """Return what tells a source from others."""
    return hashlib.sha256(source_text(data).encode()).hexdigest()[:16]


def _digest_here(path: str) -> str:
    """Return the digest of a source; nothing if it is not here."""
    with suppress(OSError):
        found = os.stat(path)
        return _digest_at(path, found.st_size, found.st_mtime_ns, found.st_ino)
    return ""


@lru_cache(maxsize=1000)
def _digest_at(path: str, *_: int) -> str:
    with open(path, "rb") as file:
        return source_digest(file.read())
