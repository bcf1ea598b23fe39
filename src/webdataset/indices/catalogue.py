"""The shards of a dataset with the number of samples in each, and their indices.

A catalogue is kept as JSON in the format of wids (`wids-shard-index-v1`), each shard with its size and version.
"""

from __future__ import annotations

import copy
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsInt
from urllib.parse import urljoin, urlsplit

from webdataset.base.units import counted
from webdataset.errors import ShardError, WebDatasetError
from webdataset.gopen import gopen
from webdataset.storage.cache.names import without_secrets
from webdataset.storage.options import StorageOptions
from webdataset.storage.streams import MOST_LIST_BYTES, read_up_to
from webdataset.storage.urls import as_url, check_url_from_data, is_local, local_path, scheme_of
from webdataset.tar.index import ShardIndex, key_hash
from webdataset.tariterators import SplitName, base_plus_ext

from . import files
from .rules import ReadingRules

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

KIND = "wids-shard-index-v1"
INDICES_HELD = 8
SAMPLES_HELD = 1 << 20
"""Indices that are held in memory: at least INDICES_HELD, and more as long as they have no more samples than this."""
ASSUMED_SAMPLE_BYTES = 100_000
"""The size of a sample in a list without any sizes; only the plan of an epoch depends on it."""
MAX_HASHES_HELD = 64 << 20
SHARDS_SHOWN = 20


class Shard(NamedTuple):
    """One shard of a catalogue."""

    url: str
    samples: int
    size: int = -1
    """Bytes; -1 where that is not known."""
    version: str | None = None


class Catalogue:
    """Shards, in order, and how many samples each has.

    Args:
        shards: the url, the number of samples, the bytes (-1 if unknown) and the version (or None) of each
        keys: a function that splits a member's name into key and field
        where: where indices are kept: "beside", "cache" or a folder
        local_copy: a function of a url that returns the path of a local copy, or None
        storage_options: how servers and stores are reached, as for a WebDataset
        concatenated: whether shards may be several archives, put together with `cat`

    >>> catalogue = Catalogue([Shard("a.tar", 10, 20480), Shard("b.tar", 5, 10240)])
    >>> catalogue.total, catalogue.locate(12), catalogue.counts.tolist()
    (15, (1, 2), [10, 5])
    """

    def __init__(
        self,
        shards: Iterable[Shard | tuple[str, int, int, str | None]],
        *,
        keys: SplitName = base_plus_ext,
        where: str | None = None,
        local_copy: Callable[[str], str | None] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        concatenated: bool = False,
    ) -> None:
        import numpy as np

        rows = list(shards)
        self.urls: Sequence[str] = [row[0] for row in rows]
        self.counts: Array = np.array([row[1] for row in rows], np.int64)
        self.sizes: Array = np.array([row[2] for row in rows], np.int64)
        self.versions: list[str | None] = [row[3] for row in rows]
        self.keys = keys
        self.where = where
        self.local_copy = local_copy
        """Returns the path of a local copy of a remote shard, from which its index is made, or None."""
        self.storage_options = StorageOptions.of(storage_options)
        """How the shards and their indices are reached; not kept by `save`."""
        self.concatenated = concatenated
        """Whether samples behind an end marker are counted: a shard may be several archives."""
        self._hold_nothing()

    def __len__(self) -> int:
        return len(self.urls)

    def __repr__(self) -> str:
        return f"Catalogue({counted(len(self), 'shard')}, {counted(self.total, 'sample')})"

    def _repr_html_(self) -> str:
        from webdataset.base.redact import redacted
        from webdataset.base.units import size_text
        from webdataset.display.markup import number_text, table

        columns = zip(self.urls, self.counts.tolist(), self.sizes.tolist(), strict=True)
        rows = [
            (redacted(url), number_text(count), size_text(size) if size >= 0 else "")
            for url, count, size in islice(columns, SHARDS_SHOWN)
        ]
        if len(self) > SHARDS_SHOWN:
            rows.append((f"... and {len(self) - SHARDS_SHOWN:,} more", "", ""))
        return table(rows, head=("shard", "samples", "size"), title=f"{len(self):,} shards, {self.total:,} samples")

    def __getstate__(self) -> dict[str, Any]:
        kept = ("urls", "counts", "sizes", "versions", "keys", "where", "local_copy", "storage_options", "concatenated")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._hold_nothing()

    def using(self, options: StorageOptions) -> Catalogue:
        """The same catalogue, its shards and indices reached with these `options`."""
        if not options or options == self.storage_options:
            return self
        found = copy.copy(self)
        found.storage_options = options
        return found

    def _hold_nothing(self) -> None:
        self._held: OrderedDict[int, ShardIndex] = OrderedDict()
        self._samples_held = 0
        self._hashes: dict[int, Array] = {}
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """The number of samples."""
        return int(self.ends[-1]) if len(self) else 0

    @cached_property
    def ends(self) -> Array:
        """How many samples there are up to the end of each shard."""
        return self.counts.cumsum()

    @cached_property
    def planned_sizes(self) -> Array:
        """The size of each shard in bytes; where a list does not say it, as many per sample as in the other shards."""
        import numpy as np

        known = self.sizes >= 0
        samples = int(self.counts[known].sum())
        mean = int(self.sizes[known].sum()) // samples if samples else ASSUMED_SAMPLE_BYTES
        return np.where(known, self.sizes, self.counts * mean)

    def locate(self, i: int) -> tuple[int, int]:
        """The shard of sample `i`, counted over all shards, and its number in that shard."""
        if not 0 <= i < self.total:
            raise IndexError(f"sample {i} of a dataset with {self.total}")
        shard = int(self.ends.searchsorted(i, side="right"))
        return shard, int(i - (self.ends[shard] - self.counts[shard]))

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard, `shard` being its number; found where it is kept, or made again if it is gone."""
        with self._lock:
            index = self._held.get(shard)
            if index is not None:
                self._held.move_to_end(shard)
                return index
        index = self._load(shard)
        with self._lock:
            if shard not in self._held:  # another thread may have been faster
                self._held[shard] = index
                self._samples_held += index.samples
            while len(self._held) > INDICES_HELD and self._samples_held > SAMPLES_HELD:
                self._samples_held -= self._held.popitem(last=False)[1].samples
        return index

    def find(self, key: str) -> int:
        """The number of the first sample with this `key`; KeyError without one."""
        wanted, before = key_hash(key), 0
        for shard, count in enumerate(self.counts.tolist()):
            if (self._hashes_of(shard) == wanted).any():
                try:
                    return before + self.index(shard).find(key)
                except KeyError:
                    pass
            before += count
        raise KeyError(key)

    def fingerprint(self) -> str:
        """What identifies the data: the same for shards of the same names, sizes and counts, wherever they are.

        >>> one, other = Catalogue([Shard("/data/a.tar", 9, 99)]), Catalogue([Shard("s3://bucket/a.tar", 9, 99)])
        >>> one.fingerprint() == other.fingerprint()
        True
        """
        import hashlib

        digest = hashlib.blake2b(digest_size=16)
        digest.update("\0".join(map(_base_name, self.urls)).encode("utf-8", "surrogateescape"))
        for column in (self.counts, self.sizes):
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, name: str | None = None) -> None:
        """Keep the catalogue as a JSON file, whose urls are relative to it where they are in its folder or below.

        The file may be anything that can be written, as `s3://bucket/train.json`; urls are then written in full.

        Args:
            path: the path or url of the file
            name: the name of the dataset, if it is not the file's
        """
        url = as_url(path)
        local = local_path(url)
        target = None if local is None else os.path.abspath(local)
        folder = None if target is None else os.path.dirname(target)
        text = json.dumps(self.as_wids(name or _base_name(url).partition(".")[0], folder), indent=1)
        data = text.encode("utf-8", "surrogateescape")
        if target is not None:
            # what is left of a query may still be somebody's secret, under a name that nobody knows
            private = any("?" in url or "@" in url for url in self.urls if local_path(url) is None)
            files.write_whole(target, data, mode=0o600 if private else 0o666)
            return
        with gopen(url, "wb", storage_options=self.storage_options) as stream:
            stream.write(data)

    def as_wids(self, name: str, folder: str | None = None) -> dict[str, Any]:
        """The catalogue as wids' JSON describes it; user names, passwords and signatures are left out.

        Args:
            name: the name of the dataset
            folder: the folder to which urls are relative
        """
        rows = zip(self.urls, self.counts.tolist(), self.sizes.tolist(), self.versions, strict=True)
        shards = [
            {"url": _relative(url, folder), "nsamples": count}
            | ({"filesize": size} if size >= 0 else {})
            | ({"version": version} if version else {})
            for url, count, size, version in rows
        ]
        reading = {"concatenated": True} if self.concatenated else {}
        return {"__kind__": KIND, "wids_version": 1, "name": name, **reading, "shardlist": shards}

    @classmethod
    def load(
        cls,
        path: object,
        *,
        keys: SplitName = base_plus_ext,
        storage_options: Mapping[str, Any] | None = None,
        concatenated: bool = False,
    ) -> Catalogue:
        """The catalogue in a JSON file, also one that wids made; relative urls start where the file is.

        Args:
            path: the path or url of the file
            keys: a function that splits a member's name into key and field
            storage_options: how servers and stores are reached, as for a WebDataset
            concatenated: whether shards may be several archives, put together with `cat`
        """
        url = as_url(path)
        options = StorageOptions.of(storage_options)
        with gopen(url, storage_options=options) as stream:
            data = read_up_to(MOST_LIST_BYTES, stream, url)
        try:
            found = json.loads(data)
            if not isinstance(found, dict) or not isinstance(found.get("shardlist"), list):
                raise ValueError("there is no shardlist in it")
            base = found.get("base") or None
            rows = [shard_of_row(item, url, base) for item in found["shardlist"]]
        except WebDatasetError:
            raise
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ShardError(f"this is no {KIND}: {error}", url=url) from None
        several = concatenated or found.get("concatenated") is True
        return cls(rows, keys=keys, storage_options=options.for_list(url), concatenated=several)

    # -- indices -----------------------------------------------------------------------------------

    def _load(self, shard: int) -> ShardIndex:
        index = files.kept_index(
            self.urls[shard],
            ReadingRules(self.keys, self.storage_options, self.concatenated),
            where=self.where,
            version=self.versions[shard],
            local_copy=self.local_copy,
        )
        count = int(self.counts[shard])
        if index.samples != count:
            raise files.StaleIndexError(
                f"the shard has {index.samples} samples, the catalogue says {count}",
                url=self.urls[shard],
                shard=shard,
                hint="the shard was replaced; make the catalogue or the dataset again",
            )
        return index

    def _hashes_of(self, shard: int) -> Array:
        """The hashes of a shard's keys, held in memory for all shards as long as they are not too many."""
        found = self._hashes.get(shard)
        if found is None:
            found = self.index(shard).key_hashes
            if self.total <= MAX_HASHES_HELD:
                found = self._hashes[shard] = found.copy()
        return found


MAX_NUMBER = (1 << 56) - 1
"""Of samples or bytes of a shard; sums over a hundred shards still fit 64 bits."""


def shard_of_row(item: dict[str, Any], origin: str, base: str | None) -> Shard:
    """A shard of a list that comes from `origin`: its url in full, and refused if it may not be named there."""
    url = _absolute(str(item["url"]), origin, base)
    size = item.get("filesize")
    version = item.get("version")
    samples = _number(item["nsamples"])
    return Shard(url, samples, -1 if size is None else _number(size), None if version is None else str(version))


def _number(value: SupportsInt | str) -> int:
    number = int(value)
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"a shard cannot have {value} samples or bytes")
    return number


def _absolute(url: str, origin: str, base: str | None) -> str:
    """The url of a shard that a file names, which may be relative to the file or to the base that it states."""
    if scheme_of(url) == "" and not os.path.isabs(url):
        start = base if base is not None else _folder(origin)
        if start:
            url = _joined(start, url)
    return check_url_from_data(url, origin)


def _folder(url: str) -> str:
    path = local_path(url)
    if path is not None:
        return os.path.dirname(path)
    return urljoin(url, ".") if scheme_of(url) in ("http", "https") else url.rpartition("/")[0]


def _joined(start: str, url: str) -> str:
    return os.path.join(start, url) if is_local(start) else f"{start.rstrip('/')}/{url}"


def _relative(url: str, folder: str | None) -> str:
    path = local_path(url)
    if path is None:
        return without_secrets(url)
    full = os.path.abspath(path)
    if folder is not None and full.startswith(os.path.join(folder, "")):
        return os.path.relpath(full, folder)
    return full


def _base_name(url: str) -> str:
    path = local_path(url)
    return (urlsplit(url).path if path is None else path).rpartition("/")[2]
