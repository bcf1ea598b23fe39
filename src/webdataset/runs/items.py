"""Items: what a run does once each, mostly one shard to one shard; their names, inputs and outputs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from webdataset.base.redact import redacted
from webdataset.errors import MissingShardError, StorageError, WebDatasetError
from webdataset.gopen import open_ranges
from webdataset.storage.braces import braceexpand
from webdataset.storage.urls import local_path, scheme_of

_ONE_GROUP = re.compile(r"([^{}*?[\]@]*)(\{[^{}]*\})([^{}*?[\]@]*)")
PARALLEL = 32
"""How many objects a store is asked for at a time."""
CHUNK = 1000


class Item(NamedTuple):
    """One unit of work."""

    name: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    size: int | None = None
    """Of the inputs together, in bytes."""
    version: str | None = None
    """What changes when an input does: ETags, or size and time of files."""


class ItemsError(WebDatasetError, ValueError):
    """Items that cannot be told apart, or have no place for their output."""


def shard_items(specs: Sequence[str], output: str) -> Iterator[Item]:
    """Yield an item for each shard of the inputs; `{}` in the output is its name.

    A name is what the braces of an input stand for; if there are other patterns, the name of the file up to its
    first dot.

    >>> list(shard_items(["in-{000..001}.tar"], "out/{}.tar"))[1]
    Item(name='001', inputs=('in-001.tar',), outputs=('out/001.tar',), size=None, version=None)
    >>> [item.outputs for item in shard_items(["a/x.tar", "a/y.tar"], "b/{}.tar")]
    [('b/x.tar',), ('b/y.tar',)]
    """
    if "{}" not in output:
        hint = "write {} where the name of each shard goes: -o 'out-{}.tar'"
        raise ItemsError("each shard needs an output of its own", url=output, hint=hint)
    return (Item(name, (url,), (output.replace("{}", name),)) for name, url in _named(specs))


def _named(specs: Sequence[str]) -> Iterator[tuple[str, str]]:
    found = _ONE_GROUP.fullmatch(specs[0]) if len(specs) == 1 else None
    if found is not None and scheme_of(specs[0]) != "pipe":
        before, group, after = found.groups()
        yield from ((name, f"{before}{name}{after}") for name in braceexpand(group))
        return
    from webdataset.shardlists import expand_urls  # which takes longer to import than a task to start

    for url in (url for spec in specs for url in expand_urls(spec)):
        if url == "-" or scheme_of(url) == "pipe":
            raise ItemsError("this input has no name", url=url, hint="name shards: files, URLs, braces or globs")
        yield stem(url), url


def stem(url: str) -> str:
    """Return the name of a shard without folders and extensions.

    >>> stem("s3://bucket/train-000.tar.gz?x=1")
    'train-000'
    """
    path = url if local_path(url) is not None else url.partition("?")[0].partition("#")[0]
    return path.rstrip("/").rpartition("/")[2].partition(".")[0]


def checked(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items; two with one name or one output, or an output that is an input, are an error."""
    outputs: set[int] = set()  # of hashes, which take a tenth of the memory of urls
    names: set[int] = set()
    for chunk in _chunks(items):
        name = _repeated([item.name for item in chunk], names)
        if name is not None:
            hint = "names must differ: rename the shards, or use one pattern with braces"
            raise ItemsError(f"two items have the name {name!r}", hint=hint)
        url = _repeated([url for item in chunk for url in item.outputs], outputs)
        if url is not None:
            raise ItemsError("two items have one output", url=url, hint="write {} where the name of each shard goes")
        url = next((url for item in chunk for url in item.outputs if url in item.inputs), None)
        if url is not None:
            raise ItemsError("a shard cannot be replaced by its own result", url=url, hint="write elsewhere")
        yield from chunk


def _repeated(texts: Sequence[str], seen: set[int]) -> str | None:
    """Return a text that is there twice, or was seen before; if there is none, all of them have been seen."""
    hashes = set(map(hash, texts))
    if len(hashes) == len(texts) and seen.isdisjoint(hashes):
        seen |= hashes
        return None
    return next((text for number, text in enumerate(texts) if hash(text) in seen or text in texts[:number]), texts[0])


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


def with_versions(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items with the sizes and versions of their inputs; a missing input is an error."""
    for chunk in _chunks(items):
        if all(":" not in url for item in chunk for url in item.inputs):
            yield from map(_with_file_version, chunk)
        else:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(PARALLEL, "webdataset-versions") as pool:
                yield from pool.map(_with_version, chunk)


def _with_file_version(item: Item) -> Item:
    """The same for files, of which there may be a million."""
    if len(item.inputs) != 1:
        return _with_version(item)
    name, inputs, outputs, _, _ = item
    found = _stat(inputs[0])
    size = found.st_size
    return Item(name, inputs, outputs, size, f"{size}-{found.st_mtime_ns}")


def _with_version(item: Item) -> Item:
    if not item.inputs:
        return item
    facts = [size_and_version(url) for url in item.inputs]
    sizes = [size for size, _ in facts]
    return item._replace(size=sum(filter(None, sizes)), version=" ".join(version for _, version in facts))


def size_and_version(url: str) -> tuple[int, str]:
    """Return the size of an object and what changes when it does.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     size_and_version(file.name)[0]
    0
    """
    path = local_path(url)
    if path is not None:
        found = _stat(path)
        return found.st_size, f"{found.st_size}-{found.st_mtime_ns}"
    if scheme_of(url) == "pipe":
        return 0, ""
    with open_ranges(url) as reader:
        return reader.size or 0, reader.version or str(reader.size)


def _stat(path: str) -> os.stat_result:
    try:
        found = os.stat(path)
    except OSError as error:
        raise MissingShardError(f"an input is not there: {error.strerror}", url=path) from None
    if stat.S_ISDIR(found.st_mode):
        raise StorageError("an input is a folder, not a shard", url=path, hint=f"{redacted(path)}/*.tar is its shards")
    return found


def output_sizes(outputs: Sequence[str]) -> dict[str, int]:
    """Return those of these urls that are there, and their sizes; -1 if that cannot be known."""
    from concurrent.futures import ThreadPoolExecutor

    if all(local_path(url) is not None for url in outputs):
        return {url: size for url in outputs if (size := _size_if_there(url)) is not None}
    with ThreadPoolExecutor(PARALLEL, "webdataset-outputs") as pool:
        sizes = pool.map(_size_if_there, outputs)
        return {url: size for url, size in zip(outputs, sizes, strict=True) if size is not None}


def _size_if_there(url: str) -> int | None:
    path = local_path(url)
    try:
        if path is not None:
            return os.stat(path).st_size
        if scheme_of(url) == "pipe":
            return -1
        with open_ranges(url) as reader:
            return -1 if reader.size is None else reader.size
    except FileNotFoundError:
        return None
