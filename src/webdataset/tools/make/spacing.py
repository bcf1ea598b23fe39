"""Keep samples with equal keys apart, as readers would take neighbours for one sample.

>>> samples = [{"__key__": "a", "n": 1}, {"__key__": "a", "n": 2}, {"__key__": "b", "n": 3}]
>>> [sample["n"] for sample in kept_apart()(samples)]
[1, 3, 2]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from webdataset.base.stages import pipelinefilter
from webdataset.handlers import close
from webdataset.tariterators import base_plus_ext

TAIL = 8
"""Samples that are held back, so that there is room for waiting ones at the end."""
MOST_WAITING = 1000

Sample = dict[str, Any]


class Packed(Protocol):
    """Several samples in one piece; no two neighbours have equal keys."""

    @property
    def first(self) -> str: ...
    @property
    def last(self) -> str: ...
    def unpacked(self) -> list[Sample]:
        """Return the samples."""


@pipelinefilter
def kept_apart(data: Iterable[Sample | Packed]) -> Iterator[Sample | Packed]:
    """Hold back a sample with the key of the one before it until another sample has come between.

    This is for orders that are arbitrary anyway. If nothing can come between, equal keys remain neighbours.
    """
    source = iter(data)
    line = _Line()
    try:
        for item in source:
            for piece in line.pieces(item):
                line.add(piece)
            while len(line.ready) > TAIL:
                yield line.ready.popleft()
        yield from line.rest()
    finally:
        close(source)


class _Line:
    """Samples in output order, and those that wait."""

    def __init__(self) -> None:
        self.ready: deque[Sample | Packed] = deque()
        self.waiting: deque[Sample | Packed] = deque()
        self.last = ""

    def pieces(self, item: Sample | Packed) -> list[Any]:
        """Unpack samples if they must be handled one by one."""
        if isinstance(item, dict) or (_first(item) != self.last and not self.waiting):
            return [item]
        return item.unpacked()

    def add(self, item: Sample | Packed) -> None:
        if _first(item) == self.last and len(self.waiting) < MOST_WAITING:
            self.waiting.append(item)
            return
        self._append(item)
        while self.waiting and _first(self.waiting[0]) != self.last:
            self._append(self.waiting.popleft())

    def rest(self) -> Iterable[Sample | Packed]:
        """Return the rest, with the waiting samples inserted, as far back as necessary."""
        if not self.waiting:
            return self.ready
        rest = [sample for item in self.ready for sample in ([item] if isinstance(item, dict) else item.unpacked())]
        for item in self.waiting:
            free = (n for n in range(len(rest) - 1, 0, -1) if _first(item) not in map(_first, rest[n - 1 : n + 1]))
            rest.insert(next(free, len(rest)), item)  # type: ignore[arg-type]  # only samples wait
        return rest

    def _append(self, item: Sample | Packed) -> None:
        self.ready.append(item)
        self.last = _first(item) if isinstance(item, dict) else _as_read(item.last)


def _first(item: Sample | Packed) -> str:
    return _as_read(item.get("__key__", "") if isinstance(item, dict) else item.first)


def _as_read(key: str) -> str:
    """Return the key as readers find it in the members' names."""
    return base_plus_ext(f"{key}.")[0] or "" if "." in key else key
