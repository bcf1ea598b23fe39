"""What a stage does to the stream of items that passes it, as those who run pipelines need to know it.

A stage declares it where it is defined: `@pipelinefilter(kind="each")` for a filter, `@behaves("holds", "why")` for
any other function or class. A stage that declares nothing is taken to hold no items back between two that it yields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

Kind = Literal[
    "each",  # one item of each, whatever the others are
    "selects",  # one item of each, or none
    "expands",  # any number of items of each
    "observes",  # the items as they are
    "collects",  # one item of every `batchsize`
    "buckets",  # batches of items that wait for others of their length
    "counts",  # depends on how many items came before, not on what they are
    "shuffles",  # the items in another order
    "opens",  # shards to opened shards
    "reads",  # shards to samples
    "holds",  # holds items or a place of its own, so that where it is cannot be saved
    "caches",  # holds, and serves later passes from what it has
]
KINDS: tuple[str, ...] = get_args(Kind)

T = TypeVar("T")


@dataclass(frozen=True)
class Behaviour:
    """What a stage does to the stream."""

    kind: Kind | None = None
    reason: str = ""
    """Of a stage that holds, caches or buckets: why its position cannot be saved."""
    in_pool: bool = False
    """Whether several threads may run it, each on other items."""
    keeps: tuple[str, ...] = ()
    """The attributes that it keeps from pass to pass, and that belong to a position."""
    skip_on_resume: bool = False
    """Whether it is for the beginning of a pass only."""
    stepwise: Callable[..., Any] | None = None
    """Makes the stage that takes its place in exact epochs, of its options."""
    split: Callable[[Any], list[Any]] | None = None
    """Makes several stages of it that do the same, some of which may be run by threads."""
    moves_fields: bool = False
    """Whether it only chooses and names fields, and does not look at their values."""

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise ValueError(f"a stage is of no kind {self.kind!r}; kinds are {', '.join(KINDS)}")


UNDECLARED = Behaviour()
PER_SAMPLE = Behaviour("expands", in_pool=True)
"""What `@pipelinefilter(per_sample=True)` declares."""
_EACH = Behaviour("each")


def behaves(kind: Kind, reason: str = "", **more: Any) -> Callable[[T], T]:
    """Declare the behaviour of a function or class that is used as a stage.

    >>> @behaves("holds", "it reads ahead")
    ... def ahead(data): ...
    >>> behaviour_of(ahead).reason
    'it reads ahead'
    """
    behaviour = Behaviour(kind, reason, **more)

    def declared(stage: T) -> T:
        stage.behaviour = behaviour  # type: ignore[attr-defined]
        return stage

    return declared


def behaviour_of(stage: object) -> Behaviour:
    """The behaviour that a stage declares."""
    declared = getattr(stage, "behaviour", None)
    if isinstance(declared, Behaviour):
        return declared
    return _EACH if isinstance(stage, partial) and stage.func is map else UNDECLARED
