"""The parts of a streamed pipeline, as resuming it needs them.

    shards | reader | head | shuffle | segments
    listed |   where the samples come   | what is done with them then

A segment is a run of stages that can be started again at an item of its input at which it held nothing back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import webdataset.tariterators as tariterators  # noqa: PLR0402 - needs no lock of names
from webdataset.base.behaviour import behaviour_of
from webdataset.base.mixing import Mixture
from webdataset.base.progress import PipelineProgress
from webdataset.base.stages import Stage
from webdataset.base.states import about_shards
from webdataset.filters import detshuffle
from webdataset.shardlists import ShardShuffle

if TYPE_CHECKING:
    from webdataset.base.rounds import RunnablePipeline


class NotResumableError(ValueError):
    """Why the place of a pipeline cannot be saved."""


class Segment(NamedTuple):
    """Stages that can be started again together."""

    stages: list[Any]
    multiplies: bool = False
    """Whether an item may come out as several, some of which may have been given when the state is saved."""
    counts: bool = False
    """Whether it depends on how many items came before: slice and rsample."""


class Layout(NamedTuple):
    """The stages of a pipeline, sorted by what they are to a state."""

    shards: list[Any]
    """The stages that list the shards; if there is no reader, the source alone."""
    reader: list[Any]
    head: list[Any]
    shuffle: Any
    segments: list[Segment]


def layout_of(stages: Sequence[Any]) -> Layout:
    """The parts of a pipeline; NotResumableError if it has some that cannot be resumed."""
    kinds = [kind_of(stage) for stage in stages]
    for stage, kind in zip(stages, kinds, strict=True):
        if kind in {"holds", "caches", "buckets"}:
            raise NotResumableError(behaviour_of(stage).reason or f"{_function_name(stage)} holds items")
    ends = [n for n, kind in enumerate(kinds) if kind == "reads"]
    if len(ends) > 1:
        raise NotResumableError("it reads shards in more than one stage")
    first, after = 1, 1
    if ends:
        opening = [n for n, kind in enumerate(kinds) if kind == "opens"]
        first, after = min([*opening, ends[0]]), ends[0] + 1
        if not tariterators.reads_in_one_step():
            raise NotResumableError("a program has replaced tar_file_expander or group_by_keys")
    elif hasattr(stages[0], "num_workers"):
        raise NotResumableError("a loader's workers run ahead of what it has given")
    elif isinstance(within := getattr(stages[0], "pipeline", None), list) and within:
        layout_of(within)  # the source is a pipeline, which must be resumable itself
    elif hasattr(stages[0], "__next__"):
        raise NotResumableError(f"its source, a {type(stages[0]).__name__}, can be read only once")
    shuffles = [n for n, kind in enumerate(kinds) if kind == "shuffles" and n >= after]
    if not shuffles:
        return Layout(list(stages[:first]), list(stages[first:after]), [], None, segments_of(stages[after:]))
    at = shuffles[0]
    _check_shuffle(stages, after, shuffles)
    segments = segments_of(stages[at + 1 :])
    return Layout(list(stages[:first]), list(stages[first:after]), list(stages[after:at]), stages[at], segments)


def segments_of(stages: Sequence[Any]) -> list[Segment]:
    """Stages cut where one that collects, or may, follows one that gives several items for one."""
    segments = [Segment([])]
    for stage in stages:
        kind = kind_of(stage)
        if kind == "counts":
            segments += [Segment([stage], counts=True), Segment([])]
            continue
        latest = segments[-1]
        if latest.multiplies and kind in ("collects", None):
            latest = Segment([])
            segments.append(latest)
        latest.stages.append(stage)
        if kind in ("expands", None):
            segments[-1] = latest._replace(multiplies=True)
    return [segment for segment in segments if segment.stages]


def kind_of(stage: object) -> str | None:
    """What a stage does to the stream; None if it does not say."""
    return behaviour_of(stage).kind


def is_pipeline(source: object) -> bool:
    """Whether a source is a pipeline, which knows itself where it is."""
    return isinstance(getattr(source, "_progress", None), PipelineProgress)


def runs_ahead(source: object) -> bool:
    """Whether a source is run by threads, ahead of what is taken from it."""
    return getattr(source, "runs_ahead", False) is True


def is_mixture(stage: object) -> bool:
    """Whether a source mixes datasets."""
    return isinstance(stage, Mixture)


def remembered(stages: Sequence[Any]) -> list[tuple[Any, str]]:
    """What stages keep from pass to pass: seeds that nobody gave, and epochs that they count, as (stage, attribute)."""
    return [(stage, name) for stage in stages for name in behaviour_of(stage).keeps]


def described(pipeline: RunnablePipeline) -> dict[str, Any]:
    """What must be the same for a state to fit."""
    stages = [stage for stage in pipeline.pipeline if kind_of(stage) != "opens"]
    return {
        "source": _described_source(stages[0]) if stages else None,
        "stages": [_text(stage) for stage in stages[1:]],
        "passes": None if pipeline.repetitions >= 1 << 62 else pipeline.repetitions,
        "items": max(pipeline.nsamples, 0),
    }


def _described_source(source: Any) -> dict[str, Any]:
    urls = getattr(source, "urls", None)
    if isinstance(urls, list):
        digest = hashlib.blake2b("\n".join(map(str, urls)).encode("utf-8", "surrogatepass"), digest_size=8)
        seed = {"seed": str(source.seed)} if getattr(source, "deterministic", True) and hasattr(source, "seed") else {}
        known = {"shards": len(urls), "urls": digest.hexdigest(), **seed, "about": about_shards(urls)}
        return {"kind": type(source).__name__, **known}
    if hasattr(source, "pipeline") and hasattr(source, "repetitions"):
        return described(source)
    if is_mixture(source):
        options = {name: _value(getattr(source, name, None)) for name in ("probs", "longest", "seed")}
        return {"kind": type(source).__name__, **options, "of": [_described_source(each) for each in source.datasets]}
    if isinstance(source, (list, tuple, range, str)):
        return {"kind": type(source).__name__, "items": len(source)}
    return {"kind": _text(source)}


def _check_shuffle(stages: Sequence[Any], after: int, shuffles: Sequence[int]) -> None:
    at = shuffles[0]
    if len(shuffles) > 1:
        raise NotResumableError("it shuffles twice: one shuffle() before the batches is enough")
    before = [stage for stage in stages[after:at] if kind_of(stage) in ("collects", "counts")]
    if before:
        name = _function_name(before[0]).lstrip("_")
        raise NotResumableError(f"{name}() stands before shuffle(), and the shuffle holds its items: put it after")
    if runs_ahead(stages[0]):
        raise NotResumableError("threads work on what is shuffled then: put shuffle() first, or use no workers")
    if after == 1 and (is_mixture(stages[0]) or hasattr(stages[0], "repetitions")):
        raise NotResumableError("it shuffles a mixture, or a dataset within another: shuffle each dataset itself")
    if isinstance(stages[at], Stage):
        given = stages[at].options()
        for name in ("rng", "max_bytes"):
            if given[name] is not None:
                raise NotResumableError(f"what shuffle({name}=...) holds cannot be told from a seed")


def _function_name(stage: object) -> str:
    if isinstance(stage, Stage):
        return str(stage.filter.__name__)
    return str(getattr(stage, "__name__", type(stage).__name__))


def _text(stage: object) -> str:
    """A stage with its options, as far as they can be written down: functions by their names."""
    if isinstance(stage, ShardShuffle):
        seed = "any" if stage.drawn else stage.seed
        return f"ShardShuffle(seed={seed}, bufsize={stage.bufsize})"
    if isinstance(stage, Stage):
        options = [_value(value) for value in stage.args] + [f"{k}={_value(v)}" for k, v in sorted(stage.kw.items())]
        return f"{_function_name(stage).lstrip('_')}({', '.join(options)})"
    if isinstance(stage, detshuffle):
        return f"detshuffle({stage.bufsize}, {stage.initial}, seed={stage.seed})"
    return _function_name(stage)


def _value(value: object) -> str:
    if value is None or isinstance(value, (int, float, str, bytes)):
        return repr(value)[:100]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(each) for each in value)}]"[:200]
    return str(getattr(value, "__qualname__", type(value).__qualname__))
