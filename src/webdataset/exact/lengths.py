"""How long samples are, for batches of similar length: the bytes of a field by the index, or measured once and kept.

What a function says of a sample, or how long a field is once it is decoded, takes reading the data. That is done once,
and kept in the cache folder, a small file for each shard that names the shard's version: from then on all ranks know
all lengths without reading, as they know the bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from webdataset.base.logs import Log
from webdataset.base.pool import ordered_map
from webdataset.base.reports import Report
from webdataset.base.settings import settings
from webdataset.base.stages import start
from webdataset.epochs.mixed import Mixed
from webdataset.epochs.numbers import Array
from webdataset.errors import SampleError, WebDatasetError
from webdataset.handlers import close
from webdataset.indices.files import fits_version, full_url, one_at_a_time, write_whole
from webdataset.storage.cache.names import unique_cache_name
from webdataset.storage.local import open_local

if TYPE_CHECKING:
    from webdataset.tar.index import ShardIndex

log = Log(__name__)

PIECE = 16 << 20
"""Bytes of a shard that are read at a time."""


class Measure:
    """A function of samples, after the stages before it, and the name under which its results are kept."""

    def __init__(self, name: str, stages: Sequence[Any], key: str | Callable[[Any], float]) -> None:
        self.name = name
        self.stages = stages
        self.length: Callable[[Any], float] = key if callable(key) else lambda sample: len(sample[key])

    def of(self, sample: object, own: Sequence[Any]) -> float:
        """The length of a sample, with the stages of its own dataset; 0 if they leave nothing of it."""
        items: Iterator[Any] = iter([sample])
        for stage in (*own, *self.stages):
            items = iter(start(stage, items))
        return max((float(self.length(item)) for item in items), default=0.0)


class Lengths:
    """The lengths of the samples of some datasets: `sources` have `shards` and `stages` of their own.

    They are the bytes of `field`, which the index knows, or what a measure says.
    """

    def __init__(self, sources: Sequence[Any], field: str, measure: Measure | None) -> None:
        self._sources = sources
        self._field = field
        self._measure = measure
        self._known: dict[tuple[int, int], Array] = {}

    def at(self, epoch: Mixed, positions: Array) -> Array:
        """The lengths of the samples at positions of an epoch: whole numbers, if they are bytes."""
        import numpy as np

        parts, shards, numbers = epoch.locate(positions)
        lengths = np.zeros(len(positions), np.int64 if self._measure is None else np.float64)
        order = np.lexsort((shards, parts))
        changes = np.flatnonzero((np.diff(shards[order]) != 0) | (np.diff(parts[order]) != 0)) + 1
        groups = np.split(order, changes)
        for here in self._turned(groups):
            part, shard = int(parts[here[0]]), int(shards[here[0]])
            lengths[here] = self._of_shard(part, shard)[numbers[here]]
        return lengths

    def _turned(self, groups: list[Array]) -> list[Array]:
        """Ranks begin with different shards, so that those of one machine do not measure the same ones."""
        if self._measure is None:
            return groups
        rank, world = self._sources[0].shards.rank_and_world()
        first = rank * len(groups) // world
        return groups[first:] + groups[:first]

    def _of_shard(self, part: int, shard: int) -> Array:
        catalogue = self._sources[part].shards.catalogue
        if self._measure is not None:
            if (part, shard) not in self._known:
                self._known[part, shard] = self._kept(self._sources[part], shard, self._measure)
            return self._known[part, shard]
        found = catalogue.index(shard).field_bytes(self._field)
        if (found < 0).any():
            url = catalogue.urls[shard]
            raise SampleError("a sample has no such field to be bucketed by", url=url, field=self._field)
        return found

    def _kept(self, source: Any, shard: int, measure: Measure) -> Array:
        """The measured lengths of a shard's samples, which are kept from now on."""
        url, index = source.shards.catalogue.urls[shard], source.shards.catalogue.index(shard)
        identity = source.shards.catalogue.storage_options.identity(url)
        name = unique_cache_name(f"{full_url(url)}#{measure.name}", identity)
        path = os.path.join(settings.indices_dir, "lengths", f"{name}.wdl")
        if (found := _read(path, index)) is not None:
            return found
        with one_at_a_time(f"{url}#{measure.name}"):
            if (found := _read(path, index)) is not None:  # another process has measured it meanwhile
                return found
            log.info("measuring the samples of %s", url)
            lengths = _measured(source, shard, index, measure)
            _write(path, index, lengths)
        return lengths


def _measured(source: Any, shard: int, index: ShardIndex, measure: Measure) -> Array:
    import numpy as np

    report = Report()
    lengths: list[float] = []
    with closing(source.shards.samples(report)) as samples, report.in_force():
        pieces = ordered_map(_pieces(index), lambda numbers: samples.read(shard, numbers), threads=1, ahead=2)
        try:
            for piece in pieces:
                lengths += [0.0 if sample is None else measure.of(sample, source.stages) for sample in piece]
        finally:
            close(pieces)
    return np.array(lengths, np.float64)


def _pieces(index: ShardIndex) -> Iterator[range]:
    """Runs of samples of some megabytes."""
    starts, first = index.starts, 0
    while first < index.samples:
        last = int(starts.searchsorted(starts[first] + PIECE, side="right")) - 1
        stop = min(max(last, first + 1), index.samples)
        yield range(first, stop)
        first = stop


def _read(path: str, index: ShardIndex) -> Array | None:
    """The lengths in a file, if they are those of this version of the shard."""
    import numpy as np

    try:
        with open_local(path) as file:
            head = json.loads(file.readline())
            lengths = np.frombuffer(file.read(), "<f8")
        fits = head["size"] == index.size and fits_version(head["version"], index.version)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, WebDatasetError):
        return None
    return lengths if fits and len(lengths) == index.samples else None


def _write(path: str, index: ShardIndex, lengths: Array) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    head = json.dumps({"size": index.size, "version": index.version})
    write_whole(path, head.encode() + b"\n" + lengths.astype("<f8").tobytes())
