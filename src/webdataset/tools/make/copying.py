"""Copy shards from anywhere to anywhere; those that exist are skipped, the others verified.

A local shard appears under its name when it is complete. An interrupted copy, even a killed one, can be resumed:
complete shards are skipped, and a partial copy of a large one is continued if its source supports range requests.
Copies are verified by their size and the archive's end, or with `checksum` by their contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, NamedTuple

from webdataset.base.logs import progress_bar
from webdataset.base.reports import current_report
from webdataset.base.stops import Stop
from webdataset.codecs.compression import kind_of_content
from webdataset.errors import MissingShardError, NoRangesError, StorageError, WebDatasetError
from webdataset.gopen import gopen, open_ranges
from webdataset.handlers import Handler, ask, checked_handler, close, reraise_exception
from webdataset.storage.cache.names import without_signature
from webdataset.storage.publish import AtomicFile
from webdataset.storage.ranges import RangeReader
from webdataset.storage.urls import is_local, local_path, rewritten_url, scheme_of
from webdataset.tar.header import BLOCK
from webdataset.writing.outputs import local_target

from .partfiles import LEAST, BusyError, PartFile

CHUNK_BYTES = 1 << 20
END_BYTES = 1024
RANGE_BYTES = 16 << 20
OVERLAP = 1 << 20
PROGRESS_SECONDS = 0.25


class CopiedShard(NamedTuple):
    """The result of copying one shard."""

    source: str
    target: str
    size: int
    skipped: bool


def copy_shards(
    urls: Iterable[str],
    target: str,
    *,
    parallel: int = 1,
    force: bool = False,
    checksum: bool = False,
    handler: Handler = reraise_exception,
    progress: Callable[[int], object] | bool = False,
) -> Iterator[CopiedShard]:
    """Copy shards to a folder or prefix (ending in `/`, or an existing folder), or one shard to a name.

    A shard whose copy has the same size is skipped; with `checksum`, only one whose copy has the same content.
    `progress` is called with the number of bytes, by any thread, whenever some were copied, and while nothing happens;
    True shows a bar of tqdm.
    """
    sources = list(urls)
    pairs = [(source, target_of(source, target, len(sources))) for source in sources]
    _check_clashes(pairs)
    copied = partial(_copied, pairs, max(parallel, 1), force, checksum, checked_handler(handler))
    return _watched(pairs, copied) if progress is True else copied(progress or _unheard)


def target_of(source: str, target: str, sources: int = 1) -> str:
    """Where a shard goes.

    >>> target_of("http://host/train-0.tar?token=x", "data/"), target_of("a.tar", "s3://bucket/b.tar")
    ('data/train-0.tar', 's3://bucket/b.tar')
    """
    folder = local_path(target) if is_local(target) else None
    if not target.endswith("/"):
        if folder is None or not os.path.isdir(folder):
            if sources > 1:
                hint = "end it in / to name a folder, and make that first" if folder else "end it in / to name a prefix"
                raise StorageError(f"{sources} shards cannot go to one name", url=target, hint=hint)
            return target
        target += "/"
    name = source if is_local(source) else source.partition("?")[0].partition("#")[0]
    name = name.rpartition("/")[2]
    if source == "-" or scheme_of(source) == "pipe" or name in ("", ".", ".."):
        raise StorageError("this source has no name of its own", url=source, hint="name the file to write")
    return target + name


def _check_clashes(pairs: list[tuple[str, str]]) -> None:
    first: dict[str, str] = {}
    for source, target in pairs:
        if first.setdefault(target, source) != source:
            message = f"two shards would have the same name: {first[target]} and {source}"
            raise StorageError(message, url=target, hint="copy them to different folders")
        if is_local(source) and is_local(target) and os.path.exists(target) and os.path.samefile(source, target):
            raise StorageError("a shard cannot be copied onto itself", url=source)


def _unheard(_: int) -> None:
    """Nobody listens."""


def _watched(
    pairs: list[tuple[str, str]], copied: Callable[[Callable[[int], object]], Iterator[CopiedShard]]
) -> Iterator[CopiedShard]:
    """Copy with a bar, whose length is known where all sources are files of this machine."""
    paths = [local_path(source) for source, _ in pairs]
    known = all(path is not None and os.path.isfile(path) for path in paths)
    total = sum(os.path.getsize(path) for path in paths if path is not None) if known else None
    with progress_bar("copy", "B", total) as bar:
        copies = copied(bar.update)
        try:
            for shard in copies:
                if shard.skipped:
                    bar.update(shard.size)
                yield shard
        finally:
            close(copies)


def _copied(  # noqa: PLR0917 - as copy_shards was told
    pairs: list[tuple[str, str]],
    parallel: int,
    force: bool,
    checksum: bool,
    handler: Handler,
    progress: Callable[[int], object],
) -> Iterator[CopiedShard]:
    from concurrent.futures import ThreadPoolExecutor, wait

    report = current_report()
    streams = _Streams(progress)
    pool = ThreadPoolExecutor(parallel, "webdataset-copy")
    try:
        jobs = [pool.submit(copy_shard, *pair, force=force, checksum=checksum, streams=streams) for pair in pairs]
        for job in jobs:
            try:
                while not wait([job], PROGRESS_SECONDS).done:
                    progress(0)
                yield job.result()
            except Exception as error:
                if not ask(handler, error, report, "shards_skipped"):
                    return
    finally:
        # do not wait for unfinished copies after an interruption or an early exit
        streams.stop()
        pool.shutdown(wait=True, cancel_futures=True)


def copy_shard(
    source: str, target: str, *, force: bool = False, checksum: bool = False, streams: _Streams | None = None
) -> CopiedShard:
    """Copy one shard, unless its copy exists, and verify the copy."""
    streams = streams or _Streams()
    with streams.waits.in_force():
        return _copy_shard(source, target, force, checksum, streams)


def _copy_shard(source: str, target: str, force: bool, checksum: bool, streams: _Streams) -> CopiedShard:
    with streams.ranges(source) as reader, contextlib.ExitStack() as opened:
        size, version = _size_and_version(reader)
        stream = None
        if size is None:
            stream = opened.enter_context(streams.open(source))
            size = _size_of(source, stream)
        if not force and _is_copy(source, target, size, checksum):
            return CopiedShard(source, target, size or 0, skipped=True)
        if (part := _part_file(source, target, size, version)) is not None:
            opened.callback(part.leave)
        if part is not None and part.size and reader is not None and size is not None:
            written = _resume(reader, part, size, streams)
            digest = _digest_of(source) if checksum else ""
        else:
            stream = stream or opened.enter_context(streams.open(source))
            digest, written = _write(stream, target, streams, part)
    if size is not None and written != size:
        raise StorageError(f"{written} of {size} bytes arrived", url=source)
    _verify(target, written, digest if checksum else None)
    return CopiedShard(source, target, written, skipped=False)


class _Streams:
    """The streams that are being read, so that another thread can close them."""

    def __init__(self, progress: Callable[[int], object] = _unheard) -> None:
        self.progress = progress
        self.stopped = False
        self.waits = Stop()
        self._open: set[Any] = set()

    @contextlib.contextmanager
    def open(self, url: str) -> Iterator[Any]:
        stream = gopen(url)
        self._open.add(stream)
        try:
            self.check(url)  # it may have been opened while everything was being stopped
            yield stream
        finally:
            self._open.discard(stream)
            if url != "-":
                stream.close()

    @contextlib.contextmanager
    def ranges(self, url: str) -> Iterator[RangeReader | None]:
        """Open a reader of byte ranges; None if the url does not support it."""
        if url == "-" or scheme_of(url) == "pipe":
            yield None
            return
        try:
            reader = open_ranges(url)
        except NoRangesError:
            yield None
            return
        self._open.add(reader)
        try:
            with reader:
                self.check(url)
                yield reader
        finally:
            self._open.discard(reader)

    def stop(self) -> None:
        self.stopped = True
        self.waits.set()
        for stream in list(self._open):
            # errors of an abandoned copy do not matter
            with contextlib.suppress(Exception):
                stream.close()

    def check(self, url: str) -> None:
        if self.stopped:
            raise StorageError("the copy was interrupted", url=url)


def _size_and_version(reader: RangeReader | None) -> tuple[int | None, str | None]:
    """Return size and version, None if the server does not tell."""
    if reader is None:
        return None, None
    try:
        return reader.size, reader.version
    except MissingShardError:
        raise
    except StorageError:
        return None, None


def _part_file(source: str, target: str, size: int | None, version: str | None) -> PartFile | None:
    """Open the partial file of a large local copy; None if it could not be resumed."""
    path = local_target(rewritten_url(target))
    if path is None or version is None or size is None or size < LEAST:
        return None
    try:
        return PartFile(path, f"{without_signature(source)} {size} {version}")
    except BusyError:
        return None


def _resume(reader: RangeReader, part: PartFile, size: int, streams: _Streams) -> int:
    """Fetch the rest of a shard; the end of the existing part is compared, as it may not have reached the disk."""
    last = max(part.size - OVERLAP, 0)
    if part.size > size or reader.read(last, part.size) != part.read(last, part.size):
        part.restart()
    while part.size < size:
        streams.check(reader.url)
        data = reader.read(part.size, min(part.size + RANGE_BYTES, size))
        part.write(data)
        streams.progress(len(data))
    part.publish()
    return part.size


def _write(stream: BinaryIO, target: str, streams: _Streams, part: PartFile | None) -> tuple[str, int]:
    path = local_target(rewritten_url(target))
    sink: Any = part or (gopen(target, "wb") if path is None else AtomicFile(path))
    digest, written = hashlib.sha256(), 0
    try:
        while chunk := stream.read(CHUNK_BYTES):
            streams.check(target)
            sink.write(chunk)
            digest.update(chunk)
            written += len(chunk)
            streams.progress(len(chunk))
        streams.check(target)
        if isinstance(sink, (AtomicFile, PartFile)):
            sink.publish()
        elif target != "-":
            sink.close()
        else:
            sink.flush()
    except BaseException:
        if part is None:
            getattr(sink, "abort", sink.close)()
        raise
    return digest.hexdigest(), written


def _is_copy(source: str, target: str, size: int | None, checksum: bool) -> bool:
    if target == "-" or scheme_of(target) == "pipe":
        return False
    try:
        with gopen(target) as stream:
            there = _size_of(target, stream)
            same = size is not None and size == there
            return same and (not checksum or _digest(stream) == _digest_of(source))
    except (MissingShardError, FileNotFoundError):
        return False
    except WebDatasetError:
        return False  # it cannot be read, so it is not a copy


def _verify(target: str, size: int, digest: str | None) -> None:
    """Verify the copy; what went to a command or stdout cannot be read back."""
    if target == "-" or scheme_of(target) == "pipe" or not _is_readable(target):
        return
    with gopen(target) as stream:
        there = _size_of(target, stream)
        if there is not None and there != size:
            raise StorageError(f"the copy has {there} bytes, not {size}", url=target, hint="copy it again with --force")
        if digest is not None and _digest(stream) != digest:
            raise StorageError("the copy differs from what was sent", url=target, hint="copy it again with --force")
        if digest is None and target.endswith(".tar"):
            _check_end(stream, target, size)


def _is_readable(target: str) -> bool:
    path = local_target(rewritten_url(target))
    return path is not None or not is_local(target)


def _check_end(stream: BinaryIO, target: str, size: int) -> None:
    """Warn about an archive without an end marker, which may have been truncated earlier."""
    if not is_local(target) or size < END_BYTES or kind_of_content(stream.read(BLOCK)) is not None:
        return
    stream.seek(size - END_BYTES)
    if stream.read(END_BYTES).strip(b"\0"):
        current_report().warn("the archive has no end marker, nor has its source", url=target, offset=size)


def _size_of(url: str, stream: object) -> int | None:
    """Return the number of bytes, if it is known before reading."""
    length = getattr(stream, "length", None)
    if length is not None:
        return int(length)
    path = local_path(url) if is_local(url) else None
    return os.path.getsize(path) if path is not None and os.path.isfile(path) else None


def _digest_of(url: str) -> str:
    with gopen(url) as stream:
        return _digest(stream)


def _digest(stream: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
