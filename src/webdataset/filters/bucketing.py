"""Batches of samples of similar length, so that little is padded."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from webdataset.base.stages import pipelinefilter
from webdataset.handlers import Handler, close, handled, reraise_exception

from .batches import Collation, default_collation_fn
from .mistakes import OptionError

DEFAULT_AMONG = 8192


@pipelinefilter(
    kind="buckets", eager=True, reason="bucketed() holds samples of several lengths; exact=True makes it possible"
)
def bucketed(
    data: Iterable[Any],
    key: str | Callable[[Any], float],
    boundaries: Iterable[float] | None = None,
    *,
    batchsize: int = 16,
    max_tokens: float | None = None,
    among: int = DEFAULT_AMONG,
    scale: float = 1.0,
    lengths: str | None = None,  # noqa: ARG001 - for exact epochs
    collation_fn: Collation | None = default_collation_fn,
    handler: Handler = reraise_exception,
) -> Iterator[Any]:
    """Batches of samples of similar length: of one bucket between `boundaries`, or of at most `max_tokens`.

    `key` names the field whose length counts, or is a function of the sample; `scale` divides it. Up to `among`
    samples wait for others of their length. With `max_tokens` a batch holds as many samples as fit, its longest times
    their number being at most that.

    In exact epochs all ranks take the same bucket in the same step. There the key is the name of a field, whose bytes
    are known from the index; or `lengths` is a name under which lengths are kept that a function gives, or that a
    decoded field has: all data are read for them once, before the first epoch.

    Args:
        key: the field, or a function of the sample
        boundaries: lengths at which a new bucket begins
        batchsize: samples in a batch, with `boundaries`
        max_tokens: the size of a batch, padding included
        among: how many samples may wait
        scale: what lengths are divided by
        lengths: in exact epochs, the name under which measured lengths are kept
        collation_fn: a function that makes a batch of a list of samples; None leaves the list
        handler: what to do with an error: one of the handlers, such as `warn_and_continue`

    >>> words = [{"txt": "a" * n} for n in (1, 9, 2, 8, 3)]
    >>> [[len(s["txt"]) for s in batch] for batch in bucketed("txt", [5], batchsize=2, collation_fn=None)(words)]
    [[1, 2], [9, 8], [3]]
    >>> [[len(s["txt"]) for s in batch] for batch in bucketed("txt", max_tokens=9, collation_fn=None)(words)]
    [[1, 2, 3], [8], [9]]
    """
    length = _length(key, scale)
    if boundaries is None and max_tokens is None:
        raise OptionError("bucketed() needs boundaries= of lengths, or max_tokens=")
    if batchsize < 1 or among < 1:
        raise OptionError(f"batchsize= and among= must be at least 1, got {batchsize} and {among}")
    if max_tokens is None:
        lists = _by_boundaries(iter(data), length, sorted(boundaries or ()), batchsize, among)
    else:
        lists = _by_tokens(iter(data), length, max_tokens, among)
    return lists if collation_fn is None else handled(lists, collation_fn, handler)


def _length(key: str | Callable[[Any], float], scale: float) -> Callable[[Any], float]:
    if callable(key):
        return key if scale == 1 else lambda sample: key(sample) / scale
    if scale <= 0:
        raise OptionError(f"scale must be above 0, got {scale}")
    return lambda sample: len(sample[key]) / scale


def _by_boundaries(
    source: Iterator[Any], length: Callable[[Any], float], borders: list[float], size: int, among: int
) -> Iterator[list[Any]]:
    buckets: list[list[Any]] = [[] for _ in range(len(borders) + 1)]
    waiting = 0
    try:
        for sample in source:
            bucket = buckets[bisect_right(borders, length(sample))]
            bucket.append(sample)
            waiting += 1
            if len(bucket) >= size or waiting >= among:
                chosen = bucket if len(bucket) >= size else max(buckets, key=len)
                waiting -= len(chosen)
                yield chosen[:]
                chosen.clear()
        left = [sample for bucket in buckets for sample in bucket]
        for start in range(0, len(left), size):
            yield left[start : start + size]
    finally:
        close(source)


def _by_tokens(source: Iterator[Any], length: Callable[[Any], float], limit: float, among: int) -> Iterator[list[Any]]:
    waiting: list[tuple[float, Any]] = []
    try:
        for sample in source:
            waiting.append((length(sample), sample))
            if len(waiting) >= among:
                yield from _fitting(waiting, limit)
                waiting = []
        yield from _fitting(waiting, limit)
    finally:
        close(source)


def _fitting(waiting: list[tuple[float, Any]], limit: float) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for size, sample in sorted(waiting, key=lambda pair: pair[0]):
        if batch and size * (len(batch) + 1) > limit:
            yield batch
            batch = []
        batch.append(sample)
    if batch:
        yield batch
