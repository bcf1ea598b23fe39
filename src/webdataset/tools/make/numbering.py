"""Write a set of numbered shards that replaces the existing one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webdataset.base.redact import redacted
from webdataset.writer import ShardWriter


def set_writer(pattern: str, *, inputs: Iterable[str] = (), **options: Any) -> ShardWriter:
    """Return the only ShardWriter of a pattern: shards with a higher number than its last one are leftovers.

    None of the `inputs` may be a shard of the pattern, as it would be replaced while being read.
    """
    writer = ShardWriter(pattern, **options)
    writer.overwriting.sole = True
    earlier = writer.overwriting.earlier
    if earlier is not None and (read := earlier.among(inputs)):
        what = redacted(read[0]) if len(read) == 1 else f"{redacted(read[0])} and {len(read) - 1} more inputs"
        raise ValueError(f"{what} would be replaced while being read; write to another pattern")
    return writer
