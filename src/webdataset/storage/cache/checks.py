"""What must be true of a shard before it is kept in a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webdataset.errors import ShardError

from .kinds import check_tar_format, kind_of


class NotATarError(ShardError, ValueError):
    """What was fetched is no tar archive, for example a page that says what went wrong."""


class TarChecks:
    """What must be true of a shard before it is kept."""

    def __init__(self, validator: Callable[[str], Any] | None, url: str) -> None:
        self.validator = validator
        self.url = url

    def head(self, data: bytes) -> None:
        """A page that says what went wrong is noticed before anybody reads it as a shard."""
        if self.validator is check_tar_format and kind_of(data) == "data":
            raise self._error(data)

    def is_over(self, head: bytes, tail: bytes) -> bool:
        """A tar archive that came without its length must have its end marker, or it may have been cut."""
        return not kind_of(head).endswith("tar archive") or (len(tail) == 1024 and not tail.strip(b"\0"))

    def file(self, path: str) -> None:
        if self.validator is not None and not self.validator(path):
            with open(path, "rb") as stream:
                raise self._error(stream.read(60))

    def _error(self, head: bytes) -> NotATarError:
        return NotATarError(f"this is not a tar archive, it begins with {head[:60]!r}", url=self.url)
