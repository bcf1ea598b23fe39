"""Indices of shards that exist: where each field of each sample is, so that one can be read on its own.

The format is DALI's, version 1.2: a text file beside the shard, one line per sample.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from webdataset.errors import ShardError
from webdataset.outputs import index_entry, index_path
from webdataset.storage.local import open_local
from webdataset.storage.publish import AtomicFile
from webdataset.storage.urls import local_path
from webdataset.tar.scan import Entry, scan_members
from webdataset.tariterators import base_plus_ext

from .listing import RESERVED


def write_index(shard: str, output: str | None = None) -> int:
    """Write the index of a local, uncompressed shard, `a.idx` beside `a.tar` unless told otherwise; tells the samples.

    Only headers are read. The index appears when it is complete, and replaces an older one.

    >>> import pathlib, tempfile
    >>> from webdataset.writer import TarWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/a.tar") as sink:
    ...         size = sink.write({"__key__": "x", "cls": 3, "txt": "hello"})
    ...     write_index(f"{folder}/a.tar"), pathlib.Path(folder, "a.idx").read_text()
    (1, 'v1.2 1\\ncls 512 1 x.cls txt 1536 5 x.txt\\n')
    """
    path, lines = _index_of(shard)
    file = AtomicFile(output or index_path(path))
    try:
        file.write(_text(lines))
        file.publish()
    except BaseException:
        file.abort()
        raise
    return len(lines)


def index_differs(shard: str) -> bool:
    """Is the index beside the shard missing, or another one than it should be?"""
    path, lines = _index_of(shard)
    try:
        with open(index_path(path), "rb") as file:
            return file.read() != _text(lines)
    except FileNotFoundError:
        return True


def _index_of(shard: str) -> tuple[str, list[str]]:
    path = local_path(shard)
    if path is None:
        raise ValueError(f"{shard!r} is not a local file; copy it first: wl cp {shard} FOLDER/")
    with open_local(path) as stream:
        return path, [" ".join(places) for places in _samples(scan_members(stream, url=path), path)]


def _text(lines: list[str]) -> bytes:
    return "\n".join([f"v1.2 {len(lines)}", *lines, ""]).encode("utf-8", "surrogateescape")


def _samples(entries: Iterator[Entry], path: str) -> Iterator[list[str]]:
    key, places = "", list[str]()
    for entry in entries:
        prefix, extension = base_plus_ext(entry.name)
        reserved = RESERVED.match(entry.name) or (extension or "").startswith("__")
        if not entry.is_regular or not prefix or extension is None or reserved:
            continue
        if entry.type != "0" or any(char.isspace() for char in entry.name):
            what = "a sparse file" if entry.type != "0" else "a name with spaces"
            raise ShardError(f"an index cannot hold {what}", url=path, offset=entry.offset, member=entry.name)
        if prefix != key and places:
            yield places
            places = []
        key = prefix
        places.append(index_entry(os.fsencode(entry.name), entry.data_offset, entry.size))
    if places:
        yield places
