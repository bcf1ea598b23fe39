"""Mix samples of several datasets, as a YAML file describes; the format is tarmix's.

sources:
  - shards: "a-{000..099}.tar"   # or a list of them
    weight: 3                    # or probability: how often a sample is taken from here
    nstreams: 4                  # shards that are open at once
    nrepeats: 2                  # how often all of it is read
    shuffle: 1000                # buffer size
    allow_missing: true          # skip missing shards
  - shards: [b.tar, c.tar]

>>> mixture_sources({"sources": [{"shards": "a-{0..1}.tar", "weight": 3}, {"shards": ["b.tar"]}]})[0].shards
['a-0.tar', 'a-1.tar']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from webdataset.errors import MissingShardError, SampleError
from webdataset.filters import shuffle
from webdataset.handlers import Handler, checked_handler, reraise_exception
from webdataset.mix import RandomMix, round_robin_longest
from webdataset.pipeline import DataPipeline
from webdataset.shardlists.mixture import read_yaml, shards_of_pattern
from webdataset.tariterators import tarfile_samples

Sample = dict[str, Any]

KEYS = frozenset({"shards", "weight", "probability", "nstreams", "nrepeats", "shuffle", "allow_missing"})


class MixtureSource(NamedTuple):
    """One of the datasets."""

    shards: list[str]
    weight: float = 1.0
    streams: int = 1
    repeats: int = 1
    shuffle: int = 0
    allow_missing: bool = False


def read_mixture(url: str) -> list[MixtureSource]:
    """Read the sources in a YAML file."""
    return mixture_sources(read_yaml(url), url)


def mixture_sources(spec: object, origin: str = "") -> list[MixtureSource]:
    """Parse the sources of such a file; `origin` is its url."""
    entries = spec.get("sources") if isinstance(spec, dict) else spec
    if not isinstance(entries, list) or not entries:
        raise SampleError("a mixture is a list of sources, under the key 'sources'", url=origin or None)
    return [_source(entry, origin) for entry in entries]


def mixed(
    sources: Sequence[MixtureSource],
    *,
    seed: int | None = None,
    handler: Handler = reraise_exception,
    concatenated: bool = False,
) -> DataPipeline:
    """Return all samples of all sources, each time one from a source drawn by its weight."""
    parts = [partial(_samples, source, handler, seed, concatenated=concatenated) for source in sources]
    return DataPipeline(partial(_drawn, parts, [source.weight for source in sources], seed))


def in_turn(
    shards: Iterable[Sample], streams: int, handler: Handler = reraise_exception, *, concatenated: bool = False
) -> Iterator[Sample]:
    """Yield a sample of each stream in turn; each stream has a part of the shards."""
    urls = list(shards)
    parts = (urls[n::streams] for n in range(min(streams, len(urls))))
    return round_robin_longest(*(tarfile_samples(part, handler, concatenated=concatenated) for part in parts))


def _drawn(parts: list[Any], weights: list[float], seed: int | None) -> Iterator[Sample]:
    return iter(RandomMix([part() for part in parts], weights, longest=True, seed=seed))


def _samples(source: MixtureSource, handler: Handler, seed: int | None, *, concatenated: bool) -> Iterator[Sample]:
    if source.allow_missing:
        handler = _Missing(handler)
    urls = [{"url": url} for url in source.shards] * source.repeats
    samples = in_turn(urls, source.streams, handler, concatenated=concatenated)
    return shuffle(source.shuffle, initial=source.shuffle, seed=seed)(samples) if source.shuffle else samples


class _Missing:
    """Skips missing shards, and passes other errors on."""

    def __init__(self, handler: Handler) -> None:
        self.handler = checked_handler(handler)

    def __call__(self, error: Exception) -> object:
        return isinstance(error, MissingShardError) or self.handler(error)


def _source(entry: object, origin: str) -> MixtureSource:
    place = origin or None
    if not isinstance(entry, dict) or not set(entry) <= KEYS or not entry.get("shards"):
        raise SampleError(f"a source has 'shards' and some of {' '.join(sorted(KEYS))}, got {entry!r}", url=place)
    if "weight" in entry and "probability" in entry:
        raise SampleError("a source has a weight or a probability, not both", url=place)
    patterns = entry["shards"] if isinstance(entry["shards"], list) else [entry["shards"]]
    shards = [url for pattern in patterns for url in shards_of_pattern(str(pattern), "" if origin == "-" else origin)]
    try:
        weight = float(entry.get("probability", 1.0) if "weight" not in entry else entry["weight"])
        numbers = [int(entry.get(name, least)) for name, least in (("nstreams", 1), ("nrepeats", 1), ("shuffle", 0))]
    except (TypeError, ValueError) as error:
        raise SampleError(f"a source of a mixture has an invalid number: {error}", url=place) from None
    if not 0 < weight < float("inf") or numbers[0] < 1 or numbers[1] < 1 or numbers[2] < 0:
        raise SampleError(f"the numbers of a source must be positive, got {entry!r}", url=place)
    streams, repeats, buffer = numbers
    return MixtureSource(shards, weight, streams, repeats, buffer, bool(entry.get("allow_missing", False)))
