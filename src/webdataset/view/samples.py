"""Samples by number, whatever they come from: a sample knows its fields and their sizes, and reads parts of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, islice
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from webdataset.base.pool import ordered_map
from webdataset.base.reports import Report
from webdataset.errors import LimitError, ShardError
from webdataset.handlers import close
from webdataset.indices.access import SampleReader
from webdataset.indices.catalogue import Catalogue
from webdataset.indices.files import check_fits
from webdataset.indices.openshards import OpenShards
from webdataset.indices.wholeshards import WholeShards
from webdataset.storage.urls import local_path
from webdataset.tar.large import LargeMember, LargeMembers
from webdataset.tariterators import tarfile_samples

if TYPE_CHECKING:
    from webdataset.tar.index import IndexedMember

LARGE = 64 << 20
"""Fields of a stream that are larger are passed over."""
THREADS = 16
MOST_KEPT = 4 << 30
"""Bytes of a stream that are kept to go back to."""


class StoredField(NamedTuple):
    """One field of a sample, not read yet."""

    name: str
    size: int
    read_part: Callable[[int, int], bytes]

    def read(self, limit: int) -> bytes:
        """All its bytes; an error if there are more than the limit."""
        if self.size > limit:
            raise LimitError(f"{self.size:,} bytes are too many to be shown at once, {limit:,} at most")
        return self.read_part(0, self.size)

    def beginning(self, limit: int) -> bytes:
        """Its first bytes."""
        return self.read_part(0, min(self.size, limit))


class StoredSample(NamedTuple):
    """One sample, by its number in the dataset and in its shard."""

    number: int
    key: str
    url: str
    shard: int
    place: int
    fields: dict[str, StoredField]

    @property
    def size(self) -> int:
        """Bytes of all fields."""
        return sum(field.size for field in self.fields.values())


T = TypeVar("T")
R = TypeVar("R")


class SampleList(Protocol):
    """Samples by number."""

    urls: Sequence[str]
    threads: int
    """How many may be read at a time to advantage: more than one where each is a request to a server."""

    def known(self) -> int:
        """How many samples there are, as far as is known."""

    def is_complete(self) -> bool:
        """Whether there are no more than those that are known."""

    def sample(self, number: int) -> StoredSample:
        """A sample; IndexError if there are not as many."""

    def key(self, number: int) -> str:
        """The key of a sample, without reading it."""

    def keys(self, start: int) -> Iterator[str]:
        """The keys from a number on."""

    def find(self, key: str, url: str | None = None) -> int:
        """The number of the first sample with a key, in any shard or in this one; KeyError without one."""

    def close(self) -> None:
        """Release files and connections."""


def each(samples: SampleList, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
    """`map(function, tasks)`, with as many threads as reading these samples is worth."""
    if samples.threads == 1:
        return map(function, tasks)
    return ordered_map(tasks, function, threads=samples.threads, ahead=2 * samples.threads, name="webdataset-view")


class CataloguedSamples:
    """The samples of shards that have an index: any of them is read by ranges."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.urls = catalogue.urls
        self.threads = 1 if all(local_path(url) is not None for url in catalogue.urls[:100]) else THREADS
        self._shards = {url: number for number, url in reversed([*enumerate(catalogue.urls)])}
        self._whole = WholeShards(catalogue.storage_options)
        self._open = OpenShards(self._open_shard)
        self._reader = SampleReader(catalogue)

    def known(self) -> int:
        return self.catalogue.total

    def is_complete(self) -> bool:
        return True

    def sample(self, number: int) -> StoredSample:
        shard, place = self.catalogue.locate(number)
        index = self.catalogue.index(shard)
        fields = {
            member.field: StoredField(member.field, member.size, self._reading(number, shard, member))
            for member in index.members(place)
        }
        return StoredSample(number, index.key(place), self.urls[shard], shard, place, fields)

    def key(self, number: int) -> str:
        shard, place = self.catalogue.locate(number)
        return self.catalogue.index(shard).key(place)

    def keys(self, start: int) -> Iterator[str]:
        if start >= self.catalogue.total:
            return
        first, place = self.catalogue.locate(start)
        for shard in range(first, len(self.urls)):
            yield from islice(self.catalogue.index(shard).keys(), place, None)
            place = 0

    def find(self, key: str, url: str | None = None) -> int:
        if url is None:
            return self.catalogue.find(key)
        shard = self._shards[url]
        return int(self.catalogue.ends[shard] - self.catalogue.counts[shard]) + self.catalogue.index(shard).find(key)

    def close(self) -> None:
        self._open.close()
        self._reader.close()

    def _reading(self, number: int, shard: int, member: IndexedMember) -> Callable[[int, int], bytes]:
        def read_part(start: int, stop: int) -> bytes:
            if member.data_offset < 0:  # a sparse file, which the tar reader puts together
                data: bytes = self._reader.read(number)[member.field]
                return data[start:stop]
            with self._open.lease(shard) as reader:
                return bytes(reader.read(member.data_offset + start, member.data_offset + min(stop, member.size)))

        return read_part

    def _open_shard(self, shard: int) -> Any:
        reader = self._whole.open(self.urls[shard])
        try:
            check_fits(self.catalogue.index(shard), self.urls[shard], reader.size, reader.version)
        except BaseException:
            reader.close()
            raise
        return reader


class NotedReport(Report):
    """A report whose warnings are notes for the page, rather than lines in a terminal that nobody looks at."""

    def __init__(self, notes: list[Exception]) -> None:
        super().__init__(strict=False)
        self._notes = notes

    def warn(self, message: str, **places: Any) -> None:
        """Note a warning about a place in the data."""
        self.counts["warnings"] += 1
        self._notes.append(ShardError(message, **places))


class StreamedSamples:
    """The samples of a stream, read as far as somebody has asked for; a temporary file keeps what was read."""

    threads = 1

    def __init__(self, urls: Sequence[str], *, concatenated: bool = False, most: int = MOST_KEPT) -> None:
        self.urls = urls
        self.errors: list[Exception] = []
        """What could not be read, and was left out."""
        self._shards = {url: number for number, url in reversed([*enumerate(urls)])}
        self._concatenated = concatenated
        self._most = most
        self._file = TemporaryFile()  # noqa: SIM115 - closed in close()
        self._end = 0
        self._kept: list[StoredSample] = []
        self._places: dict[int, int] = {}
        self._lock = threading.Lock()
        self._stream = self._samples()
        self._ended = False

    def known(self) -> int:
        return len(self._kept)

    def is_complete(self) -> bool:
        return self._ended

    def sample(self, number: int) -> StoredSample:
        with self._lock:
            while number >= len(self._kept) and not self._ended:
                self._read_one()
        if not 0 <= number < len(self._kept):
            raise IndexError(f"sample {number} of a stream with {len(self._kept)}")
        return self._kept[number]

    def key(self, number: int) -> str:
        return self.sample(number).key

    def keys(self, start: int) -> Iterator[str]:
        with contextlib.suppress(IndexError):
            for number in count(start):
                yield self.sample(number).key

    def find(self, key: str, url: str | None = None) -> int:
        for number, found in enumerate(self.keys(0)):
            if found == key and url in (None, self._kept[number].url):
                return number
        raise KeyError(key)

    def close(self) -> None:
        with self._lock:
            self._ended = True
            close(self._stream)
            self._file.close()

    def _samples(self) -> Iterator[dict[str, Any]]:
        def remember(error: Exception) -> bool:
            self.errors.append(error)
            return True

        shards = [{"url": url} for url in self.urls]
        passed_over = LargeMembers(lambda _: False, limit=LARGE)
        with NotedReport(self.errors).in_force():
            return tarfile_samples(shards, remember, large=passed_over, concatenated=self._concatenated)

    def _read_one(self) -> None:
        try:
            sample = next(self._stream, None)
        except Exception as error:
            self.errors.append(error)
            sample = None
        if sample is None or self._end > self._most:
            self._ended = True
            if sample is not None:
                self.errors.append(LimitError(f"the view keeps the first {self._most >> 30} GiB of a stream"))
            return
        shard = self._shards.get(sample["__url__"], 0)
        place = self._places[shard] = self._places.get(shard, -1) + 1
        fields = {name: self._keep(name, data) for name, data in sample.items() if not name.startswith("__")}
        self._kept.append(StoredSample(len(self._kept), sample["__key__"], sample["__url__"], shard, place, fields))

    def _keep(self, name: str, data: bytes | LargeMember) -> StoredField:
        if isinstance(data, LargeMember):
            return StoredField(name, data.size, _passed_over)
        start, size = self._end, len(data)
        self._file.seek(start)
        self._file.write(data)
        self._end += size

        def read_part(first: int, stop: int) -> bytes:
            with self._lock:
                self._file.seek(start + first)
                return self._file.read(min(stop, size) - first)

        return StoredField(name, size, read_part)


def _passed_over(start: int, stop: int) -> bytes:  # noqa: ARG001 - stands for reading
    raise LimitError("the field is too large to be kept while the dataset is read as a stream, without an index")
