"""Pipelines in words: stage by stage with their options, their shards, and their length where it is known.

>>> from webdataset.filters import batched, shuffle
>>> rows_of([[{"a": 1}], shuffle(100), batched(32, partial=False)])
[('list', '1 item'), ('shuffle', '100'), ('batched', '32, partial=False')]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from webdataset.base.behaviour import behaviour_of
from webdataset.base.mixing import Mixture
from webdataset.base.printing import printable
from webdataset.base.redact import redacted
from webdataset.base.stages import Stage
from webdataset.base.units import counted, size_text

from .markup import columns, table

MOST_CHARACTERS = 100
WORDS = {"_Reader": "samples of the shards", "_checked": "check_empty", "ProcessLoader": "DataLoader"}
"""What stages of our own are called, where their class or function is not what users know."""
Rows = list[tuple[str, str]]


class ShownPipeline:
    """Shows itself in words in a terminal, and as a table in a notebook."""

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return table(rows_of(_parts(self)), title=title(self))


def as_text(pipeline: object) -> str:
    """A pipeline or a mixture as lines of text."""
    rows = rows_of(_parts(pipeline))
    return "\n".join([title(pipeline), *([columns(rows, indent="  ")] if rows else [])])


def title(pipeline: object) -> str:
    """What a pipeline is, and how long, in one line."""
    name = type(pipeline).__name__.removesuffix("_Length")
    facts = [fact for fact in (_way(pipeline), _length(pipeline)) if fact]
    return f"{name}: {', '.join(facts)}" if facts else name


def rows_of(stages: Iterable[Any]) -> Rows:
    """Name and options of each stage; stages of pipelines inside are indented."""
    return [row for stage in stages for row in _rows(stage)]


def urls_text(urls: Sequence[str]) -> str:
    """How many shards there are, and the first and the last.

    >>> urls_text(["data/a.tar", "data/b.tar", "data/c.tar"])
    '3 shards, data/a.tar ... c.tar'
    """
    shown = [printable(redacted(str(url)), MOST_CHARACTERS) for url in (*urls[:1], *urls[-1:])]
    if len(urls) < 2:
        return shown[0] if shown else "no shards"
    same = shown[0].rpartition("/")[0] == shown[1].rpartition("/")[0]
    return f"{len(urls):,} shards, {shown[0]} ... {shown[1].rpartition('/')[2] if same else shown[1]}"


def _parts(pipeline: object) -> Sequence[Any]:
    return pipeline.datasets if isinstance(pipeline, Mixture) else getattr(pipeline, "pipeline", ())


def _rows(stage: object) -> Rows:
    if isinstance(stage, ShownPipeline):
        return [(title(stage), ""), *_indented(_parts(stage))]
    return [(_name(stage), _options(stage)), *_indented(_loaded(stage))]


def _indented(stages: Iterable[Any]) -> Rows:
    return [("  " + name, text) for name, text in rows_of(stages)]


def _name(stage: object) -> str:
    if isinstance(stage, Stage):
        return str(stage.filter.__name__).strip("_")
    name = str(getattr(stage, "__name__", None) or type(stage).__name__).removesuffix("_Length")
    return WORDS.get(name, name.strip("_")) or "stage"


def _options(stage: object) -> str:
    if isinstance(stage, Stage):
        given = [_shown(value) for value in stage.args] + [
            f"{name}={_shown(value)}" for name, value in stage.kw.items()
        ]
        return printable(", ".join(given), MOST_CHARACTERS)
    catalogue = getattr(stage, "catalogue", None)
    if catalogue is not None:
        return _catalogue(catalogue, stage)
    urls = getattr(stage, "urls", None)
    if isinstance(urls, (list, tuple)):
        return urls_text(urls)
    if hasattr(stage, "num_workers"):
        return _loading(stage)
    if isinstance(stage, (list, tuple)):
        return counted(len(stage), "item")
    return ", ".join(f"{name}={_shown(value)}" for name, value in _attributes(stage))


def _catalogue(catalogue: Any, stage: object) -> str:
    facts = [urls_text(catalogue.urls), counted(catalogue.total, "sample")]
    if (catalogue.sizes >= 0).all():
        facts.append(size_text(int(catalogue.sizes.sum())))
    return ", ".join([*facts, f"seed={stage.settings.seed!r}"] if hasattr(stage, "settings") else facts)


def _loading(loader: Any) -> str:
    facts = [counted(loader.num_workers, "worker")] if loader.num_workers else ["in this process"]
    if getattr(loader, "batch_size", None) is not None:
        facts.append(f"batch_size={loader.batch_size}")
    return ", ".join(facts)


def _loaded(loader: object) -> Sequence[Any]:
    """The dataset that a loader loads; the workers' side of it wraps the user's."""
    inner = getattr(loader, "dataset", None) if hasattr(loader, "num_workers") else None
    inner = getattr(inner, "dataset", inner)
    return [inner] if isinstance(inner, ShownPipeline) else []


def _attributes(stage: object) -> Iterable[tuple[str, Any]]:
    """Options that a stage object keeps as its attributes, if they are not what they mostly are."""
    for name, value in getattr(stage, "__dict__", {}).items():
        plain = isinstance(value, (bool, int, float, str)) and value not in (False, "", None)
        if not name.startswith("_") and plain and name not in ("epoch", "drawn"):
            yield name, value


def _shown(value: object) -> str:
    inner = getattr(value, "stands_for", value)
    if isinstance(inner, type) or (callable(inner) and hasattr(inner, "__name__")):
        return str(getattr(inner, "__qualname__", inner.__name__)).replace("<locals>.", "")
    if isinstance(inner, str):
        return printable(redacted(repr(inner)), MOST_CHARACTERS)
    from webdataset.base.printing import short_repr

    return printable(short_repr(inner, MOST_CHARACTERS), MOST_CHARACTERS)


def _way(pipeline: Any) -> str:
    if isinstance(pipeline, Mixture):
        weights = pipeline.weights
        kinds = counted(len(pipeline.datasets), "dataset")
        return f"{kinds} in turn" if weights is None else f"{kinds} with weights {', '.join(f'{w:g}' for w in weights)}"
    if not getattr(pipeline, "pipeline", ()):
        return "empty"
    if hasattr(pipeline.pipeline[0], "num_workers"):
        return ""
    return "exact epochs" if getattr(pipeline, "exact", False) else ""


def _length(pipeline: Any) -> str:
    """The length where it costs nothing to say; lengths that must be measured first are left out."""
    if getattr(pipeline, "length", -1) >= 0:
        return f"length {pipeline.length:,}"
    if getattr(pipeline, "nsamples", -1) > 0:
        return f"{counted(pipeline.nsamples, 'item')} per epoch"
    stages = getattr(pipeline, "pipeline", ())
    if not stages or any(behaviour_of(stage).kind == "buckets" for stage in stages) or not hasattr(pipeline, "__len__"):
        return ""
    try:
        return f"length {len(pipeline):,}"
    except Exception:
        return ""


class StateSummary:
    """A saved state in words: what it is the state of, and how far that had come.

    A `state` is a plain dict, so that any file and framework can keep it; this shows one.

    >>> StateSummary({"kind": "exact", "epoch": 2, "step": 10, "of": {}, "topology": {"rank": 0, "world": 8}})
    State of an exact dataset: epoch 2, step 10, rank 0 of 8
    """

    KINDS = {  # noqa: RUF012 - never changed
        "exact": "an exact dataset",
        "stream": "a streamed dataset",
        "loader": "a loader with worker processes",
        "threads": "a loader with threads",
    }

    def __init__(self, state: object) -> None:
        if not isinstance(state, dict) or "kind" not in state:
            raise ValueError(f"this is no state of a dataset: {str(state)[:80]!r}")
        self.state = state

    def facts(self) -> dict[str, str]:
        """What the state says, in the order of interest."""
        state = self.state
        found: dict[str, str] = {name: f"{state[name]}" for name in ("epoch", "step", "position") if name in state}
        if isinstance(state.get("workers"), list):
            found["workers"] = str(len(state["workers"]))
        place = state.get("topology") or {}
        if "rank" in place and "world" in place:
            found["rank"] = f"{place['rank']} of {place['world']}"
        return found

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {text}" for name, text in self.facts().items() if name != "position")
        what = self.KINDS.get(self.state["kind"], printable(str(self.state["kind"]), 40))
        return f"State of {what}: {shown or 'at its beginning'}"

    def _repr_html_(self) -> str:
        what = self.KINDS.get(self.state["kind"], str(self.state["kind"])[:40])
        return table(self.facts().items(), title=f"State of {what}")
