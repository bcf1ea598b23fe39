"""Where each sample of a shard is, and each of its members: an index that is kept in a small file.

A file is `MAGIC`, the length of the header and its CRC-32, the header as JSON, and the columns that the header names,
each with its own CRC-32. Numbers are little-endian. A column is read, and checked, when it is first needed:

- `starts`: where each sample begins, and the last one ends, in blocks of 512 bytes
- `layouts`: JSON, the distinct ways in which samples are built: fields, ends of member names, blocks before the data
- `kinds`: each sample's layout, if there are several
- `sizes`: the bytes of every member's content, sample by sample
- `hashes`: CRC-32 of each key, to find one
- `keys`, `blocks`: the keys, compressed in blocks of 1024; and where each block ends
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from webdataset.errors import ShardError

from .header import BLOCK, decoded, padding
from .plain import MemberPlace

if TYPE_CHECKING:
    from mmap import mmap

    import numpy

    Array = numpy.ndarray[Any, Any]

MAGIC = b"\x89WDX1\r\n\x1a"
KEYS_TOGETHER = 1024
ALIGNED = 8
MAX_TEXT = 256 << 20
"""Bytes of keys in a block; names may have 64 KiB each, so no real block is larger."""
MAX_LAYOUTS = 16 << 20
"""Bytes of the layouts' JSON, which takes ten times the memory when it is read."""
_WIDTHS = {"<u1": 1, "<u2": 2, "<u4": 4, "<u8": 8}
_FRONT = struct.Struct("<8sII")

Layout = list[tuple[str, str, int, int | None]]
"""How a sample is built, member by member: the field, the end of the name, the blocks before the data, and how many
bytes are stored where these are not the content."""
Grouped = tuple[str, Sequence[str], Sequence[MemberPlace]]
"""A sample: its key, its fields, and the place of each."""


class IndexedMember(NamedTuple):
    """One field of a sample: its bytes are `size` bytes at `data_offset`, which is -1 for a sparse file."""

    field: str
    name: str
    data_offset: int
    size: int


class ShardIndex:
    """The samples of one shard: `starts[i]` to `starts[i + 1]` are the bytes of sample i, a piece of tar by itself.

    >>> place = MemberPlace("a.txt", 0, 512, 5, 1024)
    >>> index = ShardIndex.from_entries([("a", ["txt"], [place])], size=2048)
    >>> index.samples, index.starts.tolist(), index.key(0), index.find("a")
    (1, [0, 1024], 'a', 0)
    >>> index.members(0)
    [IndexedMember(field='txt', name='a.txt', data_offset=512, size=5)]
    """

    def __init__(self, header: dict[str, Any], columns: _Columns) -> None:
        self.samples = int(header["samples"])
        self.size = int(header["size"])
        """Bytes of the shard."""
        self.version: str | None = header["version"]
        """What the shard was when it was indexed: its ETag, or size and mtime of a file."""
        self.self_contained: bool = header["self_contained"]
        """Whether a sample can be read by itself: False where a global header changes names or sizes."""
        self.rule: str | None = header.get("rule")
        """The rule that splits names into keys and fields, None for the usual one."""
        self.archives: int | None = header.get("archives")
        """How many archives, one after the other, the samples are of; None in indices that do not say."""
        self.left_out: int | None = header.get("left_out")
        """Where a member's header stands behind the end marker, if there is one whose samples are not indexed."""
        self._header = header
        self._columns = columns
        self._blocks: dict[int, list[str]] = {}

    # -- making and keeping ----------------------------------------------------------------------

    @classmethod
    def from_entries(
        cls,
        samples: Iterable[Grouped],
        *,
        size: int,
        version: str | None = None,
        self_contained: bool = True,
        rule: str | None = None,
    ) -> ShardIndex:
        """The index of samples in the order of the shard, which is `size` bytes long."""
        builder = IndexBuilder()
        for sample in samples:
            builder.add(*sample)
        return builder.index(size=size, version=version, self_contained=self_contained, rule=rule)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview | mmap, *, url: str | None = None) -> ShardIndex:
        """Read what `to_bytes` made; a ShardError if it is cut or damaged."""
        if len(data) < _FRONT.size or bytes(data[:8]) != MAGIC:
            raise _damaged("this is no index of a shard", url)
        _, length, checksum = _FRONT.unpack_from(data)
        text = bytes(data[_FRONT.size : _FRONT.size + length])
        if len(text) != length or zlib.crc32(text) != checksum:
            raise _damaged("the index is damaged: its header's checksum is wrong", url)
        start = _FRONT.size + length
        try:
            header = json.loads(text)
            if start + header["length"] != len(data):
                raise _damaged(f"the index is cut: it has {len(data)} of {start + header['length']} bytes", url)
            columns = _Columns(data, start, header["columns"], url)
            columns.check_claims(header)
            return cls(header, columns)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise _damaged("the index is damaged: its header makes no sense", url) from None

    def to_bytes(self) -> bytes:
        """The index as it is kept in a file."""
        return bytes(self._columns.data)

    def agrees(self, other: ShardIndex) -> bool:
        """Whether the other index says the same of the shard, whichever version each was made of."""
        columns = self._header["columns"]
        facts = ("samples", "size", "rule", "archives", "left_out")
        same = all(getattr(self, name) == getattr(other, name) for name in facts)
        return (
            same
            and columns.keys() == other._header["columns"].keys()
            and all(self._columns.raw(name) == other._columns.raw(name) for name in columns)
        )

    def is_of(self, *, concatenated: bool) -> bool:
        """Whether a reader finds these samples, one that reads on behind an end marker or one that does not.

        >>> place = MemberPlace("a.txt", 0, 512, 5, 1024)
        >>> index = ShardIndex.from_entries([("a", ["txt"], [place])], size=2048)
        >>> index.is_of(concatenated=True), index.is_of(concatenated=False)
        (True, True)
        """
        if self.archives is None:
            return False
        return self.left_out is None if concatenated else self.archives == 1

    # -- samples ---------------------------------------------------------------------------------

    @cached_property
    def starts(self) -> Array:
        """Where each sample begins, and the last one ends: samples + 1 numbers."""
        starts = self._columns.numbers("starts", self.samples + 1).astype("<u8") * BLOCK
        if (starts[1:] < starts[:-1]).any() or starts[-1] > self.size:
            raise self._columns.damaged("starts")
        return starts

    def key(self, i: int) -> str:
        """The key of sample i."""
        number, place = divmod(self._checked(i), KEYS_TOGETHER)
        return self._keys_of_block(number)[place]

    def keys(self) -> Iterator[str]:
        """All keys, in the order of the shard."""
        for number in range(-(-self.samples // KEYS_TOGETHER)):
            yield from self._keys_of_block(number)

    def find(self, key: str) -> int:
        """The number of the first sample with this key; KeyError without one."""
        for i in (self.key_hashes == key_hash(key)).nonzero()[0].tolist():
            if self.key(i) == key:
                return int(i)
        raise KeyError(key)

    @cached_property
    def key_hashes(self) -> Array:
        """The `key_hash` of every key."""
        return self._columns.numbers("hashes", self.samples)

    # -- members ---------------------------------------------------------------------------------

    def members(self, i: int) -> list[IndexedMember]:
        """Field, name, place and size of every member of sample i."""
        layout = self._layout(self._checked(i))
        first = int(self.first_members[i])
        sizes = self.member_sizes[first : first + len(layout)].tolist()
        key, place = self.key(i), int(self.starts[i])
        found = []
        for (field, ending, blocks, stored), size in zip(layout, sizes, strict=True):
            data_offset = place + blocks * BLOCK
            name = ending[1:] if ending.startswith("\0") else key + ending
            found.append(IndexedMember(field, name, data_offset if stored is None else -1, size))
            held = size if stored is None else stored
            place = data_offset + held + padding(held)
        return found

    @property
    def field_names(self) -> list[str]:
        """Every field that some sample has, in the order of their first appearance."""
        return list(dict.fromkeys(field for layout in self.layouts for field, *_ in layout))

    def field_bytes(self, field: str) -> Array:
        """The size of this field in every sample, -1 where it is absent."""
        import numpy as np

        result = np.full(self.samples, -1, np.int64)
        for kind, layout in enumerate(self.layouts):
            place = next((n for n, (name, *_) in enumerate(layout) if name == field), None)
            if place is not None:
                having = np.flatnonzero(self.kinds == kind)
                result[having] = self.member_sizes[self.first_members[having] + place]
        return result

    # -- columns ---------------------------------------------------------------------------------

    @cached_property
    def layouts(self) -> list[Layout]:
        """The ways in which samples are built."""
        try:
            found = json.loads(self._columns.decompressed("layouts", limit=MAX_LAYOUTS))
            layouts = [[(str(f), str(e), int(n), None if s is None else int(s)) for f, e, n, s in one] for one in found]
        except (ValueError, TypeError, RecursionError):
            raise self._columns.damaged("layouts") from None
        entries = [entry for layout in layouts for entry in layout]
        if (self.samples and not layouts) or not all(self._is_possible(*entry) for entry in entries):
            raise self._columns.damaged("layouts")
        return layouts

    def _is_possible(self, field: str, ending: str, blocks: int, stored: int | None) -> bool:  # noqa: ARG002
        """Whether a member can be so: a sample's own entries (`__key__`) are no fields."""
        room = self.size // BLOCK
        return not field.startswith("__") and 0 < blocks <= room and (stored is None or 0 <= stored <= self.size)

    @cached_property
    def kinds(self) -> Array:
        """The number of each sample's layout."""
        import numpy as np

        if "kinds" not in self._header["columns"]:
            return np.zeros(self.samples, np.uint8)
        kinds = self._columns.numbers("kinds", self.samples)
        if self.samples and int(kinds.max()) >= len(self.layouts):
            raise self._columns.damaged("kinds")
        return kinds

    @cached_property
    def member_sizes(self) -> Array:
        """The bytes of every member's content."""
        count = int(self.first_members[-1]) + len(self._layout(-1)) if self.samples else 0
        sizes = self._columns.numbers("sizes", count)
        if not self._fit(sizes):
            raise self._columns.damaged("sizes")
        return sizes

    def _fit(self, sizes: Array) -> bool:
        """Whether the members of every sample lie between its beginning and the next one's."""
        import numpy as np

        room = (self.starts[1:] - self.starts[:-1]).astype(np.int64)
        for kind, layout in enumerate(self.layouts):
            of_kind = np.flatnonzero(self.kinds == kind) if len(self.layouts) > 1 else np.arange(self.samples)
            taken = np.full(len(of_kind), sum(blocks for _, _, blocks, _ in layout) * BLOCK, np.int64)
            for place, (_, _, _, stored) in enumerate(layout):
                held = sizes[self.first_members[of_kind] + place] if stored is None else np.uint64(stored)
                if (held > self.size).any():
                    return False
                taken += (held.astype(np.int64) + (BLOCK - 1)) & -BLOCK
            if (taken > room[of_kind]).any():
                return False
        return True

    def _layout(self, i: int) -> Layout:
        return self.layouts[int(self.kinds[i])]

    @cached_property
    def first_members(self) -> Array:
        """The number of each sample's first member."""
        import numpy as np

        counts = np.array([len(layout) for layout in self.layouts], np.int64)[self.kinds]
        return np.cumsum(counts) - counts

    def _keys_of_block(self, number: int) -> list[str]:
        keys = self._blocks.get(number)
        if keys is None:
            ends = self._columns.numbers("blocks", -(-self.samples // KEYS_TOGETHER))
            start = int(ends[number - 1]) if number else 0
            text = self._columns.decompressed("keys", start, int(ends[number]), limit=MAX_TEXT)
            keys = decoded(text).split("\0")
            if len(keys) != min(KEYS_TOGETHER, self.samples - number * KEYS_TOGETHER):
                raise self._columns.damaged("keys")
            self._blocks[number] = keys
        return keys

    def _checked(self, i: int) -> int:
        if not 0 <= i < self.samples:
            raise IndexError(f"sample {i} of a shard with {self.samples}")
        return i


def key_hash(key: str) -> int:
    """The number under which a key is looked up.

    >>> key_hash("abc") == key_hash("abd")
    False
    """
    return zlib.crc32(key.encode("utf-8", "surrogateescape"))


class _Columns:
    """The columns of a file, checked when they are first used."""

    def __init__(
        self, data: bytes | memoryview | mmap, start: int, table: dict[str, list[Any]], url: str | None
    ) -> None:
        self.data = data
        self._start = start
        self._table = table
        self._url = url
        self._checked: set[str] = set()

    def raw(self, name: str) -> memoryview:
        try:
            place, length, checksum, _ = self._table[name]
            column = memoryview(self.data)[self._start + place :][:length]
        except (KeyError, TypeError, ValueError):
            raise self.damaged(name) from None
        if name not in self._checked:
            if zlib.crc32(column) != checksum:
                raise _damaged(f"the index is damaged: the checksum of its column {name!r} is wrong", self._url)
            self._checked.add(name)
        return column

    def check_claims(self, header: dict[str, Any]) -> None:
        """Refuse numbers that the file and the shard cannot hold, before anything is made of them."""
        samples, size = header["samples"], header["size"]
        if type(samples) is not int or type(size) is not int or not 0 <= samples * BLOCK <= size:
            raise _damaged(f"the index is damaged: {samples} samples cannot be in {size} bytes", self._url)
        for place, length, *_ in self._table.values():
            if type(place) is not int or type(length) is not int or place < 0 or length < 0:
                raise ValueError
        self.check_length("starts", samples + 1)

    def check_length(self, name: str, count: int) -> None:
        """Refuse a column that has not this many numbers."""
        _, length, _, kind = self._table[name]
        if kind not in _WIDTHS or length != count * _WIDTHS[kind]:
            raise self.damaged(name)

    def decompressed(self, name: str, start: int = 0, stop: int | None = None, *, limit: int) -> bytes:
        """A part of a compressed column, which may not grow without bounds."""
        tool = zlib.decompressobj()
        try:
            data = tool.decompress(self.raw(name)[start:stop], limit)
        except zlib.error:
            raise self.damaged(name) from None
        if not tool.eof:
            raise self.damaged(name)
        return data

    def numbers(self, name: str, count: int) -> Array:
        """A column of `count` numbers."""
        import numpy as np

        column = self.raw(name)
        self.check_length(name, count)
        if len(column) != self._table[name][1]:
            raise self.damaged(name)
        return np.frombuffer(column, self._table[name][3])

    def damaged(self, name: str) -> ShardError:
        return _damaged(f"the index is damaged: its column {name!r} makes no sense", self._url)


class IndexBuilder:
    """Makes an index, sample by sample.

    >>> builder = IndexBuilder()
    >>> builder.add("a", ["txt"], [MemberPlace("a.txt", 0, 512, 5, 1024)])
    >>> builder.index(size=2048).samples
    1
    """

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._starts: list[int] = []
        self._end = 0
        self._sizes: list[int] = []
        self._kinds: list[int] = []
        self._layouts: dict[tuple[Any, ...], int] = {}

    def add(self, key: str, fields: Sequence[str], places: Sequence[MemberPlace]) -> None:
        """Append a sample: its key, its fields, and the place of each."""
        here = places[0][1]
        self._keys.append(key)
        self._starts.append(here)
        layout: list[Any] = [tuple(fields)]
        sizes, stem = self._sizes, key + "."
        for field, (name, _, data_offset, size, end, whole) in zip(fields, places, strict=True):
            sizes.append(size)
            # what is usual is not noted: a name that is key and field, one header, data that are the content
            if name != stem + field or data_offset - here != BLOCK or not whole:
                ending = name[len(key) :] if name.startswith(key) else "\0" + name
                stored = None if whole else end - data_offset
                layout.append((field, ending, (data_offset - here) // BLOCK, stored))
            here = end
        self._kinds.append(self._layouts.setdefault(tuple(layout), len(self._layouts)))
        self._end = here

    def index(
        self,
        *,
        size: int,
        version: str | None = None,
        self_contained: bool = True,
        rule: str | None = None,
        archives: int = 1,
        left_out: int | None = None,
    ) -> ShardIndex:
        """The index of what was added, of a shard of `size` bytes."""
        header = {"size": size, "version": version, "self_contained": self_contained, "rule": rule}
        header |= {"archives": archives, "left_out": left_out}
        return ShardIndex.from_bytes(self._file(header))

    def _file(self, header: dict[str, Any]) -> bytes:
        parts, table, length = [], {}, 0
        for name, (data, kind) in self._columns():
            table[name] = [length, len(data), zlib.crc32(data), kind]
            parts.append(data + bytes(-len(data) % ALIGNED))
            length += len(parts[-1])
        header = header | {"samples": len(self._keys), "length": length, "columns": table}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(_FRONT.size + len(text)) % ALIGNED)
        return b"".join([_FRONT.pack(MAGIC, len(text), zlib.crc32(text)), text, *parts])

    def _columns(self) -> Iterator[tuple[str, tuple[bytes, str]]]:
        import numpy as np

        yield "starts", _packed(np.array([*self._starts, self._end], np.uint64) // BLOCK, 4)
        layouts = json.dumps([_explicit(*layout) for layout in self._layouts], separators=(",", ":"))
        yield "layouts", (zlib.compress(layouts.encode()), "")
        if len(self._layouts) > 1:
            yield "kinds", _packed(np.array(self._kinds, np.uint64))
        yield "sizes", _packed(np.array(self._sizes, np.uint64))
        blocks, hashes = self._key_blocks()
        yield "hashes", _packed(np.array(hashes, np.uint64), 4)
        yield "blocks", _packed(np.cumsum([len(block) for block in blocks], dtype=np.uint64))
        yield "keys", (b"".join(blocks), "")

    def _key_blocks(self) -> tuple[list[bytes], list[int]]:
        encoded = [key.encode("utf-8", "surrogateescape") for key in self._keys]
        joined = b"\0".join(encoded)
        if joined.count(b"\0") >= max(len(encoded), 1):
            raise ShardError("a key holds a NUL, which an index cannot hold")
        together = range(0, len(encoded), KEYS_TOGETHER)
        blocks = [zlib.compress(b"\0".join(encoded[start : start + KEYS_TOGETHER]), 6) for start in together]
        return blocks, [zlib.crc32(key) for key in encoded]


def _explicit(fields: Sequence[str], *unusual: tuple[str, str, int, int | None]) -> list[Any]:
    """A layout with an entry for every member."""
    known = {entry[0]: entry for entry in unusual}
    return [known.get(field, (field, "." + field, 1, None)) for field in fields]


def _packed(values: Array, least: int = 1) -> tuple[bytes, str]:
    """The numbers in as few bytes as the largest needs, at least `least` each; and their type."""
    largest = int(values.max()) if len(values) else 0
    width = next(width for width in (1, 2, 4, 8) if width >= least and largest < 1 << 8 * width)
    kind = f"<u{width}"
    return values.astype(kind).tobytes(), kind


def _damaged(message: str, url: str | None) -> ShardError:
    return ShardError(message, url=url, hint="remove it, or make it again: wl index --force")
