"""Samples of indexed shards, read by their numbers: one range of bytes for samples that lie together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.base.reports import Report
from webdataset.errors import ShardError
from webdataset.gopen import open_ranges
from webdataset.handlers import reraise_exception
from webdataset.storage.local import expect_reads
from webdataset.storage.ranges import PartStream, RangeReader
from webdataset.storage.urls import local_path
from webdataset.tar.archive import BEHIND_END
from webdataset.tar.header import padding
from webdataset.tar.index import ShardIndex
from webdataset.tar.indexed import IndexedSamples, members_around
from webdataset.tar.large import WORTH_ASKING, select_limits
from webdataset.tar.reader import Limits, PlainMembers, expect_big_blocks, read_piece
from webdataset.tariterators import Grouping, Member, Sample, SplitName, base_plus_ext

from .files import check_fits, from_copy
from .openshards import OpenShards
from .wholeshards import ShardParts, WholeShards

if TYPE_CHECKING:
    import numpy as np

NEAR_GAP = 16 << 10
"""Samples with at most this many bytes between them are read together from a local file."""
FAR_GAP = 128 << 10
"""The same for a server, where a request takes longer."""
SMALL, MANY = 32 << 10, 48
"""It pays to parse at once samples up to this mean size, if there are at least this many."""
MANY_APART = 8
"""It pays to parse at once samples that lie apart, if there are at least this many."""
MAX_APART = 64 << 20
"""The most bytes of samples that lie apart to read at once."""
MAX_HELD = 64 << 20
"""Bytes of memory for what is known of the shards that are read."""
MAX_MEMORY = 4 << 20
"""Bytes that a thread keeps for what it receives."""
MOST_TOGETHER = 512
"""Samples that are read at the same time, where order does not matter."""


class Places(NamedTuple):
    """Where the samples of a shard are, and which shard it was: what reading needs of its index."""

    samples: IndexedSamples
    size: int
    version: str | None
    self_contained: bool


class Samples:
    """The samples of a list of indexed shards.

    `catalogue` has their `urls` and the `index(number)` of each. Several threads may read at once. With `whole`,
    shards that cannot be read in parts are fetched whole.
    """

    def __init__(
        self,
        catalogue: Any,
        *,
        report: Report,
        keys: SplitName = base_plus_ext,
        select_files: Callable[[str], Any] | None = None,
        rename_files: Callable[[str], str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        local_copy: Callable[[str], str] | None = None,
        whole: WholeShards | None = None,
    ) -> None:
        self.far_gap = FAR_GAP
        """Samples with at most this many bytes between them are read together from a server."""
        self._catalogue = catalogue
        self._report = report
        self._keys = keys
        # a member that is left out is passed over, whatever its size
        self._limits = Limits.default() if select_files is None else select_limits(self._is_selected)
        self._plain = PlainMembers(Limits.default())
        self._select = select_files
        self._rename = rename_files
        self._options = storage_options
        self._local_copy = local_copy
        self._whole = whole
        self._open = OpenShards(self._open_shard)
        self._places: OrderedDict[int, Places] = OrderedDict()
        self._warned: set[int] = set()
        """Shards of which a warning said that members behind their end marker are left out."""
        self._held = 0
        self._lock = threading.Lock()
        self._own = threading.local()
        expect_big_blocks()

    def read(self, shard: int, numbers: Sequence[int]) -> list[Sample | None]:
        """The samples with these numbers, which ascend; None where no file of a sample was selected."""
        index = self._index(shard)
        found: dict[int, Sample | None] = {}
        report = Report(strict=self._report.strict)
        grouping = Grouping(self._keys, True, None, reraise_exception, report)
        try:
            with self._open.lease(shard) as opened:
                if samples := self._apart(opened, index, numbers, grouping):
                    return samples
                for first, last in _runs(index.samples.starts, numbers, NEAR_GAP if opened.is_near else self.far_gap):
                    samples = self._run(opened, index, first, last, grouping)
                    if (first, last) == (numbers[0], numbers[-1]) and len(samples) == len(numbers):
                        return samples  # one run, without gaps: the commonest case
                    found.update(zip(range(first, last + 1), samples, strict=True))
        finally:
            # what lies between the samples that were asked for does not count
            report.counts["samples_read"] = len(numbers)
            with self._lock:
                self._report.add({**report.counts, "reasons": report.reasons})
        return [found[number] for number in numbers]

    @cached_property
    def at_hand(self) -> bool:
        """Whether it costs nothing to read single samples: large ones, in files that the system keeps in memory."""
        return self._mean_bytes >= SMALL and all(local_path(url) is not None for url in self._catalogue.urls)

    @cached_property
    def together(self) -> int:
        """How many samples of a shard are best read at the same time, where order does not matter."""
        return max(1, min(MOST_TOGETHER, MAX_MEMORY // self._mean_bytes))

    @property
    def _mean_bytes(self) -> int:
        return int(self._catalogue.planned_sizes.sum()) // max(1, int(self._catalogue.counts.sum())) + 1

    def expect_all(self) -> None:
        """Tell the system that all the files will be read: it can begin, one after the other."""
        for url in self._catalogue.urls:
            expect_reads(url)

    def _index(self, shard: int) -> Places:
        """Where the shard's samples are; held for many shards, since the windows of an epoch come back to all."""
        with self._lock:
            places = self._places.get(shard)
            if places is None:
                index: ShardIndex = self._catalogue.index(shard)
                self._warn_left_out(shard, index)
                samples = IndexedSamples(index, self._limits.max_member_bytes)
                places = Places(samples, index.size, index.version, index.self_contained)
                self._held += samples.nbytes
                while self._places and self._held > MAX_HELD:
                    self._held -= self._places.popitem(last=False)[1].samples.nbytes
            else:
                del self._places[shard]
            self._places[shard] = places
            return places

    def _warn_left_out(self, shard: int, index: ShardIndex) -> None:
        if index.left_out is not None and shard not in self._warned:
            self._report.warn(BEHIND_END, url=self._catalogue.urls[shard], offset=index.left_out)
            self._warned.add(shard)

    def _is_selected(self, name: str) -> bool:
        assert self._select is not None
        return bool(self._select(name if self._rename is None else self._rename(name)))

    def close(self) -> None:
        """Close the shards that are open."""
        self._open.close()

    def _run(self, opened: _Opened, index: Places, first: int, last: int, grouping: Grouping) -> list[Sample | None]:
        """All samples from one number to another, which lie together."""
        starts, count = index.samples.starts, last + 1 - first
        start, stop = int(starts[first]), int(starts[last + 1])
        as_they_are = self._select is None and self._rename is None
        small = count >= MANY and stop - start < SMALL * count
        if opened.is_near:
            opened.check(index)  # a file says at once which version it is, a server with the first bytes
        members: list[Member] = []
        if small and as_they_are:
            piece = opened.reader.read(start, stop)
            opened.check(index)
            found = index.samples.in_piece(piece, first, last, opened.places)
            if found is not None:
                return found
            members = self._piece(BytesIO(piece), start, stop - start, opened.url, grouping, small=small)
        else:
            for begin, end in self._parts(opened, index, start, stop):
                stream = opened.reader.stream(begin, end, self._memory(end - begin))
                opened.check(index)
                around = self._around(stream, index, begin, end)
                if around is None:
                    around = self._piece(stream, begin, end - begin, opened.url, grouping, small=small)
                members += around
        if as_they_are:
            samples: list[Sample | None] = list(grouping.samples([members], opened.places))
        else:
            samples = self._selected(grouping, members, starts[first + 1 : last + 2], opened.places)
        opened.check_count(len(samples), count, start)
        return samples

    def _parts(self, opened: _Opened, index: Places, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The ranges to read between two offsets: all but large members that are not selected."""
        big = index.samples.big_members(start, stop) if self._select is not None else None
        for data, data_end in big or ():
            if data_end - data > WORTH_ASKING:
                name, header, end = self._member_at(opened.shard, index, data)
                if not self._is_selected(name):
                    if header > start:
                        yield start, header
                    start = end
        if stop > start:
            yield start, stop

    def _member_at(self, shard: int, index: Places, data: int) -> tuple[str, int, int]:
        """The name of the member whose data are at this place, and where it begins and ends, headers and all."""
        starts = index.samples.starts
        number = int(starts.searchsorted(data, side="right")) - 1
        header = int(starts[number])
        for member in self._catalogue.index(shard).members(number):
            end = member.data_offset + member.size + padding(member.size)
            if member.data_offset == data:
                return member.name, header, end
            header = end
        raise AssertionError("what is known of big members is in the index")

    def _apart(
        self, opened: _Opened, index: Places, numbers: Sequence[int], grouping: Grouping
    ) -> list[Sample | None] | None:
        """Samples that lie far from each other in a file, if they can be looked at together."""
        starts, count = index.samples.starts, len(numbers)
        as_they_are = self._select is None and self._rename is None
        if count < MANY_APART or not (opened.is_near and as_they_are and index.samples.is_simple):
            return None
        begins, ends = (starts[places].tolist() for places in (numbers, [number + 1 for number in numbers]))
        wanted = sum(ends) - sum(begins)
        if wanted > MAX_APART or ends[-1] - begins[0] - wanted < NEAR_GAP * (count - 1):
            return None
        opened.check(index)
        pieces = [opened.reader.read(begin, end) for begin, end in zip(begins, ends, strict=True)]
        found = index.samples.in_pieces(pieces, list(numbers), opened.places)
        if found is None:
            index.samples.is_simple = False  # nor will the others be
            found = [self._alone(opened, start, piece, grouping) for start, piece in zip(begins, pieces, strict=True)]
        return found

    def _alone(self, opened: _Opened, start: int, piece: bytes, grouping: Grouping) -> Sample:
        """The sample that is a piece."""
        members = self._piece(BytesIO(piece), start, len(piece), opened.url, grouping, small=False)
        samples = list(grouping.samples([members], opened.places))
        opened.check_count(len(samples), 1, start)
        return samples[0]

    def _piece(self, stream: Any, start: int, size: int, url: str, grouping: Grouping, *, small: bool) -> list[Member]:
        options: dict[str, Any] = {"plain": self._plain, "limits": self._limits, "report": grouping.report}
        return read_piece(stream, start, size, small=small, url=url, **options)

    def _memory(self, size: int) -> bytearray | None:
        """The buffer into which a thread receives parts, unless they are unusually large."""
        if size > MAX_MEMORY:
            return None
        memory: bytearray | None = getattr(self._own, "memory", None)
        if memory is None:
            memory = self._own.memory = bytearray()
        return memory

    def _around(self, stream: PartStream, index: Places, start: int, stop: int) -> list[Member] | None:
        """The members in a stream, which is of these places, if they can be read big ones apart."""
        big = index.samples.big_members(start, stop)
        members = None if big is None else members_around(stream, start, stop, big=big, plain=self._plain)
        if members is None:
            stream.rewind()
        return members

    def _selected(
        self, grouping: Grouping, members: list[Member], ends: np.ndarray[Any, Any], places: Sample
    ) -> list[Sample | None]:
        """The samples of the members that are selected, by their new names; None for one of which none is."""
        samples: list[Sample | None] = []
        place = 0
        for end in ends.tolist():
            mine = []
            while place < len(members) and members[place][1] < end:
                name, offset, data = members[place]
                name = name if self._rename is None else self._rename(name)
                if self._select is None or self._select(name):
                    mine.append((name, offset, data))
                place += 1
            samples.append(next(grouping.samples([mine], places), None))
        return samples

    def _open_shard(self, shard: int) -> _Opened:
        url = self._catalogue.urls[shard]
        with self._report.in_force():
            if self._local_copy is None:
                read_from, reader = self._reader(url)
            else:
                read_from, reader = from_copy(url, self._local_copy, partial(self._reader, url))
        path = local_path(read_from)
        places: Sample = {"__url__": url} | ({} if path is None else {"__local_path__": path})
        return _Opened(shard, url, reader, places, is_copy=read_from != url)

    def _reader(self, url: str, copy: str | None = None) -> tuple[str, RangeReader | ShardParts]:
        """What a shard, or its copy, is read with, and the place where it is read."""
        if copy is not None and copy != url:
            return copy, RangeReader(copy, cached=True)
        if self._whole is None:
            return url, open_ranges(url, storage_options=self._options)
        return url, self._whole.open(url)


class _Opened:
    """One shard that is open for reading."""

    def __init__(
        self, shard: int, url: str, reader: RangeReader | ShardParts, places: Sample, *, is_copy: bool
    ) -> None:
        self.shard = shard
        self.url = url
        self.is_copy = is_copy
        self.reader = reader
        self.places = places
        self._checked = False

    @property
    def is_near(self) -> bool:
        """Whether it is a file of this machine."""
        return "__local_path__" in self.places

    def close(self) -> None:
        """Close the shard."""
        self.reader.close()

    def check_count(self, found: int, indexed: int, start: int) -> None:
        """Make sure that there are as many samples at this place as the index says."""
        if found != indexed:
            message = f"{indexed} samples are indexed here, but {found} were found"
            hint = f"make the index again: wds.index({self.url!r}, force=True)"
            raise ShardError(message, url=self.url, offset=start, hint=hint)

    def check(self, index: Any) -> None:
        """Make sure, once, that this is the shard that was indexed; of a server only after a read from it."""
        if self._checked:
            return
        if not index.self_contained:
            hint = "rewrite it without them: wl concat OLD -o NEW"
            raise ShardError("global PAX headers say how to read this shard's samples", url=self.url, hint=hint)
        # a copy has a time of its own
        check_fits(index, self.url, self.reader.size, None if self.is_copy else self.reader.version)
        self._checked = True


def _runs(starts: np.ndarray[Any, Any], numbers: Sequence[int], gap: int) -> Iterator[tuple[int, int]]:
    """The numbers in runs: first and last of those between which no more than `gap` bytes are not wanted."""
    first = last = numbers[0]
    if numbers[-1] - first == len(numbers) - 1:  # no gap at all: the commonest case
        yield first, numbers[-1]
        return
    for number in numbers[1:]:
        if number - last > 1 and starts[number] - starts[last + 1] > gap:
            yield first, last
            first = number
        last = number
    yield first, last
