"""Samples of a shard whose index is known, many at once: headers are checked, but not followed.

>>> import io, tarfile
>>> from .index import ShardIndex
>>> from .places import Place
>>> file = io.BytesIO()
>>> with tarfile.open(fileobj=file, mode="w") as tar:
...     info = tarfile.TarInfo("a.txt")
...     info.size = 5
...     tar.addfile(info, io.BytesIO(b"hello"))
>>> index = ShardIndex.from_entries([("a", ["txt"], [Place("a.txt", 0, 512, 5, 1024)])], size=2048)
>>> IndexedSamples(index).in_piece(file.getvalue()[:1024], 0, 0, {})
[{'__key__': 'a', 'txt': b'hello'}]
"""

from __future__ import annotations

import sys
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

from .cursor import Cursor, Readable
from .header import BLOCK
from .plain import EXTENDED, MemberTuple, PlainMembers
from .vector import plain_headers, plain_names, tells_only_mtimes

if TYPE_CHECKING:
    from .index import Layout, ShardIndex

BIG = 32 << 10
"""From this size on members are read by themselves."""
MAX_LAYOUTS = 4
"""Pieces in which samples are built in more ways than these are not worth the constant cost of each."""


class IndexedSamples:
    """What is needed of an index to take the samples out of pieces of its shard."""

    def __init__(self, index: ShardIndex, max_member_bytes: int = sys.maxsize) -> None:
        self.starts = index.starts
        self._limit = max_member_bytes
        # copies: an index that is mapped keeps its file open
        self._layouts = [_Layout(layout) for layout in index.layouts]
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
        if self._kinds is None:
            return self._alike(piece, self._layouts[0], numbers, places)
        kinds = self._kinds[first : last + 1]
        found: list[Any] = [None] * len(numbers)
        distinct = np.unique(kinds).tolist()
        if len(distinct) > MAX_LAYOUTS:
            return None
        for kind in distinct:
            here = np.flatnonzero(kinds == kind)
            samples = self._alike(piece, self._layouts[kind], numbers[here], places, first)
            if samples is None:
                return None
            for place, sample in zip(here.tolist(), samples, strict=True):
                found[place] = sample
        return found

    def big_members(self, start: int, stop: int) -> list[tuple[int, int]] | None:
        """Where the data of big members between two places of the shard begin and end; None if that is not known."""
        if self._big is None:
            return None
        first, last = self._big[0].searchsorted((start, stop)).tolist()
        begins, ends = (column[first:last].tolist() for column in self._big)
        return list(zip(begins, ends, strict=True))

    @cached_property
    def _big(self) -> tuple[Any, Any] | None:
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
        return data[big], data[big] + sizes[big]

    def _members(self, numbers: Any, width: int) -> Any:
        """The numbers of the first members of these samples, in rows."""
        import numpy as np

        firsts = numbers * len(self._layouts[0].fields) if self._firsts is None else self._firsts[numbers]
        return firsts[:, None] + np.arange(width)

    def _alike(
        self, piece: bytes, layout: _Layout, numbers: Any, places: dict[str, Any], first: int | None = None
    ) -> list[dict[str, Any]] | None:
        """Samples that are built in the same way."""
        import numpy as np

        if not layout.is_simple:
            return None
        sizes = self._sizes[self._members(numbers, len(layout.fields))].astype(np.int64)
        if int(sizes.max()) > self._limit:
            return None
        padded = (sizes + (BLOCK - 1)) & -BLOCK
        ends = np.cumsum(padded + layout.headers, axis=1)
        begin = self.starts[numbers].astype(np.int64)
        if not (ends[:, -1] == self.starts[numbers + 1].astype(np.int64) - begin).all():
            return None  # something that is no sample stands between the samples
        begin -= int(self.starts[numbers[0] if first is None else first])
        data = begin[:, None] + ends - padded
        if data[-1, -1] + padded[-1, -1] > len(piece):
            return None
        names = _checked_names(np, piece, layout, data, sizes)
        keys = None if names is None else _keys(names, layout.ending)
        if keys is None:
            return None
        contents = map(piece.__getitem__, map(slice, data.ravel().tolist(), (data + sizes).ravel().tolist()))
        return _samples(layout.fields, keys, list(contents), places)


def members_around(
    stream: Readable, start: int, stop: int, *, big: list[tuple[int, int]], plain: PlainMembers
) -> list[MemberTuple] | None:
    """The members from one place to another, where the data of big ones are known to begin and end.

    The stream stands at the first place. Each big member is read straight into its own bytes, and what lies between
    them at once. None if not all members are plain, or something is not as was known.
    """
    members: list[MemberTuple] = []
    cursor = Cursor(stream)
    read, one_by_one, place = stream.read, plain.one_by_one, 0
    for begin, end in [*big, (stop, stop)]:
        cursor.base, cursor.buffer, cursor.place = start, read(begin - start), place
        cut = one_by_one(cursor, members)
        if cursor.place != begin - start:
            return None
        if cut is None:
            return members if begin == stop else None
        name, offset, size = cut
        data = read(size)
        if size != end - begin or len(data) != size:
            return None
        members.append((name, offset, data))
        start, place = end, -size % BLOCK
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


def _checked_names(np: Any, piece: bytes, layout: _Layout, data: Any, sizes: Any) -> str | None:
    """The names of the samples' first members, if all headers are good, and say what the index says."""
    words = np.frombuffer(piece, "<u8", len(piece) // BLOCK * (BLOCK // 8)).reshape(-1, BLOCK // 8)
    heads = data // BLOCK - 1
    octets = words.take(heads.ravel(), axis=0).view(np.uint8)
    good, stated = plain_headers(np, octets)
    if not (good.all() and (stated == sizes.ravel()).all()) or (octets[:, 156] == EXTENDED).any():
        return None
    if len(layout.extended):
        extended = heads[:, layout.extended].ravel() - 2
        more = words.take(extended, axis=0).view(np.uint8)
        good, lengths = plain_headers(np, more)
        if not good.all() or not (more[:, 156] == EXTENDED).all():
            return None
        if not tells_only_mtimes(np, piece, (extended + 1) * BLOCK, lengths):
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
