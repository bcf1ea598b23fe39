"""Shards kept on this machine: fetched once, whole and checked, then read as files.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = FileCache(folder, validator=None).get_file("pipe:echo hello")
...     os.path.getsize(path)
6
"""

from __future__ import annotations

import contextlib
import io
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, BinaryIO

from . import tariterators
from .base.behaviour import behaves
from .base.logs import Log, WatchedStream, progress_bar
from .base.redact import redacted
from .base.reports import current_report
from .base.settings import settings
from .base.stages import pipelinefilter
from .codecs.cbor import read_cbor
from .errors import DecodingError, NotATarError, ShardError, StorageError
from .gopen import gopen, open_ranges
from .handlers import Handler, checked_handler, handled, reraise_exception
from .storage.cache import contents
from .storage.cache.checks import TarChecks
from .storage.cache.contents import CannotStoreError, Entry
from .storage.cache.eviction import evict
from .storage.cache.folder import CacheRequest, Folder, open_in_use, write_whole
from .storage.cache.kinds import check_tar_format, get_filetype, magic_filetype
from .storage.cache.names import pipe_cleaner, unique_cache_name, url_to_cache_name, without_signature
from .storage.local import allowed_path
from .storage.opening import OpenedShards
from .storage.options import StorageOptions
from .storage.urls import as_url, is_local, local_path

__all__ = [
    "Entry",
    "FileCache",
    "LRUCleanup",
    "NotATarError",
    "StreamingOpen",
    "TarChecks",
    "cached_tarfile_samples",
    "cached_tarfile_to_samples",
    "cached_url_opener",
    "cbors2_to_samples",
    "cbors_to_samples",
    "check_tar_format",
    "clear",
    "download",
    "entries",
    "get_file_cached",
    "get_filetype",
    "islocal",
    "lru_cleanup",
    "magic_filetype",
    "pipe_cleaner",
    "unique_cache_name",
    "url_to_cache_name",
    "verify",
]

log = Log("webdataset.cache")

DEFAULT_FOLDER = "./_cache"
CHECK_SECONDS = 2.0


def __getattr__(name: str) -> Any:
    """Settings of the environment, under the old names of this module."""
    if name == "default_cache_dir":
        return settings.cache_dir or DEFAULT_FOLDER
    if name == "default_cache_size":
        return settings.cache_size if settings.cache_size > 0 else 1e18
    if name == "verbose_cache":
        return int(settings.cache_verbose)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def islocal(url: str) -> bool:
    """Whether a url is a file of this machine."""
    return is_local(as_url(url))


def download(url: str, dest: str, chunk_size: int = 1024**2, verbose: bool = False, *, progress: bool = False) -> None:
    """Fetch a url into a file, which appears when it is complete; `progress` shows a bar of tqdm."""
    if verbose:
        log.warning("downloading %s to %s", redacted(url), dest)
    with gopen(url) as opened, _watched(opened, url, progress) as stream:
        write_whole(stream, allowed_path(dest), chunk_size=chunk_size)


class LRUCleanup:
    """Keeps a folder within a number of bytes: the least recently used files go first.

    Args:
        cache_dir: the folder; None for none yet
        cache_size: how many bytes it may hold
        keyfn: a function of the path: files for which it is smallest go first
        verbose: log what is removed
        interval: the least number of seconds between two looks at the folder; None looks every time
    """

    def __init__(
        self,
        cache_dir: str | None = None,
        cache_size: float = 1e12,
        keyfn: Callable[[str], float] = os.path.getctime,
        verbose: bool = False,
        interval: float | None = 30,
    ) -> None:
        self.cache_dir = cache_dir
        self.cache_size = int(cache_size)
        self.keyfn = keyfn
        self.verbose = verbose
        self.interval = interval
        self.last_run = 0.0

    def set_cache_dir(self, cache_dir: str) -> None:
        """Keep the folder `cache_dir` small from now on."""
        self.cache_dir = cache_dir

    def cleanup(self) -> None:
        """Remove files if need be, at most once per interval."""
        now = time.monotonic()
        if self.last_run and self.interval is not None and now - self.last_run < self.interval:
            return
        self.last_run = now
        if self.cache_dir is None or not os.path.isdir(self.cache_dir):
            return
        for path in evict(self.cache_dir, self.cache_size, keyfn=self.keyfn)[1]:
            if self.verbose:
                log.warning("removed %s from the cache", path)


def lru_cleanup(
    cache_dir: str, cache_size: float, keyfn: Callable[[str], float] = os.path.getctime, verbose: bool = False
) -> None:
    """Keep a folder within a number of bytes, once."""
    LRUCleanup(cache_dir, cache_size, keyfn, verbose, interval=None).cleanup()


@behaves("opens")
class StreamingOpen:
    """A stage that opens shards in place: url -> {"url", "stream"} and "local_path" for files."""

    def __init__(self, verbose: bool = False, handler: Handler = reraise_exception) -> None:
        self.verbose = verbose
        self.handler = checked_handler(handler)

    def __call__(self, urls: Iterable[Any]) -> Iterator[dict[str, Any]]:
        return handled(urls, self.open, self.handler, counted_as="shards_skipped")

    def open(self, item: Any) -> dict[str, Any]:
        """Open one shard."""
        url = _url_of(item)
        if self.verbose:
            log.warning("opening %s", redacted(url))
        opened = {"url": url, "stream": gopen(url)}
        path = local_path(url)
        return opened if path is None else opened | {"local_path": path}


@behaves("opens")
class FileCache:
    """A stage that opens shards from a folder of this machine, into which it fetches what is missing.

    However many processes ask for a shard at once, one fetches and the others read along. It gets its name in the
    folder when it is complete; with `streaming`, as WebDataset has it, it can be read before that, and its
    `local_path` is where it will be. Local shards are used in place. When the folder cannot take a shard, it is
    streamed, and has no `local_path`.

    `url_to_name` names the files (by default uniquely for each url); `cache_size` limits the folder to that many bytes,
    within one shard; `validator(path)` says whether a complete file is good. If you give one of your own, nothing
    of a shard is used before it has seen the whole. `storage_options` say how servers and stores are reached; copies of
    two stores' objects of the same url have two names, unless `url_to_name` is your own. `proxy` is one of them.
    With `check` (or `WDS_CACHE_CHECK=1`) the server is asked, whenever a shard is opened, whether it is still the same;
    the copy is used, too, if the server cannot be asked. `progress` shows a bar of tqdm for each shard that is fetched.
    """

    def __init__(
        self,
        cache_dir: str | None = None,
        *,
        url_to_name: Callable[[str], str] | None = unique_cache_name,
        verbose: bool = False,
        validator: Callable[[str], Any] | None = check_tar_format,
        handler: Handler = reraise_exception,
        cache_size: float = -1,
        cache_cleanup_interval: float = 30,
        always: bool = False,
        proxy: str | None = None,
        check: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        streaming: bool = False,
        progress: bool = False,
    ) -> None:
        # pipe_cleaner was the default where it reached nothing: it stands for "as usual".
        self.url_to_name = unique_cache_name if url_to_name in (None, pipe_cleaner) else url_to_name
        self.validator = validator
        self.handler = checked_handler(handler)
        self.cache_dir = os.fspath(cache_dir or settings.cache_dir or DEFAULT_FOLDER)
        self.verbose = verbose or settings.cache_verbose
        self.always = always
        self.options = StorageOptions.of(storage_options).changed(proxy=proxy)
        self.streaming = streaming
        self.progress = progress
        self.check = settings.cache_check if check is None else check
        self.cleaner = (
            LRUCleanup(self.cache_dir, cache_size, verbose=verbose, interval=cache_cleanup_interval)
            if cache_size > 0
            else None
        )
        self.folder = Folder(self.cache_dir, int(cache_size))
        self.warned = False

    def __call__(self, urls: Iterable[Any]) -> Iterator[dict[str, Any]]:
        shards = (item if isinstance(item, dict) else {"url": item} for item in urls)
        return _CachedShards(OpenedShards(shards, self._stream, self.handler, current_report()), self)

    def open(self, item: Any) -> dict[str, Any]:
        """Open one shard, from the folder if it can be there.

        Its `local_path` is where it lies once it is complete.
        """
        url = _url_of(item)
        return self._opened_shard(url, self._stream(url))

    def _stream(self, item: object) -> Any:
        url = as_url(item)
        if self._is_in_place(url):
            return StreamingOpen(self.verbose).open(url)["stream"]
        request = self._request(url)
        return self.folder.open(request) if self._can_stream() else self._opened_whole(url, request)

    def _opened_shard(self, url: str, stream: object) -> dict[str, Any]:
        opened = {"url": url, "stream": stream}
        if self._is_in_place(url):
            path = local_path(url)
            return opened if path is None else opened | {"local_path": path}
        path = self.folder.path_of(self._name(url))
        kept_there = stream.kept if hasattr(stream, "kept") else _is_of_file(stream, path)
        return opened | {"local_path": path} if kept_there else opened

    def _is_in_place(self, url: str) -> bool:
        return url == "-" or (is_local(url) and not self.always)

    def get_file(self, url: str) -> str:
        """The path of a shard, fetched if it is not there yet; a local shard's own path."""
        path = local_path(url)
        if path is not None and not self.always:
            return allowed_path(path, url)
        return self.folder.get(self._request(url))

    def _request(self, url: str) -> CacheRequest:
        allowed_path(self.cache_dir, self.cache_dir)
        return CacheRequest(
            self._name(url),
            lambda: self._fetch(url),
            TarChecks(self.validator, url),
            self._warn,
            redacted(without_signature(url)),
            partial(self._is_current, url) if self.check else None,
        )

    def _name(self, url: str) -> str:
        assert self.url_to_name is not None
        if self.url_to_name is unique_cache_name:
            return unique_cache_name(url, self.options.identity(url))
        return self.url_to_name(url)

    def _can_stream(self) -> bool:
        """Whether a shard may be read while it is fetched: only with checks that need no more than its first bytes."""
        return self.streaming and (self.validator is None or self.validator is check_tar_format)

    def _opened_whole(self, url: str, request: CacheRequest) -> Any:
        try:
            while True:
                with contextlib.suppress(FileNotFoundError):  # another process evicted it just now
                    return open_in_use(self.folder.get(request))
        except CannotStoreError as exn:
            self._warn(exn)
            return self._gopen(url)

    def _fetch(self, url: str) -> Any:
        if self.verbose:
            log.warning("fetching %s into %s", redacted(url), self.cache_dir)
        return _watched(self._gopen(url), url, self.progress)

    def _gopen(self, url: str) -> Any:
        return gopen(url, storage_options=self.options)

    def _is_current(self, url: str, facts: contents.Facts) -> bool:
        """Whether the server still has what was fetched, or does not say; without much patience."""
        patience = min(CHECK_SECONDS, self.options.get("patience", settings.patience))
        try:
            with open_ranges(url, storage_options=self.options.changed(patience=patience)) as there:
                size, version = there.size, there.version
        except StorageError:
            return True
        named = version if facts.validator else None
        return size in (None, facts.size) and named in (None, facts.validator)

    def _warn(self, exn: OSError) -> None:
        if not self.warned:
            self.warned = True
            warnings.warn(f"{self.cache_dir}: {exn.strerror or exn}; shards are streamed instead", stacklevel=2)


class _CachedShards:
    """Iterator over opened shards, the next one opened before the current one ends."""

    def __init__(self, shards: OpenedShards, cache: FileCache) -> None:
        self._shards = shards
        self._cache = cache
        self._succeeded = getattr(cache.handler, "succeeded", None)
        self.look_ahead = shards.look_ahead
        self.close = shards.close

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        shard = next(self._shards)
        if self._succeeded is not None:
            self._succeeded()
        return self._cache._opened_shard(as_url(shard["url"]), shard["stream"]) | {"__number__": shard["__number__"]}


def entries(cache_dir: str | None = None) -> Iterator[Entry]:
    """The shards of a cache folder: `Entry(path, url, size, used, complete)`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = FileCache(folder, validator=None).get_file("pipe:echo hello")
    ...     [(entry.url, entry.size, entry.complete) for entry in entries(folder)]
    [('pipe:echo hello', 6, True)]
    """
    return contents.entries(os.fspath(cache_dir or settings.cache_dir or DEFAULT_FOLDER))


def verify(cache_dir: str | None = None, *, progress: bool = False) -> Iterator[tuple[Entry, str | None]]:
    """Each shard of a cache folder and what is wrong with it; contents are compared with their checksums.

    `progress` shows a bar of tqdm.
    """
    if not progress:
        return ((entry, contents.problem_with(entry)) for entry in entries(cache_dir))
    return _verified(list(entries(cache_dir)))


def _verified(found: list[Entry]) -> Iterator[tuple[Entry, str | None]]:
    with progress_bar("verify", "B", sum(entry.size for entry in found)) as bar:
        for entry in found:
            problem = contents.problem_with(entry)
            bar.update(entry.size)
            yield entry, problem


def clear(cache_dir: str | None = None, *, unused_for: float = 0, foreign: bool = False) -> list[str]:
    """Remove the shards that no process uses, and incomplete ones whose process is gone; returns their paths.

    `unused_for` spares what was used within that many seconds. Files that were put into the folder by something else
    stay, unless `foreign=True`.
    """
    folder = os.fspath(cache_dir or settings.cache_dir or DEFAULT_FOLDER)
    removed = contents.remove_leftovers(folder)
    oldest = time.time() - unused_for
    for entry in contents.entries(folder):
        ours = foreign or contents.read_facts(entry.path) is not None
        if ours and (entry.used <= oldest or not unused_for) and not contents.is_bookkeeping(entry.path):
            removed += [entry.path] if contents.remove_unused(entry.path) else []
    return removed


def get_file_cached(
    spec: str,
    cache_size: float = -1,
    cache_dir: str | None = None,
    url_to_name: Callable[[str], str] | None = None,
    verbose: bool = False,
    *,
    progress: bool = False,
) -> str:
    """The path of a url's file in the cache, fetched if it is not there yet; `progress` shows a bar of tqdm."""
    cache = FileCache(cache_dir, cache_size=cache_size, url_to_name=url_to_name, verbose=verbose, progress=progress)
    return cache.get_file(spec)


def cached_url_opener(  # noqa: PLR0917 - the order is the API's
    data: Iterable[Any],
    handler: Handler = reraise_exception,
    cache_size: float = -1,
    cache_dir: str | None = None,
    url_to_name: Callable[[str], str] | None = None,
    validator: Callable[[str], Any] | None = check_tar_format,
    verbose: bool = False,
    always: bool = False,
    *,
    streaming: bool = False,
) -> Iterator[dict[str, Any]]:
    """Open shards through a cache; `always` copies local ones, too."""
    cache = FileCache(
        cache_dir,
        url_to_name=url_to_name,
        validator=validator,
        handler=handler,
        cache_size=cache_size,
        verbose=verbose,
        always=always,
        streaming=streaming,
    )
    return cache(data)


@behaves("holds", "cached_tarfile_to_samples() looks ahead; WebDataset(cache_dir=...) does not")
def cached_tarfile_samples(  # noqa: PLR0917 - the order is the API's
    src: Iterable[Any],
    handler: Handler = reraise_exception,
    cache_size: float = -1,
    cache_dir: str | None = None,
    verbose: bool = False,
    url_to_name: Callable[[str], str] | None = None,
    always: bool = False,
    select_files: Callable[[str], Any] | None = None,
    rename_files: Callable[[str], str] | None = None,
    *,
    concatenated: bool = False,
) -> Iterator[dict[str, Any]]:
    """Shards to samples, through a cache."""
    opening: dict[str, Any] = {"verbose": verbose, "always": always, "streaming": True}
    streams = cached_url_opener(src, handler, cache_size, cache_dir, url_to_name, **opening)
    reading: dict[str, Any] = {"concatenated": True} if concatenated else {}  # a replacement need not know it
    files = tariterators.tar_file_expander(
        streams, handler=handler, select_files=select_files, rename_files=rename_files, **reading
    )
    return tariterators.group_by_keys(files, handler=handler)


cached_tarfile_to_samples = pipelinefilter(cached_tarfile_samples)


@pipelinefilter
def cbors_to_samples(data: Iterable[Any], handler: Handler = reraise_exception) -> Iterator[dict[str, Any]]:
    """Files of CBOR records, one sample after another, to samples."""
    return _records(StreamingOpen(handler=handler)(data))


cbors2_to_samples = cbors_to_samples


def _records(streams: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for source in streams:
        with source["stream"] as stream:
            ahead = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
            while ahead.peek(1):
                try:
                    record = read_cbor(partial(_read_exactly, ahead))
                    sample = {"__url__": source["url"], **record}
                except (DecodingError, TypeError, ValueError) as exn:
                    raise ShardError(f"this is not a sequence of CBOR records: {exn}", url=source["url"]) from exn
                yield sample


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    """The next bytes of a stream, read in pieces, so that memory grows with what arrives."""
    pieces, rest = [], size
    while rest and (piece := stream.read(min(rest, 1 << 20))):
        pieces.append(piece)
        rest -= len(piece)
    if rest:
        raise DecodingError(f"a record is cut: {size} bytes are claimed, {size - rest} are there")
    return b"".join(pieces)


def _watched(stream: Any, url: str, progress: bool) -> Any:
    """The stream, with a bar if there is to be one."""
    return WatchedStream(stream, redacted(without_signature(url)).rpartition("/")[2]) if progress else stream


def _is_of_file(stream: Any, path: str) -> bool:
    """Whether the stream reads this file."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    except (AttributeError, OSError, ValueError):
        return False


def _url_of(item: object) -> str:
    return as_url(item["url"] if isinstance(item, dict) else item)
