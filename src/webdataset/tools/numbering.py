"""The numbered shards that a command writes: the whole set is its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webdataset.redact import redacted
from webdataset.shardsets import EarlierShards
from webdataset.writer import ShardWriter


class SetWriter(ShardWriter):
    """A ShardWriter that is the only one of its pattern: left over is whatever has a higher number than its last shard.

    What is read while it is replaced would be lost, so none of the `inputs` may be a shard of the pattern.
    """

    def __init__(self, pattern: str, *, inputs: Iterable[str] = (), **options: Any) -> None:
        super().__init__(pattern, **options)
        if self._earlier is not None and (read := self._earlier.among(inputs)):
            what = redacted(read[0]) if len(read) == 1 else f"{redacted(read[0])} and {len(read) - 1} more inputs"
            raise ValueError(f"{what} would be replaced while being read; write to another pattern")

    def _left_over(self, earlier: EarlierShards) -> list[int]:
        return earlier.unchanged(number for number in earlier.numbers if number > self._complete[-1])
