"""Items: what a run does once each, mostly one shard to one shard; their names, inputs and outputs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, takewhile
from typing import NamedTuple

from webdataset.base.redact import redacted
from webdataset.errors import MissingShardError, StorageError, WebDatasetError
from webdataset.gopen import open_ranges
from webdataset.storage.braces import braceexpand
from webdataset.storage.stores.lookup import is_stored, listed_versions
from webdataset.storage.urls import local_path, scheme_of, substituted, with_home

_ONE_GROUP = re.compile(r"([^{}*?[\]@]*)(\{[^{}]*\})([^{}*?[\]@]*)")
_EXTENSIONS = re.compile(r"(?<!^)(\.tar(\.\w+)?|\.\w+)$")
PARALLEL = 32
"""How many objects a store is asked for at a time."""
CHUNK = 1000
FEW, MOST_OTHERS = 4, 3
"""Objects for which a folder is listed, and how many others there may be for each."""


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

    A name is what the braces of an input stand for; if there are other patterns, that of the file without extensions,
    after the folders in which shards differ. It is the same whatever other shards a pattern matches.

    >>> list(shard_items(["in-{000..001}.tar"], "out/{}.tar"))[1]
    Item(name='001', inputs=('in-001.tar',), outputs=('out/001.tar',), size=None, version=None)
    >>> [item.outputs for item in shard_items(["a/x.tar", "a/y.tar"], "b/{}.tar")]
    [('b/x.tar',), ('b/y.tar',)]
    >>> [item.name for item in shard_items(["data/{a,b}/v1.0-{0..1}.tar"], "{}.tar")]
    ['a/v1.0-0', 'a/v1.0-1', 'b/v1.0-0', 'b/v1.0-1']
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

    folder = _common_folder(specs)
    for url in (url for spec in specs for url in expand_urls(spec)):
        if url == "-" or scheme_of(url) == "pipe":
            raise ItemsError("this input has no name", url=url, hint="name shards: files, URLs, braces or globs")
        yield f"{_folders_below(folder, url)}{stem(url)}", url


def _common_folder(specs: Sequence[str]) -> str:
    """Return the folder, up to its slash, that is written out in all of these patterns."""
    written = [re.split(r"[{*?[]", with_home(substituted(part)))[0] for spec in specs for part in spec.split("::")]
    folders = [text.split("/")[:-1] for text in written]
    same = takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "".join(f"{names[0]}/" for names in same)


def _folders_below(folder: str, url: str) -> str:
    path = _path(url)
    return path[len(folder) : path.rfind("/") + 1] if path.startswith(folder) else ""


def stem(url: str) -> str:
    """Return the name of a shard without folders and extensions.

    >>> stem("s3://bucket/train-000.tar.gz?x=1"), stem("ds-v1.0-000.tar"), stem("a.json")
    ('train-000', 'ds-v1.0-000', 'a')
    """
    return _EXTENSIONS.sub("", _path(url).rpartition("/")[2])


def _path(url: str) -> str:
    """Return a url without its query."""
    return (url if local_path(url) is not None else url.partition("?")[0].partition("#")[0]).rstrip("/")


def with_short_names(items: Sequence[Item]) -> list[Item]:
    """Rename items, whose names are urls, to what tells them apart from others beside the first one.

    A name depends on no other item but the first one's folder, so that an item keeps its records when some are added.

    >>> [item.name for item in with_short_names([Item("a/x.tar"), Item("a/x.json"), Item("b/x.tar")])]
    ['x', 'x.json', 'b/x']
    """
    folder = items[0].name.rpartition("/")[0] + "/" if items and "/" in items[0].name else ""
    return [item._replace(name=item.name.removeprefix(folder).removesuffix(".tar")) for item in items]


def absolute(item: Item) -> Item:
    """Return an item whose local names mean the same in every process, wherever it runs.

    >>> absolute(Item("a", ("s3://b/a.tar",), ("a.tar",))).outputs == (os.path.abspath("a.tar"),)
    True
    """
    return item._replace(inputs=tuple(map(_absolute, item.inputs)), outputs=tuple(map(_absolute, item.outputs)))


def _absolute(url: str) -> str:
    path = local_path(url)
    return url if path is None else os.path.abspath(path)


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
            known = _listed_versions([url for item in chunk for url in item.inputs])[0]
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(PARALLEL, "webdataset-versions") as pool:
                yield from pool.map(partial(_with_version, known=known), chunk)


def _with_file_version(item: Item) -> Item:
    """The same for files, of which there may be a million."""
    if len(item.inputs) != 1:
        return _with_version(item, {})
    name, inputs, outputs, _, _ = item
    found = _stat(inputs[0])
    size = found.st_size
    return Item(name, inputs, outputs, size, file_version(found))


def _with_version(item: Item, known: Mapping[str, tuple[int, str]]) -> Item:
    if not item.inputs:
        return item
    facts = [known.get(url) or size_and_version(url) for url in item.inputs]
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
        return found.st_size, file_version(found)
    if scheme_of(url) == "pipe":
        return 0, "unknown"
    with open_ranges(url) as reader:
        return reader.size or 0, plain_version(reader.version or str(reader.size))


def plain_version(version: str) -> str:
    """Return an ETag without quotes, which some lists and answers leave out."""
    return version.strip('"')


def _listed_versions(urls: Sequence[str]) -> tuple[dict[str, tuple[int, str]], set[str]]:
    """Return sizes and versions of objects, from lists of their folders, and which urls these lists decide about.

    A list has a thousand objects, and costs as much as asking for one.
    """
    groups: dict[str, list[str]] = {}
    for url in urls:
        if is_stored(url):
            groups.setdefault(url.rpartition("/")[0], []).append(url)
    known: dict[str, tuple[int, str]] = {}
    decided: set[str] = set()
    for group in groups.values():
        listed = None
        if len(group) >= FEW:
            with suppress(StorageError):  # who may not list may ask for each
                prefix = os.path.commonprefix(group)  # noqa: RUF071 - of names, not of folders
                listed = listed_versions(prefix, MOST_OTHERS * len(group) + CHUNK)
        if listed is not None:
            found, is_all = listed
            known |= {url: (found[url][0], plain_version(found[url][1])) for url in group if url in found}
            decided.update(group if is_all else known)
    return known, decided


def _stat(path: str) -> os.stat_result:
    try:
        found = os.stat(path)
    except OSError as error:
        raise MissingShardError(f"an input is not there: {error.strerror}", url=path) from None
    if stat.S_ISDIR(found.st_mode):
        raise StorageError("an input is a folder, not a shard", url=path, hint=f"{redacted(path)}/*.tar is its shards")
    return found


def output_versions(outputs: Sequence[str]) -> dict[str, str]:
    """Return those of these urls that are there, and what changes when they do."""
    from concurrent.futures import ThreadPoolExecutor

    if all(local_path(url) is not None for url in outputs):
        return {url: version for url in outputs if (version := _version_if_there(url))}
    known, decided = _listed_versions(outputs)
    others = [url for url in outputs if url not in decided]
    with ThreadPoolExecutor(PARALLEL, "webdataset-outputs") as pool:
        versions = pool.map(_version_if_there, others)
        found = {url: version for url, version in zip(others, versions, strict=True) if version}
    return found | {url: version for url, (_, version) in known.items()}


def _version_if_there(url: str) -> str:
    path = local_path(url)
    try:
        return size_and_version(url)[1] if path is None else file_version(os.stat(path))
    except FileNotFoundError:
        return ""


def file_version(found: os.stat_result) -> str:
    """Return what changes when a file does; with its inode, if the disk drops parts of seconds."""
    version = f"{found.st_size}-{found.st_mtime_ns}"
    return version if found.st_mtime_ns % 10**9 else f"{version}-{found.st_ino}"
