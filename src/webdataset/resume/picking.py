"""Single samples of shards that were read before, where their places are known or quickly found.

A shuffle holds a few samples of each of many shards. To take it up again these are read by ranges of bytes, if there is
an index of the shard, or if it is a plain file whose headers tell the places. Else the shard is read as it was before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import webdataset.tariterators as tariterators  # noqa: PLR0402 - needs no lock of names
from webdataset.base.reports import Report
from webdataset.errors import WebDatasetError
from webdataset.indices.files import find_index, make_index
from webdataset.indices.rules import ReadingRules
from webdataset.storage.urls import local_path
from webdataset.tar.index import ShardIndex

LARGE = 32 << 10
"""Bytes of samples from which on it is quicker to look for their headers than to read all of them."""


def picked(
    shards: Sequence[Any], wanted: Sequence[int], count: int, reader: object, report: Report
) -> list[Any] | None:
    """The samples with these numbers of a shard that gave `count` of them; None if it must be read as a whole."""
    options = reader.by_number() if hasattr(reader, "by_number") else None
    opened_by_us = tariterators.url_opener.__module__ == tariterators.__name__  # programs replace it
    if options is None or len(shards) != 1 or not opened_by_us or 2 * len(wanted) > count:
        return None
    url = shards[0].get("url") if isinstance(shards[0], dict) else None
    if not isinstance(url, str):
        return None
    try:
        index = _index(url, options, count, concatenated=options.pop("concatenated"))
        if index is None or index.samples != count:  # some samples were left out: numbers do not say which
            return None
        return _read(url, index, wanted, options, report)
    except (WebDatasetError, OSError):
        return None  # reading as before meets the same error, with the handler


def _index(url: str, options: dict[str, Any], count: int, *, concatenated: bool) -> ShardIndex | None:
    rules = ReadingRules.of(options["keys"], options["storage_options"], concatenated=concatenated)
    index = find_index(url, rules)
    path = local_path(url)
    if index is not None or path is None or os.path.getsize(path) < LARGE * count:
        return index
    return make_index(url, rules)


def _read(
    url: str, index: ShardIndex, wanted: Sequence[int], options: dict[str, Any], report: Report
) -> list[Any] | None:
    from webdataset.indices.reading import Samples

    with closing(Samples(_OneShard(url, index), report=report, **options)) as samples:
        found = samples.read(0, wanted)
    return None if None in found else found


class _OneShard:
    """A shard with its index, as a catalogue."""

    def __init__(self, url: str, index: ShardIndex) -> None:
        self.urls = [url]
        self._index = index

    def index(self, number: int) -> ShardIndex:  # noqa: ARG002 - there is one only
        return self._index
