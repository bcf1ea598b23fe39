"""Resume a streamed pass from a position.

What can be saved of generators is where their data came from. So a pass counts: the samples that were read of each
shard, what came out of the shuffle, what a group of items began with. When it is resumed, shards that were read are
not opened again, but for those of which samples were still in the shuffle's buffer: the shuffle is repeated with
numbers instead of samples, which tells what it held, and just that is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, compress, repeat
from operator import length_hint
from typing import Any

from webdataset.base.positions import named

from .layout import Layout, Segment
from .positions import Within
from .sources import END, Count, PassBuilder, passed_over, source_of


class StreamPass:
    """One pass over a pipeline that can say where it is."""

    def __init__(self, layout: Layout, builder: PassBuilder) -> None:
        self._builder = builder
        self._source = source_of(layout, builder)
        parts: list[Any] = [self._source]
        for segment in layout.segments:
            kind = _Counting if segment.counts else _Grouping if segment.multiplies else _Plain
            parts.append(kind(segment, builder, parts[-1]))
        self._parts = parts

    def started(self, where: Any = None) -> Iterator[Any]:
        """The items, from a place on."""
        saved, tail = (None, None) if where is None else named(Within, where)
        stream = self._source.started(saved)
        numbers = None if tail is None else iter(tail)
        for part in self._parts[1:]:
            stream = part.started(stream, numbers)
        return stream  # type: ignore[no-any-return]

    @property
    def is_counted(self) -> bool:
        """Whether the position is the number of items that were given."""
        return len(self._parts) == 1 and self._source.simple

    def position(self) -> Any:
        """The place after the latest item, as quickly as it can be told: `where(position)` is it, also later."""
        return self._parts[-1].position()

    def where(self, position: Any) -> Within:
        """A position as a place from which a pass can be started."""
        first, *tail = position
        return Within(self._source.saved(first), tuple(tail))


# -- segments ------------------------------------------------------------------------------------


class _Plain:
    """Stages that hold nothing when they have given an item."""

    simple = False

    def __init__(self, segment: Segment, builder: PassBuilder, before: Any) -> None:
        self._stages = segment.stages
        self._builder = builder
        self._before = before

    def started(self, stream: Iterator[Any], numbers: Iterator[int] | None) -> Iterator[Any]:
        return self._builder.chained(stream, self._stages, resumed=numbers is not None)

    def position(self) -> tuple[Any, ...]:
        return self._before.position()  # type: ignore[no-any-return]


class _Grouping(_Plain):
    """Stages that may give several items for what they took in: that is taken in again, what was given is left out."""

    def __init__(self, segment: Segment, builder: PassBuilder, before: Any) -> None:
        super().__init__(segment, builder, before)
        self._numbers = iter(range(1, END))
        """What is left of them tells how much was given, as in Count."""
        self._left = END - 1
        self._at: Any = None
        self._pulled = 0
        """What was left, where the source was, and what had been taken from it, when the latest group began."""

    def started(self, stream: Iterator[Any], numbers: Iterator[int] | None) -> Iterator[Any]:
        self._at = self._before.position()
        source = self._builder.kept(self._watched(stream) if self._before.simple else self._watched_closely(stream))
        items = compress(
            self._builder.chained(source, self._stages, resumed=numbers is not None),
            self._numbers,
        )
        if numbers is not None:
            passed_over(items, 0, next(numbers), ())
        return items

    def position(self) -> tuple[Any, ...]:
        given = self._left - length_hint(self._numbers)
        if not self._before.simple:
            return (*self._at, given)
        (first,) = self._at
        return first + self._pulled, given

    def _watched(self, stream: Iterator[Any]) -> Iterator[Any]:
        """What is taken in; a group begins where something was given since the last time."""
        numbers, left = self._numbers, self._left
        for taken, item in enumerate(stream, 1):
            yield item
            if (now := length_hint(numbers)) != left:
                self._left, self._pulled, left = now, taken, now

    def _watched_closely(self, stream: Iterator[Any]) -> Iterator[Any]:
        for item in stream:
            yield item
            if (now := length_hint(self._numbers)) != self._left:
                self._left, self._at = now, self._before.position()


class _Counting(_Plain):
    """Stages that depend on how many items came, whatever they are: they are given as many of nothing."""

    def started(self, stream: Iterator[Any], numbers: Iterator[int] | None) -> Iterator[Any]:
        taken = given = 0
        if numbers is not None:
            taken, given = next(numbers), next(numbers)
        self._pulled, self._given = Count(taken), Count()
        source = chain(repeat(None, taken), self._pulled.over(stream))
        items = self._given.over(self._builder.chained(source, self._stages, resumed=False))
        passed_over(items, 0, given, ())
        return items

    def position(self) -> tuple[Any, ...]:
        return *self._before.position(), self._pulled(), self._given()
