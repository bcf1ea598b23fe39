"""Rounds: passes one after the other, cut as `with_epoch` and `repeat` say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from webdataset.errors import StateError
from webdataset.handlers import close

ENDLESS = sys.maxsize
_NOTHING: object = object()


class RunnablePipeline(Protocol):
    """A pipeline, as those who run it see it."""

    pipeline: list[Any]
    """The source and the stages."""
    repetitions: int
    nsamples: int
    strict: bool | None

    @property
    def runner(self) -> Any:
        """The streamed or the exact runner, each with what only it can do."""

    def iterator(self) -> Iterator[Any]: ...
    def iterator1(self) -> Iterator[Any]: ...
    def invoke(self, f: Any, *args: Any, **kw: Any) -> Any: ...


class RoundLimits(NamedTuple):
    """How long a round is."""

    passes: int | None = 1
    """Epochs, None for any number."""
    items: int = 0
    """Items, at most; 0 for any number."""

    @classmethod
    def of(cls, pipeline: RunnablePipeline) -> RoundLimits:
        """Those of a pipeline."""
        return cls(None if pipeline.repetitions == ENDLESS else pipeline.repetitions, max(pipeline.nsamples, 0))

    @property
    def is_one_pass(self) -> bool:
        """Whether nothing is cut or repeated."""
        return self == RoundLimits()

    @property
    def continues(self) -> bool:
        """Whether a round begins where the one before has ended, rather than with an epoch."""
        return self.passes is None and self.items > 0

    def length(self, items_in_passes: Callable[[int], int]) -> int:
        """How many items a round has; `items_in_passes(n)` is the number of those that n passes have."""
        if self.passes is None:
            if self.items:
                return self.items
            raise TypeError("the pipeline repeats without end: with_epoch(n) gives it a length")
        length = items_in_passes(self.passes)
        return min(length, self.items) if self.items else length


def one_after_the_other(
    begin: Callable[[], tuple[Iterable[Iterator[Any]], bool]], finish: Callable[[], None] | None = None
) -> Iterator[Any]:
    """The items of passes; one that gives nothing is the last, unless it is the rest of a pass that was resumed.

    `begin()` returns the passes, and whether the first is resumed; `finish()` is called after the last item.
    """
    passes, resumed = begin()
    for one_pass in passes:
        try:
            first = next(one_pass, _NOTHING)
            if first is not _NOTHING:
                yield first
                yield from one_pass
            elif not resumed:
                break
        finally:
            close(one_pass)
        resumed = False
    if finish is not None:
        finish()


def rounds(
    begin: Callable[[int, int], Iterator[Any]],
    took: Callable[[int, int], None],
    *,
    passes: tuple[int, int],
    items: tuple[int, int],
    resumed: bool,
) -> Iterator[Any]:
    """The items of a round: `passes` and `items` are how many were complete before, and how many it has at most.

    `begin(passes, given)` begins the next pass; `took(passes, given)` is called for every item, before it is yielded. A
    pass that gives nothing is the last, unless it is the rest of a pass that was resumed.
    """
    (done, most_passes), (given, most) = passes, items
    while done < most_passes and given < most:
        before = given
        one_pass = begin(done, given)
        try:
            for item in one_pass:
                given += 1
                took(done, given)
                yield item
                if given == most:
                    return
        finally:
            close(one_pass)
        if given == before and not resumed:
            return
        resumed = False
        done += 1


def check_same(passes: int | None, items: int, limits: RoundLimits) -> None:
    """Raise unless rounds are as long as those of a state."""
    if (passes, items) != limits:
        then, now = _described(passes, items), _described(*limits)
        raise StateError(
            f"the state does not fit: it was saved with {then}, and this is a dataset with {now}",
            hint="give with_epoch() and repeat() as they were",
        )


def _described(passes: int | None, items: int) -> str:
    if passes is None:
        return f"with_epoch({items})" if items else "repeat()"
    if passes == 1 and not items:
        return "its own epochs"
    return f"repeat({passes}, nbatches={items})" if items else f"repeat({passes})"
