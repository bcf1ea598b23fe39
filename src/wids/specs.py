"""Lists of shards, given by a program or in a file in the format `wids-shard-index-v1`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from webdataset.errors import ShardError
from webdataset.gopen import gopen
from webdataset.indices.catalogue import KIND, Shard, shard_of_row
from webdataset.storage.options import StorageOptions
from webdataset.storage.streams import MOST_LIST_BYTES, read_up_to
from webdataset.storage.urls import as_url

MAX_DEPTH = 8


class ShardSpecs:
    """The shards of a dataset: `rows` as they were given, `shards` with their urls in full."""

    def __init__(
        self, rows: list[dict[str, Any]], shards: list[Shard], name: str | None = None, *, concatenated: bool = False
    ) -> None:
        self.rows = rows
        self.shards = shards
        self.name = name
        self.concatenated = concatenated


def read_specs(
    source: Any,
    *,
    base: str | None = None,
    dataset_name: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ShardSpecs:
    """The shards in a list of `{"url", "nsamples"}`, or in a JSON file, which may be on a server.

    >>> read_specs([{"url": "a.tar", "nsamples": 3}], base="/data").shards
    [Shard(url='/data/a.tar', samples=3, size=-1, version=None)]
    """
    if isinstance(source, (str, os.PathLike)):
        return _Reading(StorageOptions.of(storage_options)).from_file(as_url(source), base, dataset_name, 0)
    if isinstance(source, dict):
        return _Reading(StorageOptions.of(storage_options)).from_dict(source, "", base, dataset_name, 0)
    rows = [dict(row) for row in source]
    return ShardSpecs(rows, _shards(rows, "", base), dataset_name)


def load_json(url: str, storage_options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The content of an index file."""
    with gopen(url, storage_options=storage_options) as stream:
        data = read_up_to(MOST_LIST_BYTES, stream, url)
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ShardError(f"this is no {KIND}: {error}", url=url) from None
    if not isinstance(found, dict) or found.get("__kind__", KIND) != KIND:
        raise ShardError(f"this is no {KIND}", url=url)
    return found


class _Reading:
    """Lists that may name other lists, all of them read with the same options."""

    def __init__(self, options: StorageOptions) -> None:
        self._options = options

    def from_file(self, url: str, base: str | None, wanted: str | None, depth: int) -> ShardSpecs:
        if depth > MAX_DEPTH:
            raise ShardError("lists of shards name each other without end", url=url)
        found = load_json(url, self._options)
        self._options = self._options.for_list(url)  # what it names is its word, not the user's
        return self.from_dict(found, url, base, wanted, depth)

    def from_dict(
        self, found: dict[str, Any], origin: str, base: str | None, wanted: str | None, depth: int
    ) -> ShardSpecs:
        base = base if base is not None else found.get("base") or None
        rows: list[dict[str, Any]] = list(found.get("shardlist") or [])
        shards = _shards(rows, origin, base)
        parts = found.get("datasets") or []
        named = [part for part in parts if part.get("name") == wanted]
        for part in named if wanted is not None and named else parts:
            more = self._part(part, origin, base, depth)
            rows, shards = rows + more.rows, shards + more.shards
        if not shards:
            raise ShardError("the list names no shards", url=origin or None)
        name = wanted if wanted is not None else found.get("name")
        return ShardSpecs(rows, shards, name, concatenated=found.get("concatenated") is True)

    def _part(self, part: dict[str, Any], origin: str, base: str | None, depth: int) -> ShardSpecs:
        if "shardlist" in part:
            return self.from_dict(part, origin, part.get("base") or base, None, depth + 1)
        try:
            source = shard_of_row({"url": part["source_url"], "nsamples": 0}, origin, base).url
        except KeyError:
            raise ShardError("a dataset of the list has neither shardlist nor source_url", url=origin or None) from None
        return self.from_file(source, None, None, depth + 1)


def _shards(rows: Iterable[dict[str, Any]], origin: str, base: str | None) -> list[Shard]:
    try:
        return [shard_of_row(row, origin, base) for row in rows]
    except (KeyError, TypeError) as error:
        raise ShardError(f"each shard needs url and nsamples: {error!r}", url=origin or None) from None
