"""Write a set of numbered shards, and run a command for each complete one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from webdataset.base.redact import redacted
from webdataset.storage.removing import remove
from webdataset.storage.shell.commands import CommandStream
from webdataset.writer import ShardWriter, shard_name


def split_samples(
    samples: Iterable[dict[str, Any]],
    writer: ShardWriter,
    *,
    maxshards: int | None = None,
    write: Callable[[dict[str, Any]], object] | None = None,
) -> int:
    """Write samples until the source ends or `maxshards` shards are full; return the number of samples.

    `write` may be a function that passes samples to the writer in its own way.
    """
    write = writer.write if write is None else write
    if maxshards is not None and maxshards < 1:
        raise ValueError(f"maxshards must be at least 1, got {maxshards}")
    first = writer.shard
    total = 0
    for sample in samples:
        if maxshards is not None and is_full(writer) and writer.shard - first >= maxshards - 1:
            break
        write(sample)
        total += 1
    return total


def is_full(writer: ShardWriter) -> bool:
    """Whether the next sample begins a new shard."""
    return writer.count >= writer.maxcount or writer.size >= writer.maxsize


def post_command(
    command: str, *, delete: bool = False, output: Callable[[bytes], object] | None = None
) -> Callable[[str], None]:
    """Return a function that runs a shell command for a shard; `{}` or `%s` is its name, quoted for the shell.

    {abspath}, {basename}, {dirname}, {base} (without the extension), {ext} and {shard} (the name as given) are parts of
    it. Without any of them the name is added at the end. `delete` removes the shard afterwards.
    """

    def post(name: str) -> None:
        with CommandStream(["bash", "-c", fill_in(command, name)], "rb") as stream:
            while data := stream.read1(1 << 16):
                if output is not None:
                    output(data)
        if delete:
            remove(name)

    return post


def fill_in(command: str, name: str) -> str:
    """Insert the shard's name into the command.

    >>> fill_in("gsutil cp {} gs://bucket/", "a b.tar")
    "gsutil cp 'a b.tar' gs://bucket/"
    >>> fill_in("upload --as {base}.tar", "out/a.tar")
    'upload --as a.tar out/a.tar'
    """
    path = os.path.abspath(name)
    folder, file = os.path.split(path)
    base, ext = os.path.splitext(file)
    parts = {"abspath": path, "basename": file, "dirname": folder, "base": base, "ext": ext, "shard": name}
    result = command
    for part, value in parts.items():
        result = result.replace(f"{{{part}}}", shlex.quote(value))
    named = result.replace("{}", shlex.quote(name)).replace("%s", shlex.quote(name))
    if named == result and not any(f"{{{part}}}" in command for part in ("abspath", "basename", "shard")):
        return f"{named} {shlex.quote(name)}"
    return named


def names_of_set(pattern: str, first: int, end: int) -> str:
    """The shards of a set from one number up to another, as a summary names them.

    >>> names_of_set("a-%02d.tar", 0, 3), names_of_set("a-%02d.tar", 0, 1), names_of_set("a-%02d.tar", 0, 0)
    ('3 shards, a-00.tar to a-02.tar', '1 shard, a-00.tar', 'no shard')
    """
    if end <= first:
        return "no shard"
    if end == first + 1:
        return f"1 shard, {shard_name(pattern, first)}"
    return f"{end - first:,} shards, {shard_name(pattern, first)} to {shard_name(pattern, end - 1)}"


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
