"""Samples of a shard whose index is known, many at once: headers are checked, but not followed.

>>> import io, tarfile
>>> from .index import ShardIndex
>>> from .plain import MemberPlace
>>> file = io.BytesIO()
>>> with tarfile.open(fileobj=file, mode="w") as tar:
...     info = tarfile.TarInfo("a.txt")
...     info.size = 5
...     tar.addfile(info, io.BytesIO(b"hello"))
>>> index = ShardIndex.from_entries([("a", ["txt"], [MemberPlace("a.txt", 0, 512, 5, 1024)])], size=2048)
>>> IndexedSamples(index).in_piece(file.getvalue()[:1024], 0, 0, {})
[{'__key__': 'a', 'txt': b'hello'}]
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from functools import cached_property
from itertools import repeat
from operator import getitem
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .cursor import Cursor, Readable
from .header import BLOCK, padding
from .plain import EXTENDED, MemberTuple, PlainMembers
from .vector import has_only_mtimes, plain_headers, plain_names

if TYPE_CHECKING:
    import numpy as np

    from .index import Layout, ShardIndex

    Array = np.ndarray[Any, Any]

BIG = 32 << 10
"""From this size on members are read by themselves."""
MAX_LAYOUTS = 4
"""Pieces in which samples are built in more ways than these are not worth the constant cost of each."""


class IndexedSamples:
    """Cuts the samples of an indexed shard out of pieces of it."""

    def __init__(self, index: ShardIndex, max_member_bytes: int = sys.maxsize) -> None:
        self.starts = index.starts
        self._limit = max_member_bytes
        # copies: an index that is mapped keeps its file open
        self._layouts = [_Layout(layout) for layout in index.layouts]
        self.is_simple = all(layout.is_simple for layout in self._layouts)
        """Whether all samples may be of the simplest kind."""
        self._sizes = index.member_sizes.copy()
        self._kinds = index.kinds.copy() if len(self._layouts) > 1 else None
        self._firsts = index.first_members.copy() if len(self._layouts) > 1 else None

    @property
    def nbytes(self) -> int:
        """How much memory this takes, about."""
        columns = (self.starts, self._sizes, self._kinds, self._firsts)
        return sum(0 if column is None else column.nbytes for column in columns)

    def in_piece(self, piece: bytes, first: int, last: int, places: dict[str, Any]) -> list[Any] | None:
        """The samples from one number to another, which are the piece; `places` is what each says about its origin.

        None if some are not of the simplest kind, or if anything in the headers is not as the index says: then they
        must be read member by member.
        """
        import numpy as np

        numbers = np.arange(first, last + 1)
        begins = self.starts[numbers].astype(np.int64) - int(self.starts[first])
        return self._read_samples(_Piece(piece, begins), numbers, places)

    def in_pieces(self, pieces: list[bytes], numbers: list[int], places: dict[str, Any]) -> list[Any] | None:
        """`in_piece` for samples that lie apart, each of which is a piece."""
        import numpy as np

        return self._read_samples(_Pieces(pieces), np.array(numbers), places)

    def _read_samples(self, source: _Piece | _Pieces, numbers: Array, places: dict[str, Any]) -> list[Any] | None:
        import numpy as np

        if self._kinds is None:
            return self._alike(source, self._layouts[0], numbers, np.arange(len(numbers)), places)
        kinds = self._kinds[numbers]
        found: list[Any] = [None] * len(numbers)
        distinct = np.unique(kinds).tolist()
        if len(distinct) > MAX_LAYOUTS:
            return None
        for kind in distinct:
            here = np.flatnonzero(kinds == kind)
            samples = self._alike(source, self._layouts[kind], numbers[here], here, places)
            if samples is None:
                return None
            for place, sample in zip(here.tolist(), samples, strict=True):
                found[place] = sample
        return found

    def big_members(self, start: int, stop: int) -> list[tuple[int, int]] | None:
        """Where the data of big members between two places of the shard begin and end; None if that is not known."""
        if self._big is None:
            return None
        begins, ends = self._big
        first = bisect_left(begins, start)
        last = bisect_left(begins, stop, first)
        return list(zip(begins[first:last], ends[first:last], strict=True))

    @cached_property
    def _big(self) -> tuple[array[int], array[int]] | None:
        import numpy as np

        if not all(layout.is_whole for layout in self._layouts):
            return None
        sizes = self._sizes.astype(np.int64)
        padded = (sizes + (BLOCK - 1)) & -BLOCK
        headers, samples = np.empty_like(sizes), np.empty_like(sizes)
        for kind, layout in enumerate(self._layouts):
            here = np.arange(len(self.starts) - 1) if self._kinds is None else np.flatnonzero(self._kinds == kind)
            members = self._members(here, len(layout.fields))
            headers[members], samples[members] = layout.headers, here[:, None]
        ends = np.cumsum(headers + padded)
        before = np.concatenate(([0], ends))[self._members(np.arange(len(self.starts) - 1), 1)[:, 0]]
        data = self.starts[samples].astype(np.int64) + ends - padded - before[samples]
        big = np.flatnonzero(sizes >= BIG)
        return array("q", data[big].tobytes()), array("q", (data[big] + sizes[big]).tobytes())

    def _members(self, numbers: Array, width: int) -> Array:
        """The numbers of the first members of these samples, in rows."""
        import numpy as np

        firsts = numbers * len(self._layouts[0].fields) if self._firsts is None else self._firsts[numbers]
        return firsts[:, None] + np.arange(width)

    def _alike(
        self,
        source: _Piece | _Pieces,
        layout: _Layout,
        numbers: Array,
        here: Array,
        places: dict[str, Any],
    ) -> list[dict[str, Any]] | None:
        """Samples that are built in the same way, and which of the source's they are."""
        import numpy as np

        if not layout.is_simple:
            return None
        sizes = self._sizes[self._members(numbers, len(layout.fields))].astype(np.int64)
        if int(sizes.max()) > self._limit:
            return None
        padded = (sizes + (BLOCK - 1)) & -BLOCK
        ends = np.cumsum(padded + layout.headers, axis=1)
        whole = self.starts[numbers + 1].astype(np.int64) - self.starts[numbers].astype(np.int64)
        if not (ends[:, -1] == whole).all():
            return None  # something that is no sample stands between the samples
        cut_out = source.cut_out(layout, here, ends - padded, sizes)
        if cut_out is None:
            return None
        names, contents = cut_out
        keys = _keys(names, layout.ending)
        return None if keys is None else _samples(layout.fields, keys, contents, places)


class _Piece:
    """Samples that lie one after the other, and where each begins."""

    def __init__(self, piece: bytes, begins: Array) -> None:
        self._piece = piece
        self._begins = begins

    def cut_out(self, layout: _Layout, here: Array, data: Array, sizes: Array) -> tuple[str, list[bytes]] | None:
        """The names of the first members, and all contents; `data` has their offsets from each sample's beginning."""
        import numpy as np

        piece = self._piece
        data = data + self._begins[here][:, None]
        if data[-1, -1] + sizes[-1, -1] > len(piece):
            return None
        names = _checked_names(np, piece, layout, data, sizes)
        if names is None:
            return None
        slices = map(slice, data.ravel().tolist(), (data + sizes).ravel().tolist())
        return names, list(map(piece.__getitem__, slices))


class _Pieces:
    """Samples that lie apart."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def cut_out(self, layout: _Layout, here: Array, data: Array, sizes: Array) -> tuple[str, list[bytes]] | None:
        """As `_Piece.cut_out`."""
        import numpy as np

        pieces = [self._pieces[number] for number in here.tolist()]
        lengths = [len(piece) for piece in pieces]
        if not (data[:, -1] + sizes[:, -1] <= lengths).all():
            return None
        members = [piece for piece in pieces for _ in layout.fields]
        begins = data - layout.headers
        headers = b"".join(map(getitem, members, map(slice, begins.ravel().tolist(), data.ravel().tolist())))
        ends = np.cumsum(np.broadcast_to(layout.headers, data.shape)).reshape(data.shape)
        names = _checked_names(np, headers, layout, ends, sizes)
        if names is None:
            return None
        slices = map(slice, data.ravel().tolist(), (data + sizes).ravel().tolist())
        return names, list(map(getitem, members, slices))


def members_around(
    stream: Readable, start: int, stop: int, *, big: list[tuple[int, int]], plain: PlainMembers
) -> list[MemberTuple] | None:
    """The members from one place to another, where the data of big ones are known to begin and end.

    The stream stands at the first place. Each big member is read straight into its own bytes, and what lies between
    them at once. None if not all members are plain, or something is not as was known.
    """
    members: list[MemberTuple] = []
    cursor = Cursor(stream)
    read, place = stream.read, 0
    for begin, end in [*big, (stop, stop)]:
        cursor.base, cursor.buffer, cursor.place = start, read(begin - start), place
        cut = plain.members(cursor, members)
        if cursor.place != begin - start:
            return None
        if cut is None:
            return members if begin == stop else None
        name, offset, size = cut
        data = read(size)
        if size != end - begin or len(data) != size:
            return None
        members.append((name, offset, data))
        start, place = end, padding(size)
    return None


class _Layout:
    """How some samples are built."""

    def __init__(self, layout: Layout) -> None:
        import numpy as np

        blocks = np.array([blocks for _, _, blocks, _ in layout], np.int64)
        self.fields = [field for field, *_ in layout]
        self.ending = layout[0][1]
        """What follows the key in the first member's name."""
        self.headers = blocks * BLOCK
        """Bytes before the data of each member: its header, perhaps behind an extended one of a single block."""
        self.extended = np.flatnonzero(blocks == 3)
        self.is_whole = all(stored is None for *_, stored in layout)
        named = bool(self.ending) and not self.ending.startswith("\0")
        self.is_simple = bool(self.is_whole and named and ((blocks == 1) | (blocks == 3)).all())


def _checked_names(np: ModuleType, piece: bytes, layout: _Layout, data: Array, sizes: Array) -> str | None:
    """The names of the samples' first members, if all headers are good, and say what the index says."""
    words = np.frombuffer(piece, "<u8", len(piece) // BLOCK * (BLOCK // 8)).reshape(-1, BLOCK // 8)
    headers = data // BLOCK - 1
    octets = words.take(headers.ravel(), axis=0).view(np.uint8)
    good, claimed = plain_headers(np, octets)
    if not (good.all() and (claimed == sizes.ravel()).all()) or (octets[:, 156] == EXTENDED).any():
        return None
    if len(layout.extended):
        extended = headers[:, layout.extended].ravel() - 2
        more = words.take(extended, axis=0).view(np.uint8)
        good, lengths = plain_headers(np, more)
        if not good.all() or not (more[:, 156] == EXTENDED).all():
            return None
        if not has_only_mtimes(np, piece, (extended + 1) * BLOCK, lengths):
            return None
    return plain_names(octets[:: len(layout.fields)])


def _keys(names: str, ending: str) -> list[str] | None:
    """The names, each followed by a NUL, without the ending; None if one ends otherwise."""
    ended = ending + "\0"
    return names.replace(ended, "\0").split("\0")[:-1] if names.count(ended) == names.count("\0") else None


def _samples(fields: list[str], keys: list[str], contents: list[bytes], places: dict[str, Any]) -> list[dict[str, Any]]:
    blank: dict[str, Any] = {"__key__": None, **places, **dict.fromkeys(fields)}
    samples = list(map(dict.copy, repeat(blank, len(keys))))
    for sample, key in zip(samples, keys, strict=True):
        sample["__key__"] = key
    for number, field in enumerate(fields):
        for sample, content in zip(samples, contents[number :: len(fields)], strict=True):
            sample[field] = content
    return samples
