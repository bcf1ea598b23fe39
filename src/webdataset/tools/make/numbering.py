"""The numbered shards that a command writes: the whole set is its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webdataset.base.redact import redacted
from webdataset.writer import ShardWriter


def set_writer(pattern: str, *, inputs: Iterable[str] = (), **options: Any) -> ShardWriter:
    """A ShardWriter that is the only one of its pattern: left over is whatever has a higher number than its last shard.

    What is read while it is replaced would be lost, so none of the `inputs` may be a shard of the pattern.
    """
    writer = ShardWriter(pattern, **options)
    writer.overwriting.sole = True
    earlier = writer.overwriting.earlier
    if earlier is not None and (read := earlier.among(inputs)):
        what = redacted(read[0]) if len(read) == 1 else f"{redacted(read[0])} and {len(read) - 1} more inputs"
        raise ValueError(f"{what} would be replaced while being read; write to another pattern")
    return writer
