"""Indices of shards: made from the headers, kept beside the shards or in the cache folder, found again, checked.

The index of `a.tar` is `a.tar.wdx`. One in the cache folder has the shard's name and a digest of its url.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from webdataset.base.locks import locked
from webdataset.base.reports import Report, current_report
from webdataset.base.settings import settings
from webdataset.codecs.compression import compression_of_name
from webdataset.errors import (
    MissingShardError,
    NoRangesError,
    NotATarError,
    SecurityError,
    ShardError,
    StorageError,
    UnavailableError,
    WebDatasetError,
)
from webdataset.gopen import gopen, open_ranges
from webdataset.handlers import reraise_exception
from webdataset.storage.cache.names import unique_cache_name, without_signature
from webdataset.storage.local import allowed_path, open_local
from webdataset.storage.options import StorageOptions
from webdataset.storage.publish import AtomicFile
from webdataset.storage.sparse import NotSparseError, SparseStream
from webdataset.storage.streams import MOST_INDEX_BYTES, partial_reads, read_up_to
from webdataset.storage.urls import has_parameters, is_local, local_path, rewritten_url, scheme_of
from webdataset.tar.foreign import dali_path, parse_dali
from webdataset.tar.header import BLOCK, padding
from webdataset.tar.index import IndexBuilder, ShardIndex
from webdataset.tar.plain import MemberPlace
from webdataset.tar.scan import PlaceScan
from webdataset.tariterators import Grouping, SplitName, base_plus_ext

from .rules import ReadingRules

INDEXED_STORES = frozenset({"s3", "gs", "az", "ais"})
"""Stores in which an index is written and replaced beside its shard, by families of schemes."""
ENDING = ".wdx"
BESIDE, CACHE = "beside", "cache"
LOCKS = 256
TRIES = 20
T = TypeVar("T")
MaybePath = TypeVar("MaybePath", bound="str | None")
State = Callable[[], tuple[int, str | None]]
Opened = contextlib.AbstractContextManager[tuple[Any, State]]
LARGE_SHARD = 32 << 20
"""A remote shard of this size may be worth jumping over its data."""
COMPRESSED = frozenset(f"{name} data" for name in ("gzip", "bzip2", "xz", "zstandard", "lz4"))
"""Formats of shards that are read, but have no parts."""
MAX_MAPPED = 4 << 20
"""A larger index is mapped into memory instead of read."""


class StaleIndexError(ShardError):
    """An index was made of another version of the shard."""


class Kept(NamedTuple):
    """An index, and where it is kept."""

    shard: ShardIndex
    place: str
    refusal: str = ""
    """Why it is not where it was asked for, if that was refused."""


def make_index(url: str, rules: ReadingRules | None = None, *, copy: str | None = None) -> ShardIndex:
    """Index a shard as it is now, by its headers; a remote shard is read once, or its local copy is.

    >>> import tempfile
    >>> from webdataset.writer import TarWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/a.tar") as sink:
    ...         size = sink.write({"__key__": "x", "cls": 3, "txt": "hello"})
    ...     make_index(f"{folder}/a.tar").members(0)[1]
    IndexedMember(field='txt', name='x.txt', data_offset=1536, size=5)
    """
    rules = rules or ReadingRules()
    check_can_be_indexed(copy or url)
    path = copy or local_path(rewritten_url(url))
    if path is not None:
        return _scan(url, _opened_file(url, path), rules, is_copy=copy is not None)
    with contextlib.suppress(NotSparseError):
        return _scan(url, opened_parts(url, rules.options), rules)
    return _scan(url, _opened_stream(url, rules.options), rules)


def _scan(url: str, shard: Opened, rules: ReadingRules, *, is_copy: bool = False) -> ShardIndex:
    report = Report(strict=current_report().strict)
    try:
        with shard as (stream, state):
            scan = PlaceScan(stream, url=url, report=report, concatenated=rules.concatenated)
            builder = built(scan.windows(), url, report, rules.keys)
            size, version = state()
    except ShardError as error:
        error.at(url=url)
        if isinstance(error, NotATarError) and error.format in COMPRESSED:
            raise _compressed_error(error.format.removesuffix(" data"), url) from None
        raise
    return builder.index(
        size=size,
        version=None if is_copy else version,  # the time of a copy says when it was used last
        rule=rules.key_rule,
        self_contained=scan.self_contained,
        archives=scan.archives,
        left_out=scan.left_out,
    )


def index_from_dali(
    url: str, path: str | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> ShardIndex:
    """Convert the index that DALI's tools made of a shard, without reading the shard.

    It must be younger than the shard, since it does not say of which version it was made; by default it is `a.idx`
    beside `a.tar`. `storage_options` are those of the shard and of its index.
    """
    place, options = path or dali_path(url), StorageOptions.of(storage_options)
    with gopen(place, storage_options=options) as stream:
        samples = parse_dali(read_up_to(MOST_INDEX_BYTES, stream, place), url=place)
    file = local_path(rewritten_url(url))
    if file is not None and local_path(place) is not None and os.stat(place).st_mtime_ns < os.stat(file).st_mtime_ns:
        raise StaleIndexError("the shard is younger than its index", url=place, hint=f"make it again: wl index {url}")
    members = [member for sample in samples for member in sample]
    size, version = remote_state(url, options) if file is None else _file_state(file)
    end, places = 0, []
    for member in sorted(members, key=lambda member: member.data_offset):
        stop = member.data_offset + member.size + padding(member.size)
        if member.data_offset < end + BLOCK or (size is not None and stop > size):
            raise ShardError("this index does not fit the shard", url=place, member=member.name)
        places.append((member.name, end, MemberPlace(member.name, end, member.data_offset, member.size, stop)))
        end = stop
    return built([places], url, Report(strict=False)).index(size=end if size is None else size, version=version)


def kept_index(url: str, rules: ReadingRules | None = None, **options: Any) -> ShardIndex:
    """The index of a shard, made and kept if there is none that fits; the options are those of `keep_index`."""
    return keep_index(url, rules, **options).shard


def keep_index(
    url: str,
    rules: ReadingRules | None = None,
    *,
    where: str | None = None,
    force: bool = False,
    version: str | None = None,
    local_copy: Callable[[str], str | None] | None = None,
    or_cache: bool = False,
) -> Kept:
    """Find the index of a shard, or make and keep it if there is none that fits.

    `where` is "beside", "cache" or a folder: it is there afterwards, or, with `or_cache`, in the cache folder if that
    place refuses it. None keeps a new one in the cache folder, and leaves one where it is found. `local_copy(url)`
    returns the path of a copy of a remote shard, which is read instead, or None. Processes that want one index at the
    same time wait for the first of them to make it.
    """
    if local_path(url) is not None:
        local_copy = None
    if local_copy is None or compression_of_name(url) is not None:  # a copy is no better
        check_can_be_indexed(url)
    rules = rules or ReadingRules()
    places = _IndexPlaces(url, where, rules, or_cache)
    if not force and (kept := places.find_and_keep(version)) is not None:
        return kept
    with one_at_a_time(url):
        # another process may have made it while this one waited
        if not force and (kept := places.find_and_keep(version)) is not None:
            return kept
        if local_copy is None:
            return places.keep(make_index(url, rules))
        return places.keep(from_copy(url, local_copy, lambda path: make_index(url, rules, copy=path)))


def from_copy(url: str, copy: Callable[[str], MaybePath], use: Callable[[MaybePath], T]) -> T:
    """What `use` makes of a local copy; the copy of another shard may push it out of the cache before it is opened."""
    tries = 0
    while True:
        path = copy(url)
        try:
            return use(path)
        except MissingShardError:
            tries += 1
            if path is None or tries == TRIES:
                raise


def find_index(
    url: str,
    rules: ReadingRules | None = None,
    *,
    where: str | None = None,
    version: str | None = None,
    only: bool = False,
) -> ShardIndex | None:
    """Find the kept index of a shard; None if there is none that fits. A damaged one is as good as none.

    It is looked for at `where`, and, unless `only` there, beside the shard and in the cache folder. A local shard's
    size and time are compared; of a remote shard the version, if one is given.
    """
    return _IndexPlaces(url, where, rules or ReadingRules()).find(version, only=only)[0]


def load_index(place: str, options: StorageOptions | None = None) -> ShardIndex:
    """The index in this file, or at this url."""
    path = local_path(place)
    if path is None:
        with gopen(place, storage_options=options) as stream:
            return ShardIndex.from_bytes(read_up_to(MOST_INDEX_BYTES, stream, place), url=place)
    with open_local(path, buffering=0) as file:
        if os.fstat(file.fileno()).st_size <= MAX_MAPPED:
            return ShardIndex.from_bytes(file.read(), url=place)
        import mmap

        return ShardIndex.from_bytes(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), url=place)


def fits(index: ShardIndex, version: str | None) -> bool:
    """Whether the index was made of this version of its shard, as far as both are known."""
    return fits_version(index.version, version)


def fits_version(indexed: str | None, version: str | None) -> bool:
    """Whether two versions of a shard may be the same.

    Versions of files are size and time; some file systems and copies keep whole seconds only. An index that was
    made of a file says nothing of an object's ETag.

    >>> fits_version("10-1700000000123456789", "10-1700000000000000000"), fits_version("10-17", "11-17")
    (True, False)
    """
    if version is None or indexed is None or version == indexed:
        return True
    (size, time), (other_size, other_time) = _size_and_time(version), _size_and_time(indexed)
    if time is None or other_time is None:
        return (time is None) != (other_time is None)
    second = 1_000_000_000
    whole = time % second == 0 or other_time % second == 0
    return size == other_size and whole and time // second == other_time // second


def check_fits(index: ShardIndex, url: str, size: int | None, version: str | None) -> None:
    """Raise unless the index is that of the shard as a server or file system describes it now."""
    if (size is not None and size != index.size) or not fits(index, version):
        hint = f"make it again: wds.index({url!r}, force=True) or wl index --force {url}"
        raise StaleIndexError("the shard is not the one that was indexed: it has changed since", url=url, hint=hint)


def file_version(path: str) -> str:
    """Size and time of a file, which are what an index is checked against."""
    try:
        found = os.stat(allowed_path(path))
    except FileNotFoundError:
        raise MissingShardError("no such file", url=path) from None
    return f"{found.st_size}-{found.st_mtime_ns}"


def _file_state(path: str) -> tuple[int, str]:
    version = file_version(path)
    return _size_and_time(version)[0], version


def remote_state(url: str, options: StorageOptions | None = None) -> tuple[int | None, str | None]:
    """Size and version of an object, each None where its server does not say."""
    try:
        with open_ranges(url, storage_options=options) as reader:
            return reader.size, reader.version
    except NoRangesError:
        return None, ""


def index_place(url: str, where: str, rules: ReadingRules | None = None, *, several: bool = False) -> str:
    """Where the index of a shard is kept: beside it, or under a name of its own in the cache or another folder.

    It is an error to want it beside a url with parameters: what would be written there is the shard itself.
    `several` is for an index of several archives in one shard: a reader who stops at the first end marker has another.
    """
    rules = rules or ReadingRules()
    rule = rules.key_rule
    if where == BESIDE and rule is None:
        if has_parameters(rewritten_url(url)):
            hint = "keep it in the cache folder, or name another one"
            raise StorageError("a url with parameters has no index beside it", url=url, hint=hint)
        return url + ENDING
    folder = settings.indices_dir if where in (BESIDE, CACHE) else where
    identity = rules.options.identity(url)
    name = full_url(url) + (f"#{rule}" if rule else "") + ("#concatenated" if several else "")
    return os.path.join(folder, unique_cache_name(name, identity) + ENDING)


# -- making --------------------------------------------------------------------------------------------


def built(
    windows: Iterable[list[tuple[str, int, MemberPlace]]], url: str, report: Report, keys: SplitName = base_plus_ext
) -> IndexBuilder:
    """Group places of members as reading groups their data, and add the samples to an index."""
    builder = IndexBuilder()
    grouping = Grouping(keys, True, None, reraise_exception, report)
    add = builder.add
    for sample in grouping.samples(cast(Any, windows), {"__url__": url}):
        names, values = [*sample], [*sample.values()]
        add(values[0], names[2:], values[2:])
    return builder


@contextlib.contextmanager
def _opened_file(url: str, path: str) -> Iterator[tuple[Any, State]]:
    """A file's stream, and a function for its size and version."""
    with open_local(path, buffering=0) as file:

        def state() -> tuple[int, str | None]:
            found = os.fstat(file.fileno())
            return found.st_size, f"{found.st_size}-{found.st_mtime_ns}"

        before = state()
        yield file, state
        if state() != before:
            raise StorageError("the shard changed while it was indexed", url=url)


@contextlib.contextmanager
def opened_parts(url: str, options: StorageOptions | None = None) -> Iterator[tuple[Any, State]]:
    """An object as a stream that jumps over large members; NotSparseError where they are small, or it has no parts."""
    try:
        with open_ranges(url, storage_options=options) as reader:
            size = reader.size
            if size is None or size < LARGE_SHARD:
                raise NotSparseError
            yield SparseStream(reader, size), lambda: (size, reader.version)
    except NoRangesError as error:
        raise NotSparseError from error


@contextlib.contextmanager
def _opened_stream(url: str, options: StorageOptions | None) -> Iterator[tuple[Any, State]]:
    """An object's stream, which is read to its end."""
    size, version = remote_state(url, options)
    with gopen(url, storage_options=options) as stream:
        counted = _Counted(partial_reads(stream))
        yield counted, lambda: (counted.bytes if size is None else size, version)


class _Counted:
    """A stream that knows how much of it was read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._read = stream.read
        self.bytes = 0

    def read(self, size: int) -> bytes:
        data: bytes = self._read(size)
        self.bytes += len(data)
        return data


def check_can_be_indexed(url: str) -> None:
    """Raise for what has no parts that can be read by themselves."""
    scheme = scheme_of(url)
    if scheme == "pipe" or url == "-":
        what = "the output of a command" if scheme == "pipe" else "standard input"
        hint = "index a copy: cache_dir=... keeps one, or name a file or an object"
        raise ShardError(f"{what} cannot be indexed, since its parts cannot be read", url=url, hint=hint)
    if (kind := compression_of_name(url)) is not None:
        raise _compressed_error(kind, url)


def _compressed_error(kind: str, url: str | None) -> ShardError:
    hint = "store it uncompressed (images are compressed already; other fields can be, as json.gz)"
    return ShardError(f"a shard compressed with {kind} cannot be indexed", url=url, hint=hint)


# -- keeping -------------------------------------------------------------------------------------------


class _IndexPlaces(NamedTuple):
    """Where the index of one shard may be; `where` is the place that was asked for, if any."""

    url: str
    where: str | None
    rules: ReadingRules
    or_cache: bool = False

    def find(self, version: str | None, *, only: bool = False) -> tuple[ShardIndex | None, str]:
        """The index that fits this version, and its place; None without one."""
        path = local_path(rewritten_url(self.url))
        if path is not None:
            version = file_version(path)
        rule = self.rules.key_rule
        for place in self._candidates(only=only):
            try:
                index = load_index(place, self.rules.options)
            except UnavailableError:
                raise  # the shard itself is no better off
            except (ShardError, OSError, SecurityError):
                continue
            if index.rule == rule and index.is_of(concatenated=self.rules.concatenated) and fits(index, version):
                return index, place
        return None, ""

    def find_and_keep(self, version: str | None) -> Kept | None:
        """The index that fits, now also where it was asked for; one that came from a server is kept in the cache."""
        index, place = self.find(version)
        if index is None:
            return None
        if self.where is None and local_path(place) is not None:
            return Kept(index, place)
        return self.keep(index, place)

    def keep(self, index: ShardIndex, found: str = "") -> Kept:
        """Keep an index, of which there is one at the place `found`."""
        place = self.place_for(index)
        try:
            if place != found:
                _keep(index, place, self.rules.options)
            return Kept(index, place)
        except UnavailableError:
            raise
        except OSError as error:
            if not self.or_cache or self.where == CACHE:
                raise
            refusal = error.message if isinstance(error, WebDatasetError) else str(error)
        kept = self._replace(where=CACHE).keep(index, found)
        return kept._replace(refusal=refusal)

    def place_for(self, index: ShardIndex) -> str:
        """Where to keep this index of the shard."""
        return index_place(self.url, self.where or CACHE, self.rules, several=index.archives != 1)

    def _candidates(self, *, only: bool) -> Iterator[str]:
        """The likeliest place first; `only` the one that was asked for."""
        # Beside a remote shard a server must be asked; and a signed url is signed for the shard alone.
        url, local = self.url, is_local(self.url)
        places = [BESIDE, CACHE] if local else [CACHE] if "?" in url or scheme_of(url) == "pipe" else [CACHE, BESIDE]
        if self.where is not None:
            places = [self.where, *(place for place in places if place != self.where)]
        for place in places[: 1 if only else None]:
            yield index_place(url, place, self.rules)
            if self.rules.concatenated:
                yield index_place(url, place, self.rules, several=True)


def _keep(index: ShardIndex, place: str, options: StorageOptions | None) -> None:
    if local_path(place) is None:
        with gopen(place, "wb", storage_options=options) as stream:
            stream.write(index.to_bytes())
        return
    folder = os.path.dirname(place)
    if folder:
        os.makedirs(folder, exist_ok=True)
    write_whole(place, index.to_bytes())


def write_whole(path: str, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file that appears under its name when it is complete."""
    file = AtomicFile(path, mode=mode)
    try:
        file.write(data)
        file.publish()
    except BaseException:
        file.abort()
        raise


@contextlib.contextmanager
def one_at_a_time(url: str) -> Iterator[None]:
    """Only one process of this machine makes the index of this shard, or what else is named by a url."""
    import hashlib

    number = hashlib.blake2b(full_url(url).encode("utf-8", "surrogateescape"), digest_size=8).digest()[0] % LOCKS
    folder = os.path.join(settings.indices_dir, "locks")
    try:
        os.makedirs(folder, exist_ok=True)
        file = open(os.path.join(folder, f"{number:02x}.lock"), "ab")  # noqa: SIM115 - closed below
    except OSError:  # a home that cannot be written to: at worst the work is done twice
        yield
        return
    with file, locked(file, wait=True):
        yield


def full_url(url: str) -> str:
    """The url by which a shard is known in the cache folder."""
    path = local_path(url)
    return without_signature(url) if path is None else os.path.abspath(path)


def _size_and_time(version: str) -> tuple[int, int | None]:
    """The parts of a file's version; no time if it is another kind of version."""
    size, dash, time = version.partition("-")
    return (int(size), int(time)) if dash and size.isdigit() and time.isdigit() else (0, None)
