"""What the stages of a pipeline mean for a plan: how they batch, which are left out, which cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import lcm
from typing import Any, NamedTuple

from webdataset.base.behaviour import behaviour_of
from webdataset.base.stages import Stage
from webdataset.epochs.buckets import Bucketing
from webdataset.filters import batched, unbatched

from .lengths import Measure


def kept_stages(stages: Iterable[Any], *, shuffled: bool) -> list[Any]:
    """The stages that are run: the plan shuffles already; what needs the whole stream cannot be."""
    kept: list[Any] = []
    for stage in stages:
        behaviour = behaviour_of(stage)
        if shuffles(stage):
            if not shuffled:
                raise ValueError("an exact epoch is shuffled by its plan: give shuffle_bytes= instead of shuffle()")
        elif behaviour.stepwise is not None:
            kept.append(behaviour.stepwise(**stage.options()))
        elif behaviour.kind in {"counts", "caches"}:
            name = described(stage)
            raise ValueError(f"{name} needs the whole stream of samples, which exact epochs give step by step")
        else:
            kept.append(stage)
    return kept


class Batching(NamedTuple):
    """How a pipeline's batches follow from its samples."""

    size: int
    """Samples after which all stages come out even."""
    item: int
    """Samples in an item that the pipeline gives."""
    whole: bool
    """Whether some stage gives whole batches only."""
    batches: bool

    @property
    def per_step(self) -> int:
        """Items of a step."""
        return self.size // self.item


def batches_of(stages: Sequence[Any]) -> Batching:
    """How the stages of a pipeline batch its samples.

    >>> batches_of([batched(4), unbatched(), batched(6)])
    Batching(size=12, item=6, whole=False, batches=True)
    """
    sizes, levels, whole = [1], [1], False
    for stage in stages:
        if behaviour_of(stage).kind == "collects":
            given = stage.options()
            levels.append(levels[-1] * int(given["batchsize"]))
            sizes.append(levels[-1])
            whole = whole or not given["partial"]
        elif _takes_apart(stage) and len(levels) > 1:
            levels.pop()
    return Batching(lcm(*sizes), levels[-1], whole, len(levels) > 1)


def first_batching(stages: Sequence[Any]) -> int:
    """The number of the stage that makes the first batches; of stages without batches, how many they are.

    >>> first_batching([unbatched(), batched(4), batched(2)])
    1
    """
    kinds = [behaviour_of(stage).kind for stage in stages]
    return next((number for number, kind in enumerate(kinds) if kind == "collects"), len(stages))


def bucketing_of(stages: list[Any]) -> tuple[Bucketing | None, Measure | None, list[Any]]:
    """How batches are made by length, if they are, and what measures it if the index does not know it.

    The stage itself is left to collate what it is given.
    """
    places = [place for place, stage in enumerate(stages) if behaviour_of(stage).kind == "buckets"]
    if not places:
        return None, None, stages
    if (
        len(places) > 1
        or batches_of(stages).size > 1
        or any(getattr(stage, "filter", None) is unbatched for stage in stages)
    ):
        raise ValueError("bucketed() makes the batches: in exact epochs no other stage does, nor takes them apart")
    options = stages[places[0]].options()
    key, name = options["key"], options["lengths"]
    if not isinstance(key, str) and name is None:
        raise ValueError(
            "in exact epochs samples are bucketed by the bytes of a field: give its name as key; or keep what a "
            "function says under a name of your choice, lengths='tokens', for which all data are read once"
        )
    borders = options["boundaries"]
    if borders is None and options["max_tokens"] is None:
        raise ValueError("bucketed() needs boundaries= of lengths, or max_tokens=")
    bucketing = Bucketing(
        key if isinstance(key, str) else "",
        None if borders is None else tuple(borders),
        options["batchsize"],
        options["max_tokens"],
        options["scale"],
        options["among"],
        name,
    ).checked()
    measure = None if name is None else Measure(name, stages[: places[0]], key)
    together = batched(sys.maxsize, options["collation_fn"], True, handler=options["handler"])
    return bucketing, measure, [together if place == places[0] else stage for place, stage in enumerate(stages)]


def is_per_sample(stage: object) -> bool:
    """Whether a stage makes one item of each sample, whatever the others are.

    >>> from webdataset.filters import log_keys, select
    >>> is_per_sample(log_keys()), is_per_sample(select(len)), is_per_sample(batched(2))
    (True, False, False)
    """
    behaviour = behaviour_of(stage)
    return behaviour.kind in {"each", "observes"} or (behaviour.kind == "expands" and behaviour.in_pool)


def shuffles(stage: object) -> bool:
    """Whether a stage changes the order of samples only, which the plan does already."""
    return behaviour_of(stage).kind == "shuffles"


def _takes_apart(stage: object) -> bool:
    """Whether a stage takes batches apart; what makes several items of a sample is no such stage."""
    behaviour = behaviour_of(stage)
    return behaviour.kind == "expands" and not behaviour.in_pool


def described(stage: object) -> str:
    """The stage, as far as it can be told from others by a name; functions by theirs."""
    if not isinstance(stage, Stage):
        return getattr(stage, "__name__", type(stage).__name__)
    functions = [value for value in (*stage.args, *stage.kw.values()) if callable(value)]
    names = [getattr(function, "__qualname__", type(function).__name__) for function in functions]
    return f"{stage.filter.__name__}({', '.join(names)})"
