"""Samples by number and by key: each is read by ranges, without what stands before it.

>>> import tempfile
>>> from webdataset.indices.making import index
>>> from webdataset.writer import TarWriter
>>> with tempfile.TemporaryDirectory() as folder:
...     with TarWriter(f"{folder}/a.tar") as sink:
...         sizes = [sink.write({"__key__": f"s{i}", "cls": i}) for i in range(10)]
...     with SampleReader(index(f"{folder}/a.tar")) as samples:
...         samples[7]["cls"], samples["s3"]["cls"], [sample["__key__"] for sample in samples[8:]]
(b'7', b'3', ['s8', 's9'])
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from webdataset.base.reports import Report
from webdataset.base.stops import Stop
from webdataset.base.units import counted
from webdataset.handlers import reraise_exception
from webdataset.storage.urls import local_path
from webdataset.tar.index import IndexedMember, ShardIndex
from webdataset.tar.reader import read_members
from webdataset.tariterators import Grouping, Sample

from .catalogue import Catalogue
from .files import check_fits
from .openshards import OpenShards
from .wholeshards import WholeShards

LOCAL_GAP = 64 << 10
REMOTE_GAP = 512 << 10
"""Wanted bytes with at most this many unwanted ones between them are read at once."""
MOST_AT_ONCE = 32 << 20
CONNECTIONS = 8
END = bytes(1024)


class SampleReader:
    """Reads samples of a catalogue in any order; each is the same dict as from iterating over its shard.

    `fields` names the fields that are wanted: others are not read where that saves bytes. `open_range(url)` opens a
    shard, and may open a local copy of it. Threads may share a reader; a process that gets a copy opens its own files.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        fields: Iterable[str] | None = None,
        open_range: Callable[[str], Any] | None = None,
    ) -> None:
        if not isinstance(catalogue, Catalogue):
            raise TypeError(f"SampleReader takes a catalogue, as wds.index(urls) returns it, got {catalogue!r}")
        self.catalogue = catalogue
        self.fields = None if fields is None else frozenset(fields)
        self._open_range = open_range or WholeShards(catalogue.storage_options).open
        self._shards = OpenShards(self._open_shard)

    def __len__(self) -> int:
        return self.catalogue.total

    def __repr__(self) -> str:
        fields = "" if self.fields is None else f", fields {' '.join(sorted(self.fields))}"
        return f"SampleReader({counted(len(self.catalogue), 'shard')}, {counted(len(self), 'sample')}{fields})"

    def _repr_html_(self) -> str:
        return self.catalogue._repr_html_()

    def __getitem__(self, which: int | str | slice) -> Any:
        """A sample by number, also from the end, or by key; a list of samples for a slice."""
        if isinstance(which, slice):
            return self.read_many(range(*which.indices(len(self))))
        return self.read(self.catalogue.find(which) if isinstance(which, str) else which)

    def read(self, i: int) -> Sample:
        """Sample number `i`, counted over all shards; from the end if it is negative."""
        return self.read_many([i])[0]

    def read_many(self, numbers: Sequence[int]) -> list[Sample]:
        """The samples with these `numbers`, in this order; neighbours are read together."""
        found: dict[int, Sample] = {}
        wanted: dict[int, list[tuple[int, int]]] = {}
        for i in numbers:
            number = self._checked(i)
            shard, place = self.catalogue.locate(number)
            wanted.setdefault(shard, []).append((place, number))
        for shard, places in wanted.items():
            distinct = dict(places)
            samples = self._read_shard(shard, sorted(distinct))
            found.update(zip((distinct[place] for place in sorted(distinct)), samples, strict=True))
        results, given = [], set[int]()
        for i in numbers:
            number = self._checked(i)
            # no two results are the same dict, since stages change samples in place
            results.append(dict(found[number]) if number in given else found[number])
            given.add(number)
        return results

    def close(self) -> None:
        """Close all shards."""
        self._shards.close()

    def __enter__(self) -> SampleReader:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"catalogue": self.catalogue, "fields": self.fields, "open_range": self._open_range}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state.pop("catalogue"), **state)  # type: ignore[misc]

    def _checked(self, i: int) -> int:
        total = len(self)
        if not -total <= i < total:
            raise IndexError(f"sample {i} of a dataset with {total}")
        return int(i) % total

    def _open_shard(self, shard: int) -> Any:
        url = self.catalogue.urls[shard]
        reader = self._open_range(url)
        try:
            check_fits(self.catalogue.index(shard), url, reader.size, reader.version)
        except BaseException:
            reader.close()
            raise
        return reader

    def _read_shard(self, shard: int, numbers: list[int]) -> list[Sample]:
        url, index = self.catalogue.urls[shard], self.catalogue.index(shard)
        path = local_path(url)
        places: Sample = {"__url__": url} if path is None else {"__url__": url, "__local_path__": path}
        wanted = [_Wanted.of(index, number, self.fields) for number in numbers]
        ranges = [(start, stop) for sample in wanted for start, stop in sample.ranges]
        with self._shards.lease(shard) as reader:
            pieces = _Pieces(reader, ranges, LOCAL_GAP if path is not None else REMOTE_GAP)
            return [self._sample(index, sample, pieces, places) for sample in wanted]

    def _sample(self, index: ShardIndex, wanted: _Wanted, pieces: _Pieces, places: Sample) -> Sample:
        if wanted.members is None:
            return self._parse(pieces.bytes(*wanted.ranges[0]), places)
        sample = {"__key__": index.key(wanted.number), **places}
        for member in wanted.members:
            sample[member.field] = pieces.bytes(member.data_offset, member.data_offset + member.size)
        return sample

    def _parse(self, data: bytes, places: Sample) -> Sample:
        """The sample in a piece of tar."""
        report = Report(strict=False)
        grouping = Grouping(self.catalogue.keys, True, None, reraise_exception, report)
        windows = read_members(io.BytesIO(data + END), url=places["__url__"], report=report, concatenated=True)
        sample = next(grouping.samples(windows, places))
        kept = ("__key__", *places)
        return {name: value for name, value in sample.items() if self._wants(name) or name in kept}

    def _wants(self, field: str) -> bool:
        return self.fields is None or field in self.fields


class _Wanted(NamedTuple):
    """What to read of a sample: these members, or all of it where None stands for them."""

    number: int
    members: list[IndexedMember] | None
    ranges: list[tuple[int, int]]

    @classmethod
    def of(cls, index: ShardIndex, number: int, fields: frozenset[str] | None) -> _Wanted:
        members = [member for member in index.members(number) if fields is None or member.field in fields]
        if any(member.data_offset < 0 for member in members):
            # a sparse file is put together by the tar reader
            return cls(number, None, [(int(index.starts[number]), int(index.starts[number + 1]))])
        return cls(number, members, [(member.data_offset, member.data_offset + member.size) for member in members])


class _Pieces:
    """The bytes of some ranges of a shard, read in as few reads as is sensible."""

    def __init__(self, reader: object, ranges: list[tuple[int, int]], gap: int) -> None:
        self._starts: list[int] = []
        together: list[tuple[int, int]] = []
        for start, stop in sorted(ranges):
            if together and start <= together[-1][1] + gap and stop - together[-1][0] <= MOST_AT_ONCE:
                together[-1] = together[-1][0], max(stop, together[-1][1])
            else:
                together.append((start, stop))
        self._starts = [start for start, _ in together]
        self._data = _read_all(reader, together, at_once=gap == REMOTE_GAP)

    def bytes(self, start: int, stop: int) -> bytes:
        """One of the ranges."""
        from bisect import bisect_right

        number = bisect_right(self._starts, start) - 1
        first, data = self._starts[number], self._data[number]
        return data if stop - start == len(data) else data[start - first : stop - first]


def _read_all(reader: Any, ranges: list[tuple[int, int]], *, at_once: bool) -> list[bytes]:
    if len(ranges) <= 1 or not at_once:
        return [reader.read(start, stop) for start, stop in ranges]
    from concurrent.futures import ThreadPoolExecutor

    stop = Stop()

    def read(part: tuple[int, int]) -> bytes:
        with stop.in_force():
            data: bytes = reader.read(*part)
            return data

    with ThreadPoolExecutor(min(len(ranges), CONNECTIONS), "webdataset-ranges") as pool:
        try:
            return list(pool.map(read, ranges))
        finally:
            stop.set()  # after an error or an interrupt, the others do not wait for the server
