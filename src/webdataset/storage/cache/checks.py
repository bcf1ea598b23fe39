"""The checks of a shard before it is kept in a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from webdataset.errors import NotATarError

from .kinds import check_tar_format, kind_of


class TarChecks:
    """The checks of a shard, with a validator of the user's."""

    def __init__(self, validator: Callable[[str], Any] | None, url: str) -> None:
        self.validator = validator
        self.url = url

    def check_start(self, data: bytes) -> None:
        """Notice an error page by its first bytes, before anybody reads it as a shard."""
        if self.validator is check_tar_format and kind_of(data) == "data":
            raise self._error(data)

    def is_complete(self, start: bytes, end: bytes) -> bool:
        """Whether data of unknown length is complete: a tar archive without an end marker may have been cut."""
        return not kind_of(start).endswith("tar archive") or (len(end) == 1024 and not end.strip(b"\0"))

    def check_file(self, path: str) -> None:
        """Validate a complete file before it gets its name."""
        if self.validator is not None and not self.validator(path):
            with open(path, "rb") as stream:
                raise self._error(stream.read(60))

    def _error(self, start: bytes) -> NotATarError:
        return NotATarError(f"this is not a tar archive, it begins with {start[:60]!r}", url=self.url)
