"""AIStore: many objects, or members of shards, with few requests; lists of objects."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .base.logs import Log
from .errors import MissingShardError, ShardError, StorageError
from .storage.ais.batch import BatchItem, BatchStream, batch_item, open_batch, read_singly
from .storage.ais.objects import AisObject
from .storage.http.connect import ConnectionOptions
from .storage.options import OPTIONS, StorageOptions
from .tar.reader import read_members

__all__ = ["get_batch", "list_objects"]

BATCH_ITEMS = 1024

_log = Log("webdataset.ais")


def get_batch(
    urls: Iterable[str],
    *,
    missing: str = "raise",
    batch_items: int = BATCH_ITEMS,
    streaming: bool = True,
    coloc: int = 0,
    **options: object,
) -> Iterator[tuple[str, bytes | None]]:
    """Yield `(url, data)` for `ais:` urls of objects and of members of shards, in their order.

        get_batch(["ais://bucket/a.tar?archpath=0001.jpg", "ais://bucket/other.bin"])

    What the cluster sends is counted and compared with the request; its checksums are not. What it leaves out is read
    singly, with patience: an object is missing if a settled cluster says so.

    Args:
        urls: what to read
        missing: `"raise"`, or `"none"` for None in the place of the data of a missing object
        batch_items: the most items of one request
        streaming: whether the cluster sends while it collects; if not, it completes each response in its memory first
        coloc: 1 if the items lie on few targets, 2 if in few shards, too, for the cluster to make use of
        options: the storage options, such as `endpoint`, `token`, `patience` and `timeout`; a response that is silent
            for that long (5 s if it is not given) is given up, and what it lacks is read singly
    """
    if missing not in ("raise", "none"):
        raise ValueError(f'missing must be "raise" or "none", got {missing!r}')
    if batch_items < 1:
        raise ValueError(f"batch_items must be at least 1, got {batch_items}")
    connection = _connection(options)
    together = functools.partial(open_batch, streaming=streaming, coloc=coloc, **connection)
    singly = functools.partial(_singly, skip=missing == "none", options=connection)
    return _batches(map(batch_item, urls), batch_items, together, singly)


def list_objects(
    prefix: str, *, cached: bool = False, partial: bool = False, pagesize: int = 0, **options: object
) -> Iterator[tuple[str, int]]:
    """Yield url and size of every object whose url begins with this one.

    A cluster that has lost a target, or is moving objects to one that joined, leaves out what is out of its reach: then
    each page is asked for until the patience is used up.

    Args:
        prefix: the url of a bucket, or the beginning of the urls of objects
        cached: whether only what is in the cluster is wanted, of a bucket of another store
        partial: whether a list is welcome that may not be complete
        pagesize: the most names of one response; 0 leaves it to the cluster
        options: the storage options, such as `endpoint`, `token` and `patience`
    """
    return AisObject(prefix, **_connection(options)).list(pagesize=pagesize, cached=cached, partial=partial)


def _connection(options: dict[str, object]) -> dict[str, Any]:
    """The arguments of a connection: those of gopen as they are, and the storage options."""
    fields = {field.name for field in dataclasses.fields(ConnectionOptions)} - OPTIONS.keys()
    own = {name: value for name, value in options.items() if name in fields}
    named = StorageOptions({name: value for name, value in options.items() if name not in fields}).for_url("ais:")
    named.pop("connections", None)  # of one object: here each request has its own
    return named | own


def _batches(
    items: Iterator[BatchItem],
    batch_items: int,
    together: Callable[[Sequence[BatchItem]], BatchStream],
    singly: Callable[[BatchItem], bytes | None],
) -> Iterator[tuple[str, bytes | None]]:
    """The items of a batch as far as one response has them, the rest singly."""
    while batch := list(itertools.islice(items, batch_items)):
        left = iter(batch)
        for data in _together(batch, together):
            item = next(left)
            yield item.url, singly(item) if data is None else data
        for item in left:
            yield item.url, singly(item)


def _together(
    items: Sequence[BatchItem], together: Callable[[Sequence[BatchItem]], BatchStream]
) -> Iterator[bytes | None]:
    """The items in one response, None for those that the cluster did not find; ends early if the response does."""
    try:
        with contextlib.closing(together(items)) as stream:
            yield from _members(stream, items)
    except _MixedUpError:
        raise
    except (StorageError, ShardError) as exn:
        _log.info("%s; what is left of these %d items is read singly", exn, len(items))


def _members(stream: BatchStream, items: Sequence[BatchItem]) -> Iterator[bytes | None]:
    """The members of the archive, each compared with the item at its position."""
    left = iter(items)
    for members in read_members(stream, url=stream.url):
        for name, _, data in members:
            item = next(left, None)
            if item is None:
                raise _MixedUpError(f"the cluster sent more than the {len(items)} items", url=stream.url)
            if item.is_called(name):
                yield data
            elif item.is_missing(name) and not data:
                yield None
            else:
                raise _MixedUpError(f"the cluster sent {name!r} in the place of {item.member!r}", url=item.url)


def _singly(item: BatchItem, skip: bool, options: dict[str, Any]) -> bytes | None:
    try:
        return read_singly(item, **options)
    except MissingShardError:
        if skip:
            return None
        raise


class _MixedUpError(StorageError):
    """The response is not to the request: another one would not be more trustworthy."""
