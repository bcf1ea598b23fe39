"""Removes, or warns of, the shards of an earlier set that a new one leaves over."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

from webdataset.base.logs import Log
from webdataset.base.redact import redacted
from webdataset.errors import ExistingShardsError, ShardWarning, WebDatasetError
from webdataset.storage.options import StorageOptions
from webdataset.storage.urls import rewritten_url

from .outputs import local_target
from .shardsets import EarlierShards, counted, range_text, shard_name

VALUES = (True, False, "warn")

logger = Log("webdataset.writer")


class Overwriting:
    """The shards of one writer, from its first number on, and those that were there before.

    `overwrite` is ShardWriter's; `looks` is False for a writer whose shards are not found under their names; `sole`
    says that no other writer has numbers of the pattern: all others that were there are left over then.
    """

    def __init__(
        self,
        pattern: str,
        start: int,
        overwrite: bool | str,
        *,
        looks: bool = True,
        sole: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if overwrite not in VALUES:
            raise ValueError(f'overwrite must be True, False or "warn", got {overwrite!r}')
        self.pattern, self.overwrite, self.sole = pattern, overwrite, sole
        self.complete: list[int] = []
        self._appearing: int | None = None
        self._before: tuple[int, int] | None = None  # which file had the name of the appearing shard
        self._looks = looks
        self._options = StorageOptions.of(storage_options)
        self.earlier = self._look(start) if looks else None

    def replacing(self, number: int) -> None:
        """The shard with this number is about to appear."""
        self._appearing, self._before = number, self._file(number)
        if self.overwrite is True and self.earlier is not None:
            self.earlier.remove_indices(number)

    def completed(self, number: int) -> None:
        """The shard with this number is there now."""
        self.complete.append(number)
        self._appearing = None

    def ended(self) -> None:
        """The new set is complete: remove what is left over of the earlier one, or say so."""
        earlier = self.earlier
        if earlier is not None and self.complete and self.overwrite is True:
            earlier.remove(self._left_over(earlier))
        self.earlier = None
        if earlier is None or not earlier.numbers:
            return
        if self.complete and self.overwrite == "warn":
            self._warn_of(earlier)
        elif not self.complete and self.overwrite is True:
            there = range_text(self.pattern, earlier.numbers)
            _warn(f"nothing was written, so the earlier set stays as it was: {there}")

    def note(self, error: BaseException) -> None:
        """Note in an error which shards it leaves: complete ones, and those of the earlier set."""
        complete = [number for number in self.complete if not self._is_gone(number)]
        number = self._appearing  # an interrupt may come between the shard's new name and `completed`
        if number is not None and number not in complete and self._file(number) not in (None, self._before):
            complete.append(number)
        others = sorted({*self.earlier.numbers} - {*complete}) if self.earlier is not None else []
        notes = []
        if complete:
            shards, are = counted(complete, "complete shard")
            notes.append(f"{shards} of {redacted(self.pattern)} {are} left: {range_text(self.pattern, complete)}")
        if others and (complete or self.overwrite is True):
            shards, are = counted(others)
            notes.append(f"{shards} of the earlier set {are} still there: {range_text(self.pattern, others)}")
        if notes:
            error.add_note("; ".join(notes))

    def _look(self, start: int) -> EarlierShards | None:
        """The shards that are there already; None where that cannot be known."""
        try:
            earlier = EarlierShards(self.pattern, start, exact=self.overwrite is True, storage_options=self._options)
        except (OSError, WebDatasetError) as error:
            text = f"it is not known whether shards of {redacted(self.pattern)} are there already: {error}"
            if self.overwrite == "warn":
                logger.info("%s", text)
            else:
                _warn(text)
            return None
        if self.overwrite is False and (there := earlier.numbers):
            shards, are = counted(there)
            raise ExistingShardsError(
                f"{shards} of {redacted(self.pattern)} {are} there already: {range_text(self.pattern, there)}",
                hint="overwrite=True replaces the set; or write to another pattern",
            )
        return earlier

    def _left_over(self, earlier: EarlierShards) -> list[int]:
        if self.sole:
            return earlier.unchanged(sorted({*earlier.numbers} - {*self.complete}))
        return earlier.following(self.complete[-1] + 1)

    def _warn_of(self, earlier: EarlierShards) -> None:
        try:
            left = self._left_over(earlier)
        except (OSError, WebDatasetError) as error:
            logger.info("it is not known whether shards are left over: %s", error)
            return
        if left:
            shards, are = counted(left)
            cure = "remove what does not belong to the new one"
            _warn(f"{shards} of an earlier set {are} left over: {range_text(self.pattern, left)}; {cure}")

    def _is_gone(self, number: int) -> bool:
        """Whether a local shard was taken away again, as `post` may do."""
        return self._path(number) is not None and self._file(number) is None

    def _file(self, number: int) -> tuple[int, int] | None:
        """Which file has the name of a local shard."""
        try:
            found = os.stat(self._path(number) or "")
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _path(self, number: int) -> str | None:
        return local_target(rewritten_url(shard_name(self.pattern, number))) if self._looks else None


def _warn(text: str) -> None:
    # mostly from the end of a `with` block: __exit__, its base's, close(), ended(), the function that warns, this one
    warnings.warn(text, ShardWarning, stacklevel=6)
