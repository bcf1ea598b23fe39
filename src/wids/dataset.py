"""A list of shards as a dataset with numbered samples.

>>> import tempfile
>>> from webdataset import TarWriter
>>> with tempfile.TemporaryDirectory() as folder:
...     with TarWriter(f"{folder}/a.tar") as sink:
...         sizes = [sink.write({"__key__": f"s{i}", "cls": i}) for i in range(10)]
...     with ShardListDataset([{"url": f"{folder}/a.tar", "nsamples": 10}]) as dataset:
...         len(dataset), dataset[7][".cls"]
(10, 7)
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from webdataset.autodecode import Decoder, imagehandler
from webdataset.base.logs import Log
from webdataset.base.settings import settings
from webdataset.cache import FileCache
from webdataset.gopen import open_ranges
from webdataset.indices.access import SampleReader
from webdataset.indices.catalogue import Catalogue
from webdataset.storage.cache.names import unique_cache_name
from webdataset.storage.options import StorageOptions
from webdataset.storage.ranges import RangeReader
from webdataset.storage.urls import is_local

from .specs import read_specs

if TYPE_CHECKING:
    import numpy as np

Sample = dict[str, Any]
Transform = Callable[[Sample], Sample]

log = Log("wids")


class ShardListDataset:
    """Samples by number: dicts of `__key__`, fields with a leading dot (`.jpg`), and where the sample is from.

    `shards` is a list of `{"url", "nsamples"}`, or the path or url of a JSON file that has one. Remote shards are read
    by ranges; with `cache_dir` (or `WIDS_CACHE`) they are kept whole in that folder, `cache_size` bytes at most, under
    the name that `localname(url)` returns. `transformations` is "PIL" or another image spec, which decodes fields by
    their extension, or one or several functions of the sample; fields that nothing decodes are `io.BytesIO`. `base` is
    what relative urls are relative to, `dataset_name` which dataset of a JSON file with several. `storage_options` say
    how servers and stores are reached, as for a WebDataset.
    With `concatenated` a shard may be several archives, put together with `cat`.
    `lru_size`, `keep` and `options` are accepted for old programs.
    """

    def __init__(
        self,
        shards: object,
        *,
        cache_size: float = 1e12,
        cache_dir: str | None = None,
        lru_size: int = 10,  # noqa: ARG002 - open files are bounded anyway
        dataset_name: str | None = None,
        localname: Callable[[str], str] | None = None,
        transformations: object = "PIL",
        keep: bool = False,  # noqa: ARG002 - what is cached is kept
        base: str | None = None,
        options: object = None,  # noqa: ARG002 - had no meaning
        storage_options: Mapping[str, Any] | None = None,
        concatenated: bool = False,
    ) -> None:
        given = StorageOptions.of(storage_options)
        specs = read_specs(shards, base=base, dataset_name=dataset_name, storage_options=given)
        self.shards = specs.rows
        self.dataset_name = specs.name
        self.lengths = [shard.samples for shard in specs.shards]
        reached = given.for_list(shards)
        self._copies = _copies(cache_dir or settings.wids_cache, cache_size, localname, reached)
        reading: dict[str, Any] = {"concatenated": concatenated or specs.concatenated, "storage_options": reached}
        self.catalogue = Catalogue(specs.shards, local_copy=self._copies and self._copies.path, **reading)
        self._reader = SampleReader(self.catalogue, open_range=self._copies)
        self.transformations = _transformations(transformations)
        self._accesses = 0
        self._shards_seen: set[int] = set()
        if settings.wids_verbose:
            log.warning("%s: %d shards, %d samples", self.dataset_name, len(specs.shards), len(self))

    @property
    def cum_lengths(self) -> np.ndarray[Any, Any]:
        """How many samples there are up to the end of each shard."""
        return self.catalogue.ends

    @property
    def total_length(self) -> int:
        """The number of samples."""
        return self.catalogue.total

    def __len__(self) -> int:
        return self.catalogue.total

    def __getitem__(self, index: int) -> Sample:
        """Sample number `index`, decoded; from the end if it is negative."""
        total = len(self)
        number = int(index) + total if index < 0 else int(index)
        if not 0 <= number < total:
            raise IndexError(f"sample {index} of a dataset with {total}")
        shard, place = self.catalogue.locate(number)
        self._accesses += 1
        self._shards_seen.add(shard)
        sample: Sample = {}
        for name, value in self._reader.read(number).items():
            if not name.startswith("__"):
                sample["." + name] = io.BytesIO(value)
            elif name == "__key__":
                sample[name] = value
        sample["__dataset__"] = self.dataset_name
        sample["__index__"] = number
        sample["__shard__"] = self.catalogue.urls[shard]
        sample["__shardindex__"] = place
        for transform in self.transformations:
            sample = transform(sample)
        return sample

    def __iter__(self) -> Iterator[Sample]:
        for number in range(len(self)):
            yield self[number]

    def add_transform(self, transform: Transform) -> ShardListDataset:
        """Apply the function `transform` to every sample, after those that are there."""
        self.transformations = [*self.transformations, transform]
        return self

    def get_stats(self) -> tuple[int, int]:
        """How many samples were read, and how many shards they were in."""
        return self._accesses, len(self._shards_seen)

    def close(self) -> None:
        """Close all shards."""
        self._reader.close()

    def __enter__(self) -> ShardListDataset:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


class _Copies:
    """Shards kept whole on this machine; a call opens one."""

    def __init__(self, folder: str, size: float, name: Callable[[str], str], options: StorageOptions) -> None:
        self._cache = FileCache(folder, cache_size=size, url_to_name=name, storage_options=options)

    def path(self, url: str) -> str:
        return url if is_local(url) else self._cache.get_file(url)

    def __call__(self, url: str) -> Any:
        return open_ranges(url) if is_local(url) else RangeReader(self.path(url), cached=True)


def _copies(
    folder: str | None, size: float, name: Callable[[str], str] | None, options: StorageOptions
) -> _Copies | None:
    return None if folder is None else _Copies(folder, size, name or unique_cache_name, options)


class _Decoding:
    """Decodes the fields that are still streams."""

    def __init__(self, imagespec: str) -> None:
        self._decoder = Decoder([imagehandler(imagespec.lower())])

    def __call__(self, sample: Sample) -> Sample:
        return {name: self._value(sample, name, value) for name, value in sample.items()}

    def _value(self, sample: Sample, name: str, value: object) -> Any:
        if not isinstance(value, io.BytesIO):
            return value
        data = value.getvalue()
        named = {"__key__": sample.get("__key__"), "__url__": sample.get("__shard__"), name: data}
        decoded = self._decoder(named)[name]
        return value if decoded is data else decoded


def _transformations(given: Any) -> list[Transform]:
    """The functions of the sample that are given, by name or as they are; none for None."""
    if given is None:
        return []
    if isinstance(given, str) or callable(given):
        given = [given]
    many: Iterable[Any] = given
    return [_Decoding(one) if isinstance(one, str) else one for one in many]
