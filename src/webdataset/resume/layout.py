"""What a streamed pipeline consists of, as far as taking it up again goes.

    shards | reader | head | shuffle | segments
    listed |   where the samples come   | what is done with them then

A segment is a run of stages that can be begun anew at an item of its input at which it held nothing back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from webdataset import tariterators
from webdataset.base.mixing import Mixture
from webdataset.base.stages import Stage
from webdataset.cache import FileCache, StreamingOpen
from webdataset.filters import batched, detshuffle, info, listed, log_keys, rsample, shuffle, slice, unbatched, unlisted
from webdataset.shardlists import ShardShuffle

EACH, BATCH, PARTS, ORDER, SHUFFLE, OWN = "each", "batch", "parts", "order", "shuffle", "own"

HOLDING = {
    "Cached": "mcached() serves later passes from memory",
    "LMDBCached": "lmdb_cached() serves later passes from its file",
    "DBCache": "dbcache() serves samples from its file",
    "group_by_keys": "group_by_keys() as a stage of its own looks ahead",
    "tar_file_expander": "tar_file_expander() as a stage of its own looks ahead",
    "url_opener": "url_opener() as a stage of its own looks ahead",
    "cached_tarfile_samples": "cached_tarfile_to_samples() looks ahead; WebDataset(cache_dir=...) does not",
    "repeatedly": "repeatedly() counts passes of its own; repeat() does it so that it can be saved",
    "with_epoch": "with_epoch() as a stage counts items of its own; the method does it so that they can be saved",
    "DirectoryShardList": "a folder that fills and empties gives other shards the next time",
    "MultiShardSample": "the shards of a YAML file are drawn by chance",
    "_Reader": "a program has replaced tarfile_to_samples",
}


class NotResumableError(ValueError):
    """Why the place of a pipeline cannot be saved."""


class Segment(NamedTuple):
    """Stages that can be begun anew together."""

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
    """The parts of a pipeline; NotResumableError if it has some that cannot be taken up again."""
    for stage in stages:
        if (name := _function_name(stage)) in HOLDING and not _reads_shards(stage):
            raise NotResumableError(HOLDING[name])
    ends = [n for n, stage in enumerate(stages) if _reads_shards(stage)]
    if len(ends) > 1:
        raise NotResumableError("it reads shards in more than one stage")
    first, after = 1, 1
    if ends:
        opening = [n for n, stage in enumerate(stages) if isinstance(stage, (FileCache, StreamingOpen))]
        first, after = min([*opening, ends[0]]), ends[0] + 1
        if not tariterators.reads_in_one_step():
            raise NotResumableError("a program has replaced tar_file_expander or group_by_keys")
    elif hasattr(stages[0], "num_workers"):
        raise NotResumableError("a loader's workers run ahead of what it has given")
    elif isinstance(within := getattr(stages[0], "pipeline", None), list) and within:
        layout_of(within)  # the source is a pipeline, which must be resumable itself
    elif hasattr(stages[0], "__next__"):
        raise NotResumableError(f"its source, a {type(stages[0]).__name__}, can be read only once")
    shuffles = [n for n, stage in enumerate(stages[after:], after) if kind_of(stage) == SHUFFLE]
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
        if kind == ORDER:
            segments += [Segment([stage], counts=True), Segment([])]
            continue
        latest = segments[-1]
        if latest.multiplies and kind in (BATCH, OWN):
            latest = Segment([])
            segments.append(latest)
        latest.stages.append(stage)
        if kind in (PARTS, OWN):
            segments[-1] = latest._replace(multiplies=True)
    return [segment for segment in segments if segment.stages]


def kind_of(stage: Any) -> str:
    """What a stage does with the stream."""
    if isinstance(stage, detshuffle):
        return SHUFFLE
    if getattr(stage, "only_at_the_start", False):
        return EACH
    if not isinstance(stage, Stage):
        return EACH if isinstance(stage, partial) and stage.func is map else OWN
    for kind, filters in _KINDS.items():
        if stage.filter in filters:
            return kind
    if not stage.filter.per_sample:
        return OWN
    return EACH if stage.filter.__module__.startswith("webdataset.") else PARTS


_KINDS: dict[str, tuple[Any, ...]] = {
    EACH: (info, log_keys),
    BATCH: (batched, listed),
    PARTS: (unbatched, unlisted),
    ORDER: (rsample, slice),
    SHUFFLE: (shuffle,),
}


def is_mixture(stage: Any) -> bool:
    """Whether a source mixes datasets."""
    return isinstance(stage, Mixture)


def remembered(stages: Sequence[Any]) -> list[tuple[Any, str]]:
    """What stages keep from pass to pass: seeds that nobody gave, and epochs that they count, as (stage, attribute)."""
    seeds = [(stage, "seed") for stage in stages if isinstance(stage, ShardShuffle) and stage.drawn]
    return seeds + [(stage, "epoch") for stage in stages if isinstance(stage, detshuffle)]


def described(pipeline: Any) -> dict[str, Any]:
    """What must be the same for a state to fit."""
    stages = [stage for stage in pipeline.pipeline if not isinstance(stage, (FileCache, StreamingOpen))]
    return {
        "source": _described_source(stages[0]) if stages else None,
        "stages": [_text(stage) for stage in stages[1:]],
        "passes": None if pipeline.repetitions >= 1 << 62 else pipeline.repetitions,
        "items": max(pipeline.nsamples, 0),
    }


def _described_source(source: Any) -> Any:
    urls = getattr(source, "urls", None)
    if isinstance(urls, list):
        digest = hashlib.blake2b("\n".join(map(str, urls)).encode("utf-8", "surrogatepass"), digest_size=8)
        seed = {"seed": str(source.seed)} if getattr(source, "deterministic", True) and hasattr(source, "seed") else {}
        return {"kind": type(source).__name__, "shards": len(urls), "urls": digest.hexdigest(), **seed}
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
    before = [stage for stage in stages[after:at] if kind_of(stage) in (BATCH, ORDER)]
    if before:
        name = _function_name(before[0]).lstrip("_")
        raise NotResumableError(f"{name}() stands before shuffle(), and the shuffle holds its items: put it after")
    if hasattr(stages[0], "go_on"):
        raise NotResumableError("threads work on what is shuffled then: put shuffle() first, or use no workers")
    if after == 1 and (is_mixture(stages[0]) or hasattr(stages[0], "repetitions")):
        raise NotResumableError("it shuffles a mixture, or a dataset within another: shuffle each dataset itself")
    if isinstance(stages[at], Stage):
        given = stages[at].given()
        for name in ("rng", "max_bytes"):
            if given[name] is not None:
                raise NotResumableError(f"what shuffle({name}=...) holds cannot be told from a seed")


def _reads_shards(stage: Any) -> bool:
    return getattr(stage, "reads_shards", False) or (
        isinstance(stage, Stage) and stage.filter is tariterators.tarfile_to_samples
    )


def _function_name(stage: Any) -> str:
    if isinstance(stage, Stage):
        return str(stage.filter.__name__)
    return str(getattr(stage, "__name__", type(stage).__name__))


def _text(stage: Any) -> str:
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


def _value(value: Any) -> str:
    if value is None or isinstance(value, (int, float, str, bytes)):
        return repr(value)[:100]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(each) for each in value)}]"[:200]
    return str(getattr(value, "__qualname__", type(value).__qualname__))
