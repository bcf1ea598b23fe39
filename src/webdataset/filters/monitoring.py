"""Monitoring: show or log what passes through a pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from webdataset.base.locks import locked
from webdataset.base.printing import short_repr
from webdataset.base.stages import pipelinefilter
from webdataset.handlers import close

from .closing import closing


@pipelinefilter(kind="observes")
def info(  # noqa: PLR0917 - the signature is given by the API
    data: Iterable[Any],
    fmt: str | None = None,
    n: int = 3,
    every: int = -1,
    width: int = 50,
    stream: TextIO | None = None,
    name: str = "",
) -> Iterator[Any]:
    """Show the first `n` samples, and then each `every`-th, on stderr or a stream.

    Args:
        fmt: a format string for the fields of a sample, as `{__key__}`
        n: how many at the beginning
        every: show each of this number; -1 shows no more
        width: characters of each value
        stream: where to write, instead of stderr
        name: a title

    >>> list(info(n=1, stream=sys.stdout, name="raw")([{"__key__": "a", "cls": 7}, {"__key__": "b"}]))
    --- raw
    __key__ 'a'
    cls 7
    [{'__key__': 'a', 'cls': 7}, {'__key__': 'b'}]
    """
    stream = sys.stderr if stream is None else stream
    return _shown(iter(data), lambda sample: _text(sample, fmt, width, name), n, every, stream)


@pipelinefilter(kind="observes")
def log_keys(data: Iterable[dict[str, Any]], logfile: str | None = None) -> Iterator[dict[str, Any]]:
    """Append a line "index, worker, rank, key" (tab-separated) per sample to a file that processes may share.

    Args:
        logfile: the path of the file; None logs nothing
    """
    source = iter(data)
    return closing(source, source) if logfile is None else _logged(source, logfile)


def _shown(source: Iterator[Any], text: Callable[[Any], str], n: int, every: int, stream: TextIO) -> Iterator[Any]:
    try:
        for index, sample in enumerate(source):
            if index < n or (every > 0 and (index + 1) % every == 0):
                stream.write(text(sample) + "\n")
            yield sample
    finally:
        close(source)


def _text(sample: object, fmt: str | None, width: int, name: str) -> str:
    if not isinstance(sample, dict):
        return f"--- {name}\n{short_repr(sample, width)}"
    if fmt is not None:
        return fmt.format(**sample)
    return "\n".join([f"--- {name}", *(f"{field} {short_repr(value, width)}" for field, value in sample.items())])


def _logged(source: Iterator[dict[str, Any]], logfile: str) -> Iterator[dict[str, Any]]:
    try:
        with open(logfile, "a", encoding="utf-8", errors="backslashreplace") as log:
            for index, sample in enumerate(source):
                line = f"{index}\t{sample.get('__worker__')}\t{sample.get('__rank__')}\t{sample.get('__key__')}\n"
                with locked(log, wait=True):
                    log.write(line)
                    log.flush()
                yield sample
    finally:
        close(source)
