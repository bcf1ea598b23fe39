"""Shards of several datasets, mixed as specified in YAML.

prefix: https://host/
datasets:
  - name: first
    buckets: [bucket]
    shards: ["a-{000..099}.tar"]
    choose: 50           # number of its shards per epoch
  - buckets: [other]
    shards: ["b-{000..009}.tar"]
    resample: 30         # number of draws per epoch, with replacement
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from webdataset.base.behaviour import Behaviour
from webdataset.base.iterables import TorchIterable
from webdataset.base.packages import imported
from webdataset.base.settings import settings
from webdataset.base.workers import make_seed
from webdataset.errors import MissingPackageError, ObsoleteError, SampleError, SecurityError
from webdataset.gopen import gopen
from webdataset.storage.braces import braceexpand
from webdataset.storage.options import StorageOptions
from webdataset.storage.patterns import expanded
from webdataset.storage.streams import MOST_TEXT_BYTES, read_up_to
from webdataset.storage.urls import as_url, check_url_from_data, is_local, shell_expanded

KEYS = frozenset({"name", "shards", "buckets", "resample", "choose", "perepoch"})
MAX_DEPTH = 100


class MSSource:
    """One of the datasets."""

    def __init__(self, name: str = "", perepoch: int = -1, resample: int = -1, urls: list[str] | None = None) -> None:
        self.name = name
        self.perepoch = perepoch
        self.resample = resample
        self.urls = [] if urls is None else urls


class MultiShardSample(TorchIterable):
    """Shards drawn from several datasets in every epoch; a call kept for programs written for version 0.2.

    Args:
        fname: a YAML file with the datasets, or a dict
        storage_options: how servers and stores are reached, as for a WebDataset
    """

    behaviour = Behaviour("holds", "the shards of a YAML file are drawn by chance")

    def __init__(self, fname: object, *, storage_options: Mapping[str, Any] | None = None) -> None:
        if not settings.allow_obsolete:
            raise ObsoleteError(
                "a YAML list of datasets is obsolete", hint="use RandomMix, or set ALLOW_OBSOLETE=1 to read it anyway"
            )
        self.epoch = -1
        self.sources: list[MSSource] = []
        self._options = StorageOptions.of(storage_options)
        self.parse_spec(fname)
        self.rng = random.Random(0)

    def parse_spec(self, fname: object) -> None:
        """Read the sources from `fname`, a dict or a YAML file."""
        origin = "" if isinstance(fname, dict) else as_url(fname)
        spec = fname if isinstance(fname, dict) else read_yaml(origin, self._options)
        if not isinstance(spec, dict) or not isinstance(spec.get("datasets"), list):
            raise SampleError("a list of datasets needs the key 'datasets'", url=origin or None)
        unknown = set(spec) - {"prefix", "buckets", "datasets"}
        if unknown:
            raise SampleError(f"unknown keys in a list of datasets: {sorted(map(str, unknown))}", url=origin or None)
        for entry in spec["datasets"]:
            self.sources.append(_source(entry, spec, origin, self._options))

    def set_epoch(self, seed: int) -> None:
        """Draw the next epoch with this `seed`."""
        self.epoch = seed
        self.rng = random.Random(make_seed("datasets", seed))

    def get_shards_for_epoch(self) -> list[str]:
        """All shards of an epoch, mixed."""
        shards: list[str] = []
        for source in self.sources:
            shards += self._drawn(source)
        self.rng.shuffle(shards)
        return shards

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.set_epoch(self.epoch + 1)
        for url in self.get_shards_for_epoch():
            yield {"url": url}

    def _drawn(self, source: MSSource) -> list[str]:
        if source.resample > 0:
            return self.rng.choices(source.urls, k=source.resample)
        if source.perepoch > 0:
            return self.rng.sample(source.urls, min(source.perepoch, len(source.urls)))
        return list(source.urls)


def read_yaml(url: str, options: StorageOptions | None = None) -> Any:
    """The contents of a YAML file: plain values only."""
    try:
        yaml = imported("yaml")
    except ImportError:
        raise MissingPackageError(
            "reading a YAML list of datasets needs the package pyyaml", hint="pip install 'webdataset[formats]'"
        ) from None
    with gopen(url, storage_options=options) as stream:
        text = read_up_to(MOST_TEXT_BYTES, stream, url)
    if _brackets_deep(text) > MAX_DEPTH:
        raise SampleError(f"its brackets are nested more than {MAX_DEPTH} deep", url=url)  # would take hours to parse
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise SampleError("it uses YAML aliases, of which a few can stand for any amount of data", url=url)
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as exn:
        raise SampleError(f"this is not YAML: {exn}", url=url) from None


def _brackets_deep(text: bytes) -> int:
    """How deep brackets are nested at most, wherever they stand.

    >>> _brackets_deep(b"a: [b, {c: '}'}, [d]]")
    2
    """
    depth = deepest = 0
    for bracket in re.findall(rb"[\[\]{}]", text):
        depth = depth + 1 if bracket in b"[{" else max(depth - 1, 0)
        deepest = max(deepest, depth)
    return deepest


def shards_of_pattern(pattern: str, origin: str, options: StorageOptions | None = None) -> list[str]:
    """The urls of a pattern; one from elsewhere may name no command, no local file and no variable."""
    if not origin or is_local(origin):
        return expanded(shell_expanded(pattern), options)
    try:
        return [check_url_from_data(url, origin) for url in braceexpand(pattern)]
    except SecurityError:
        raise
    except ValueError as exn:
        raise SampleError(str(exn), url=origin) from None


def _source(entry: object, spec: dict[str, Any], origin: str, options: StorageOptions) -> MSSource:
    if not isinstance(entry, dict) or not set(entry) <= KEYS or "shards" not in entry:
        raise SampleError(f"a dataset has 'shards' and some of {sorted(KEYS)}, got {entry!r}", url=origin or None)
    buckets = _words(entry.get("buckets", spec.get("buckets", "")))
    if len(buckets) != 1:
        raise SampleError(f"a dataset needs one bucket, got {buckets}", url=origin or None)
    start = str(spec.get("prefix") or "") + (f"{buckets[0]}/" if buckets[0] else "")
    patterns = [start + shard for shard in _words(entry["shards"])]
    urls = [url for pattern in patterns for url in shards_of_pattern(pattern, origin, options)]
    name = entry.get("name", f"@{buckets[0]}")
    perepoch = entry.get("choose", entry.get("perepoch", -1))
    return MSSource(str(name), int(perepoch or -1), int(entry.get("resample") or -1), urls)


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else [str(value or "")]
