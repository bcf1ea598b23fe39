"""Shards that cannot be read in parts, as those of a web server without range requests: fetched whole, and kept.

Which they are turns out when a part is asked for. They are then fetched once for all processes of the machine, into the
folder `shards` beside that of the indices, and read from there; the server is asked whether they are still the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from webdataset.base.logs import Log
from webdataset.base.redact import redacted
from webdataset.base.reports import current_report
from webdataset.base.settings import settings
from webdataset.cache import FileCache
from webdataset.errors import NoRangesError, StorageError
from webdataset.gopen import open_ranges
from webdataset.storage.cache.contents import CannotStoreError, read_facts
from webdataset.storage.cache.names import unique_cache_name
from webdataset.storage.options import StorageOptions
from webdataset.storage.ranges import PartStream, RangeReader
from webdataset.storage.stores.lookup import STORES
from webdataset.storage.urls import local_path, scheme_of

from .files import check_can_be_indexed, fits_version, from_copy

log = Log("webdataset.cache")

FREE = 0.05
"""How much of a disk is left free by copies that nobody has asked for."""

T = TypeVar("T")


class WholeShards:
    """Opens shards to read parts of them, from a copy where the server does not support range requests.

    Which servers these are is remembered, and goes along to other processes.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = StorageOptions.of(options)
        """How servers are reached."""
        self._supports_ranges: dict[str, bool] = {}
        """Of each server that was asked."""
        self._make_locks()

    def open(self, url: str) -> RangeReader | ShardParts:
        """A shard, to read parts of it."""
        return RangeReader(url) if local_path(url) is not None else ShardParts(url, self)

    def copy_if_whole(self, url: str) -> str | None:
        """The path of a copy, if the shard cannot be read in parts: of each server one shard is asked for a byte."""
        check_can_be_indexed(url)
        with self._lock:
            if not self.is_whole(url) and _server(url) not in self._supports_ranges and scheme_of(url) not in STORES:
                self._probe(url)
        return self.copy(url) if self.is_whole(url) else None

    def is_whole(self, url: str) -> bool:
        """Whether a shard is known to be one that has to be fetched whole; one that was fetched is."""
        return self._supports_ranges.get(_server(url)) is False or self._has_copy(url)

    def remote(self, url: str) -> RangeReader:
        """The shard where it is."""
        return open_ranges(url, storage_options=self.options)

    def copy(self, url: str) -> str:
        """The path of a copy, which is fetched if there is none, or one of another version."""
        cache = FileCache(settings.copies_dir, cache_size=settings.cache_size, check=True, storage_options=self.options)
        # within a limit, one shard makes room for the next, which it cannot as long as it is being fetched
        turn = self._fetching if settings.cache_size > 0 else contextlib.nullcontext()
        try:
            if not self._has_copy(url):
                self._announce(url)
                self._check_room(url, cache.cache_dir)
            with turn:
                return cache.get_file(url)
        except CannotStoreError as error:
            raise StorageError(
                f"it cannot be read in parts, and no copy can be kept in {cache.cache_dir}: {error.strerror or error}",
                url=url,
                hint="give cache_dir= a folder with room for the shards, or serve them with range requests",
            ) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_supports_ranges": self._supports_ranges}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_locks()

    def _make_locks(self) -> None:
        self._lock = threading.RLock()
        self._fetching = threading.Lock()

    def _probe(self, url: str) -> None:
        try:
            with self.remote(url) as reader:
                reader.read(0, 1)
        except NoRangesError:
            self._announce(url)
            return
        except StorageError:
            return  # that of the shard: reading it meets the same
        self._supports_ranges[_server(url)] = True

    def _has_copy(self, url: str) -> bool:
        name = unique_cache_name(url, self.options.identity(url))
        return os.path.exists(os.path.join(settings.copies_dir, name))

    def _announce(self, url: str) -> None:
        server = _server(url)
        with self._lock:
            announced = self._supports_ranges.get(server) is False
            self._supports_ranges[server] = False
        if not announced:
            log.warning(
                "%s does not support range requests: shards are fetched whole and kept in %s, "
                "which needs room for all of them",
                redacted(server),
                settings.copies_dir,
            )

    def _check_room(self, url: str, folder: str) -> None:
        """A disk that is nearly full is left alone: nobody has asked for these copies."""
        try:
            with self.remote(url) as reader:
                size = reader.size or 0
        except StorageError:
            return  # it does not say
        disk = shutil.disk_usage(_existing(folder))
        if disk.free - size < FREE * disk.total:
            reason = f"the disk has {disk.free / 1e9:.1f} GB free, the shard takes {size / 1e9:.1f} GB"
            raise CannotStoreError(None, reason)


class ShardParts:
    """A remote shard of which parts are read, by ranges or, once they turn out not to be supported, from a copy.

    Threads may share one.
    """

    def __init__(self, url: str, whole: WholeShards) -> None:
        self.url = url
        self._whole = whole
        self._lock = threading.Lock()
        self._remote: RangeReader | None = None
        self._copy: RangeReader | None = None
        self._is_whole = whole.is_whole(url)
        self._version: str | None = None
        """The version that is read, as the server names it, if it was asked."""
        self._report = current_report()

    @property
    def size(self) -> int | None:
        """The number of bytes of the shard, if its server says so."""
        return self._ask(lambda reader: reader.size)

    @property
    def version(self) -> str | None:
        """The version that is read, as the server names it."""
        version = self._ask(lambda reader: reader.version)
        if self._copy is None:
            self._version = version
        return self._version

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to before `stop`, all of them or an error."""
        return self._ask(lambda reader: reader.read(start, stop))

    def stream(self, start: int, stop: int, memory: bytearray | None = None) -> PartStream:
        """The same bytes as a stream."""
        return self._ask(lambda reader: reader.stream(start, stop, memory))

    def close(self) -> None:
        """Close the connections and the file."""
        for reader in (self._remote, self._copy):
            if reader is not None:
                reader.close()

    def _ask(self, question: Callable[[RangeReader], T]) -> T:
        if not self._is_whole:
            with contextlib.suppress(NoRangesError):
                return question(self._remote_reader())
        self._is_whole = True
        return question(self._copy_reader())

    def _remote_reader(self) -> RangeReader:
        with self._lock:
            if self._remote is None:
                with self._report.in_force():
                    self._remote = self._whole.remote(self.url)
            return self._remote

    def _copy_reader(self) -> RangeReader:
        with self._lock:
            if self._copy is None:
                self._copy = self._open_copy()
            return self._copy

    def _open_copy(self) -> RangeReader:
        def opened(path: str) -> RangeReader:
            copy = RangeReader(path, cached=True)
            self._check_version(path)
            return copy

        return from_copy(self.url, self._whole.copy, opened)

    def _check_version(self, path: str) -> None:
        """A copy that was made in the middle is of the version that was read before."""
        facts = read_facts(path)
        version = None if facts is None else facts.validator
        if not fits_version(self._version, version):
            raise StorageError("the object changed while it was read", url=self.url)
        self._version = version


def _server(url: str) -> str:
    """Which server answers for a url: a host; a bucket, with the options in the url; all of any other scheme.

    >>> _server("http://host:80/a.tar?x=1"), _server("ais://bucket/a.tar?etl_name=x"), _server("ssh://host/a.tar")
    ('http://host:80', 'ais://bucket?etl_name=x', 'ssh:')
    """
    parts = urlsplit(url)
    if parts.scheme in STORES:
        return parts._replace(path="").geturl()
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _existing(folder: str) -> str:
    folder = os.path.abspath(folder)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder
