"""List what is in an archive, from its headers alone.

>>> import io, tarfile
>>> file = io.BytesIO()
>>> with tarfile.open(fileobj=file, mode="w") as tar:
...     for name in ("a.cls", "a.jpg", "b.cls"):
...         tar.addfile(tarfile.TarInfo(name))
>>> [(sample.key, sample.fields) for sample in grouped(members(io.BytesIO(file.getvalue())))]
[('a', {'cls': 0, 'jpg': 0}), ('b', {'cls': 0})]
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import NamedTuple

from webdataset.base.reports import current_report
from webdataset.codecs.compression import ReadableStream, decompressed, kind_of_content
from webdataset.errors import StorageError
from webdataset.gopen import gopen
from webdataset.indices.files import find_index, opened_parts, remote_state
from webdataset.indices.rules import ReadingRules
from webdataset.storage.sparse import NotSparseError
from webdataset.storage.urls import is_local, scheme_of
from webdataset.tar.archive import BEHIND_END
from webdataset.tar.header import BLOCK
from webdataset.tar.index import ShardIndex
from webdataset.tar.scan import MemberEntry, scan_members
from webdataset.tariterators import base_plus_ext

_KINDS = {
    "0": stat.S_IFREG, "S": stat.S_IFREG, "2": stat.S_IFLNK, "3": stat.S_IFCHR, "4": stat.S_IFBLK, "5": stat.S_IFDIR,
    "6": stat.S_IFIFO,
}  # fmt: skip


RESERVED = re.compile(r"__[^/]*__($|/)")
"""Names that readers leave out: the archive's metadata."""


class SampleEntry(NamedTuple):
    """A sample, as the headers describe it."""

    key: str
    fields: dict[str, int]
    """Field -> size."""
    offset: int

    @property
    def size(self) -> int:
        """The size of all fields."""
        return sum(self.fields.values())


def members(
    source: str | ReadableStream, *, url: str | None = None, concatenated: bool = False
) -> Iterator[MemberEntry]:
    """Yield every member of an archive, a url or a stream; data is skipped if possible.

    Of a large remote object only headers are fetched, unless they are too close together.
    """
    if not isinstance(source, str):
        yield from scan_members(decompressed(source, url=url), url=url, concatenated=concatenated)
        return
    yielded = 0
    if source != "-" and not is_local(source):
        with suppress(NotSparseError):
            for entry in _from_ranges(source, concatenated):
                yielded += 1
                yield entry
            return
    with closing(gopen(source)) as stream:
        entries = scan_members(decompressed(stream, url=source), url=source, concatenated=concatenated)
        yield from islice(entries, yielded, None)


def _from_ranges(url: str, concatenated: bool) -> Iterator[MemberEntry]:
    with opened_parts(url) as (stream, _):
        if kind_of_content(stream.read(BLOCK)) is not None:
            raise NotSparseError
        stream.seek(0)
        yield from scan_members(stream, url=url, concatenated=concatenated)


def samples(url: str, *, concatenated: bool = False) -> Iterator[SampleEntry]:
    """Yield the samples of a shard, from its index if there is one that matches, else from its headers."""
    try:
        index = _index_of(url, concatenated)
    except StorageError:
        index = None  # reading the shard will show what is wrong
    if index is None:
        yield from grouped(members(url, concatenated=concatenated))
        return
    if index.left_out is not None:
        current_report().warn(BEHIND_END, url=url, offset=index.left_out)
    for i, start in enumerate(index.starts[:-1].tolist()):
        yield SampleEntry(index.key(i), {member.field: member.size for member in index.members(i)}, start)


def _index_of(url: str, concatenated: bool) -> ShardIndex | None:
    if is_local(url):
        return find_index(url, ReadingRules(concatenated=concatenated))
    if url == "-" or scheme_of(url) == "pipe":
        return None
    size, version = remote_state(url)
    index = find_index(url, ReadingRules(concatenated=concatenated), version=version)
    return index if index is not None and size in (None, index.size) else None


def grouped(entries: Iterable[MemberEntry]) -> Iterator[SampleEntry]:
    """Group neighbours that share a key, as a reader does."""
    sample: SampleEntry | None = None
    for entry in entries:
        key, extension = base_plus_ext(entry.name)
        if not entry.is_regular or not key or extension is None or extension.startswith("__"):
            continue
        if RESERVED.match(entry.name):
            continue
        if sample is None or key != sample.key:
            if sample is not None:
                yield sample
            sample = SampleEntry(key, {}, entry.offset)
        sample.fields[extension.lower()] = entry.size
    if sample is not None:
        yield sample


def long_line(entry: MemberEntry) -> str:
    """Format a member as `tar tv` does: mode, size, time, name.

    >>> long_line(MemberEntry("a.txt", "0", 5, 0, 512, 0o444, 1e9, "", {}))
    '-r--r--r--         5 2001-09-... a.txt'
    """
    mode, when, name = long_facts(entry)
    return f"{mode} {entry.size:>9} {when} {name}"


def long_facts(entry: MemberEntry) -> tuple[str, str, str]:
    """The mode, time and name of a member, as `tar tv` writes them."""
    mode = stat.filemode(entry.mode & 0o7777 | _KINDS.get(entry.type, 0))
    mode = "h" + mode[1:] if entry.type == "1" else mode
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(min(max(entry.mtime, 0), 1 << 40)))
    link = {"1": " link to ", "2": " -> "}.get(entry.type)
    return mode, when, shown(entry.name) + (link + shown(entry.linkname) if link else "")


def shown(name: str) -> str:
    """Escape a name as GNU tar does, so that it is always one line.

    >>> shown("a\\nb.txt"), shown("caf\\u00e9 \\udcff")
    ('a\\\\nb.txt', 'café \\\\377')
    """
    if name.isprintable() and "\\" not in name:
        return name
    return "".join(char if char.isprintable() and char != "\\" else _ESCAPES.get(char) or _octal(char) for char in name)


_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\v": "\\v"}


def _octal(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))
