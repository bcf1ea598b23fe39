"""Random reads from AIStore: many objects, or members of shards, with few requests."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .errors import MissingShardError, ShardError, StorageError
from .settings import settings
from .storage.ais_batch import MISSING, BatchStream, Item, item_of, open_batch
from .tar.reader import read_members

__all__ = ["get_batch"]

BATCH_ITEMS = 1024
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


def get_batch(
    urls: Iterable[str], *, missing: str = "raise", batch_items: int = BATCH_ITEMS, **options: Any
) -> Iterator[tuple[str, bytes | None]]:
    """Yield `(url, data)` for `ais:` urls of objects and of members of shards, in their order.

        get_batch(["ais://bucket/a.tar?archpath=0001.jpg", "ais://bucket/other.bin"])

    With `missing="none"` the data of what is not there is None; otherwise it is an error. What the cluster sends is
    counted, and compared with what was asked for; the rest of a batch that breaks is asked for again. Options:
    `endpoint`, `token`, `patience`, `streaming`, `coloc`.
    """
    if missing not in ("raise", "none"):
        raise ValueError(f'missing must be "raise" or "none", got {missing!r}')
    if batch_items < 1:
        raise ValueError(f"batch_items must be at least 1, got {batch_items}")
    return _batches(map(item_of, urls), missing == "none", batch_items, options)


def _batches(
    items: Iterator[Item], skip: bool, batch_items: int, options: dict[str, Any]
) -> Iterator[tuple[str, bytes | None]]:
    while batch := list(itertools.islice(items, batch_items)):
        yield from _whole(batch, skip, options)


def _whole(batch: Sequence[Item], skip: bool, options: dict[str, Any]) -> Iterator[tuple[str, bytes | None]]:
    """All of a batch; what is left of one that broke is asked for again, for as long as the patience lasts."""
    patience = options.get("patience")
    waiting = _Waiting(settings.ais_patience if patience is None else patience)
    done = 0
    while done < len(batch):
        before, failure = done, None
        stream = open_batch(batch[done:], skip_missing=skip, **options)
        try:
            with contextlib.closing(stream):
                for pair in _members(stream, batch[done:], skip):
                    done += 1
                    yield pair
        except (MissingShardError, _MixedUpError):
            raise
        except (StorageError, ShardError) as exn:
            failure = exn
        if done == before and failure is None and not skip:
            # what is missing at the end is left out; here it is the first, too, so nothing else can be the reason
            raise _missing(batch[done])
        if done < len(batch):
            short = StorageError(f"the batch ends after {done} of {len(batch)} items", url=batch[done].url)
            waiting.after(failure or short, progress=done > before)


def _members(stream: BatchStream, items: Sequence[Item], skip: bool) -> Iterator[tuple[str, bytes | None]]:
    """What one answer holds; each member must be the one that stands at its place among the items."""
    left = iter(items)
    for members in read_members(stream, url=stream.url):
        for name, _, data in members:
            item = next(left, None)
            if item is None:
                raise _MixedUpError(f"the cluster sent more than the {len(items)} items", url=stream.url)
            if name.startswith(MISSING) and not data and item.is_called(name.removeprefix(MISSING)):
                if not skip:
                    raise _missing(item)
                yield item.url, None
            elif item.is_called(name):
                yield item.url, data
            else:
                raise _MixedUpError(f"the cluster sent {name!r} in the place of {item.member!r}", url=item.url)


class _MixedUpError(StorageError):
    """The answer is not to what was asked: asking again would not make it more trustworthy."""


class _Waiting:
    """Pauses that grow while there is no progress, until the patience is used up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since = time.monotonic()
        self._pause = FIRST_PAUSE

    def after(self, error: Exception, *, progress: bool) -> None:
        if progress:
            self._since, self._pause = time.monotonic(), FIRST_PAUSE
        elif time.monotonic() - self._since + self._pause > self._seconds:
            raise error
        else:
            time.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _missing(item: Item) -> MissingShardError:
    return MissingShardError(
        "not in the cluster", url=item.url, hint="a batch has only what lies in the cluster already"
    )
