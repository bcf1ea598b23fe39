"""Inputs other than whole shards: `a.tar#10,19` is a range of samples, `zpull://host:port` another process.

>>> split_range("a.tar#10,19"), split_range("a.tar")
(('a.tar', '#10,19'), ('a.tar', ''))
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby, islice
from typing import Any

from webdataset.base.reports import Report, current_report
from webdataset.handlers import Handler, close
from webdataset.tariterators import tarfile_samples

from . import terminal
from .grammar import UsageError

_RANGE = re.compile(r"(.+)(#(\d+),(\d+))", re.DOTALL)
_CHANNEL = re.compile(r"zr?(push|pull|pub|sub)(\+[a-z]+)?://")

Sample = dict[str, Any]


def split_range(url: str) -> tuple[str, str]:
    """Split a url from the range of samples after it; an existing file with such a name is a file."""
    found = _RANGE.fullmatch(url)
    return (url, "") if found is None or os.path.exists(url) else (found.group(1), found.group(2))


def is_channel(url: str) -> bool:
    """Whether a url is a ZeroMQ channel, to or from another process."""
    return _CHANNEL.match(url) is not None


def is_special(url: str) -> bool:
    """Whether a url is a channel or has a range."""
    return is_channel(url) or bool("#" in url and split_range(url)[1])


def special_samples(urls: Iterable[str], handler: Handler, *, concatenated: bool = False) -> Iterator[Sample]:
    """Read such inputs, and the shards between them, one after the other."""
    remembering = _RememberingHandler(handler)
    shards = partial(_shards, concatenated=concatenated)
    parts = [
        (partial(_one, shards), url) if special else (shards, url)
        for special, group in groupby(urls, is_special)
        for url in (group if special else [list(group)])
    ]
    return _joined(parts, remembering, current_report())


def _joined(parts: list[Any], handler: _RememberingHandler, report: Report) -> Iterator[Sample]:
    for read, what in parts:
        with report.in_force():
            samples = read(what, handler)
        try:
            yield from samples
        finally:
            close(samples)
        if handler.stopped:
            return


def _shards(urls: list[str], handler: Handler, *, concatenated: bool) -> Iterator[Sample]:
    return tarfile_samples([{"url": url} for url in urls], handler, concatenated=concatenated)


def _one(shards: Callable[..., Iterator[Sample]], url: str, handler: Handler) -> Iterator[Sample]:
    plain, cut = split_range(url)
    samples = _received(plain, handler) if is_channel(plain) else shards([plain], handler)
    return samples if not cut else _ranged(samples, *map(int, cut[1:].split(",")))


def _received(url: str, handler: Handler) -> Iterator[Sample]:
    from webdataset.tools.channels import received

    if "#" in url:
        raise UsageError(f"{url!r}: after # a range such as #0,9 is expected; channels have no topics")
    return received(url, handler, bound=say_bound)


def say_bound(url: str) -> None:
    """Print the url that others connect to, if this command has bound port 0."""
    terminal.err(f"wl: listening on {url}\n")
    sys.stderr.flush()


def _ranged(samples: Iterator[Sample], first: int, last: int) -> Iterator[Sample]:
    """Yield the samples from the first to the last, both included."""
    try:
        yield from islice(samples, first, last + 1)
    finally:
        close(samples)


class _RememberingHandler:
    """A handler that remembers whether it ended the stream."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.stopped = False

    def __call__(self, error: Exception) -> bool:
        go_on = bool(self.handler(error))
        self.stopped = self.stopped or not go_on
        return go_on
