"""AIStore: many objects, or members of shards, with few requests; lists of objects."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .base.logs import Log
from .errors import MissingShardError, ShardError, StorageError
from .storage.ais.batch import BatchItem, BatchStream, batch_item, open_batch, read_singly
from .storage.ais.objects import AisObject
from .tar.reader import read_members

__all__ = ["get_batch", "list_objects"]

BATCH_ITEMS = 1024
BATCH_OPTIONS = ("streaming", "coloc")

_log = Log("webdataset.ais")


def get_batch(
    urls: Iterable[str], *, missing: str = "raise", batch_items: int = BATCH_ITEMS, **options: object
) -> Iterator[tuple[str, bytes | None]]:
    """Yield `(url, data)` for `ais:` urls of objects and of members of shards, in their order.

        get_batch(["ais://bucket/a.tar?archpath=0001.jpg", "ais://bucket/other.bin"])

    With `missing="none"` the data of a missing object is None; otherwise it is an error. What the cluster sends is
    counted and compared with the request. What it leaves out is requested again, each by itself and with patience: an
    object is missing if the cluster says so while it has all its targets. Options: `endpoint`, `token`,
    `patience`, `streaming`, `coloc`.
    """
    if missing not in ("raise", "none"):
        raise ValueError(f'missing must be "raise" or "none", got {missing!r}')
    if batch_items < 1:
        raise ValueError(f"batch_items must be at least 1, got {batch_items}")
    return _batches(map(batch_item, urls), missing == "none", batch_items, options)


def list_objects(
    prefix: str, *, cached: bool = False, partial: bool = False, pagesize: int = 0, **options: Any
) -> Iterator[tuple[str, int]]:
    """Yield url and size of every object whose url begins with this one; `cached`: only what is in the cluster.

    A cluster that has lost a target leaves out what that held. This is an error unless `partial=True`. Options:
    `endpoint`, `token`, `patience`.
    """
    return AisObject(prefix, **options).list(pagesize=pagesize, cached=cached, partial=partial)


def _batches(
    items: Iterator[BatchItem], skip: bool, batch_items: int, options: dict[str, Any]
) -> Iterator[tuple[str, bytes | None]]:
    while batch := list(itertools.islice(items, batch_items)):
        for item, data in zip(batch, _batch(batch, skip, options), strict=True):
            yield item.url, data


def _batch(batch: Sequence[BatchItem], skip: bool, options: dict[str, Any]) -> Iterator[bytes | None]:
    """The items of a batch: as far as one response has them, the next ones singly, then by another response.

    While responses have nothing, twice as many items are read singly each time.
    """
    single = {name: value for name, value in options.items() if name not in BATCH_OPTIONS}
    done = singles = 0
    while done < len(batch):
        before = done
        for found in _together(batch[done:], options):
            yield _singly(batch[done], skip, single) if found is None else found
            done += 1
        singles = 1 if done > before else 2 * singles or 1
        for item in batch[done : done + singles]:
            yield _singly(item, skip, single)
            done += 1


def _together(items: Sequence[BatchItem], options: dict[str, Any]) -> Iterator[bytes | None]:
    """The items in one response, None for those that the cluster did not find; ends early if the response does."""
    try:
        with contextlib.closing(open_batch(items, **options)) as stream:
            yield from _members(stream, items)
    except _MixedUpError:
        raise
    except (StorageError, ShardError) as exn:
        _log.info("%s; what is left of these %d items is asked for again", exn, len(items))


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
