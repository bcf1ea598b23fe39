"""Sort samples by key or by a field, even if larger than memory.

>>> samples = [{"__key__": "a", "cls": b"10"}, {"__key__": "b", "cls": b"9"}]
>>> [sample["__key__"] for sample in sort_samples("cls", kind="int")(samples)]
['b', 'a']
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from operator import itemgetter
from typing import Any

from webdataset.base.stages import pipelinefilter
from webdataset.errors import SampleError
from webdataset.handlers import Handler, close, handled, reraise_exception

from .choosing import nested_value
from .lazy import LazySample, field_decoder, missing_field
from .spilling import Entry, read_entries, size_of, temporary_folder, write_entries

KINDS = ("text", "int", "float")
DEFAULT_MEMORY = 100_000_000
MAX_RUNS = 64
"""How many runs are merged at once: each is an open file and a frame in memory."""

Sample = dict[str, Any]
_first = itemgetter(0)


@pipelinefilter
def sort_samples(
    data: Iterable[Sample],
    by: str | Callable[[Sample], Any] = "__key__",
    kind: str = "text",
    *,
    reverse: bool = False,
    memory: int = DEFAULT_MEMORY,
    tmpdir: str | None = None,
    handler: Handler = reraise_exception,
) -> Iterator[Sample]:
    """Sort samples by `__key__`, a field, a part of one (`json.score`) or a function, as text, int or float.

    The sort is stable.

    At most about `memory` bytes are held; the rest is in sorted files in `tmpdir`.
    """
    value_of = by if callable(by) else sort_value(by, kind)
    entries = handled(data, lambda sample: (value_of(sample), sample), handler)
    return _sorted(entries, reverse, memory, tmpdir)


def sort_value(by: str, kind: str) -> Callable[[Sample], Any]:
    """Return the function that returns what a sample is sorted by."""
    if kind not in KINDS:
        raise ValueError(f"the kind of sort must be one of {', '.join(KINDS)}, got {kind!r}")
    converters: dict[str, Callable[[Any], Any]] = {"text": _as_is, "int": int, "float": _number}
    convert = converters[kind]

    if by == "__key__" and kind == "text":
        return itemgetter("__key__")

    def value(sample: Sample) -> Any:
        data = sample.get(by)
        if data is None:
            data = _nested(by, sample)
        try:
            return convert(data)
        except ValueError:
            shown = data[:40] if isinstance(data, bytes) else data
            hint = f"--as text sorts by the bytes; kinds are {', '.join(KINDS)}"
            raise SampleError(
                f"{shown!r} is not of type {kind}", key=sample.get("__key__"), field=by, hint=hint
            ) from None

    return value


def _sorted(entries: Iterator[Entry], reverse: bool, memory: int, tmpdir: str | None) -> Iterator[Sample]:
    with ExitStack() as opened:
        opened.callback(close, entries)
        runs: list[str] = []
        folder = ""
        names = count()
        held: list[Entry] = []
        size = 0
        for entry in entries:
            held.append(entry)
            size += size_of(entry[1])
            if size > memory:
                folder = folder or opened.enter_context(temporary_folder(tmpdir))
                held.sort(key=_first, reverse=reverse)
                runs.append(_written(folder, next(names), held))
                held, size = [], 0
                if len(runs) >= MAX_RUNS:
                    runs = [_written(folder, next(names), _merged(runs, reverse))]
        held.sort(key=_first, reverse=reverse)
        merged = _merged(runs, reverse, held) if runs else iter(held)
        for _, sample in merged:
            yield sample


def _merged(runs: list[str], reverse: bool, held: Iterable[Entry] = ()) -> Iterator[Entry]:
    """Merge runs in the order in which they were written, so that the sort is stable."""
    sources = [*(_consumed(run) for run in runs), held]
    return heapq.merge(*sources, key=_first, reverse=reverse)


def _consumed(run: str) -> Iterator[Entry]:
    yield from read_entries(run)
    os.unlink(run)


def _written(folder: str, number: int, entries: Iterable[Entry]) -> str:
    path = os.path.join(folder, f"run-{number:06d}")
    write_entries(path, entries)
    return path


def _nested(by: str, sample: Sample) -> Any:
    """A part of a field, as stored in JSON; comparable with the same part of others."""
    try:
        return nested_value(LazySample(sample, field_decoder("basic")), by)
    except KeyError:
        raise missing_field(by, sample) from None


def _as_is(data: object) -> object:
    return data


def _number(data: str | bytes | float) -> tuple[bool, float]:
    """Sort NaN after all numbers."""
    value = float(data)
    return (True, 0.0) if math.isnan(value) else (False, value)
