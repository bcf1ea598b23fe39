"""Writing samples into tar shards.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     with ShardWriter(f"{folder}/train-%06d.tar", maxcount=2) as sink:
...         for i in range(3):
...             sink.write({"__key__": f"sample{i:04d}", "txt": "hello", "cls": i})
...     sorted(os.listdir(folder))
['train-000000.tar', 'train-000001.tar']

A local shard appears under its name when it is complete, and only then: until that moment it is called
`.NAME.RANDOM.tmp`, and an exception inside `with` removes it. The same samples are written as the same bytes.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count as count_from
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from .base.logs import Log, progress_bar
from .base.printing import did_you_mean
from .base.redact import redacted
from .base.stages import argument_names
from .codecs import encoders as default_handlers
from .codecs.arrays import encode_npy as numpy_dumps
from .codecs.arrays import encode_npz as numpy_npz_dumps
from .codecs.arrays import encode_ten as tenbin_dumps
from .codecs.basic import encode_msgpack as mp_dumps
from .codecs.cbor import encode_cbor as cbor_dumps
from .codecs.imagefiles import imageencoder
from .codecs.pickle.torchfiles import encode_pth as torch_dumps
from .errors import StorageError
from .gopen import gopen
from .storage.options import StorageOptions
from .storage.publish import checked_target
from .storage.urls import rewritten_url
from .tar.writer import MemberHeaders, Members
from .writing.encoding import (
    Encoder,
    Sample,
    SampleEncoder,
    add_handlers,
    bytestr,
    encode_based_on_extension,
    encode_based_on_extension1,
    make_encoder,
    make_handlers,
)
from .writing.outputs import Output, abandoned, local_target
from .writing.overwriting import Overwriting
from .writing.shardsets import is_numbered, shard_name
from .writing.transactions import Transaction

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = [
    "ShardWriter",
    "TarWriter",
    "add_handlers",
    "bytestr",
    "cbor_dumps",
    "default_handlers",
    "encode_based_on_extension",
    "encode_based_on_extension1",
    "gopen",
    "imageencoder",
    "make_encoder",
    "make_handlers",
    "mp_dumps",
    "numpy_dumps",
    "numpy_npz_dumps",
    "shard_name",
    "tenbin_dumps",
    "torch_dumps",
]

QUEUED_PER_WORKER = 8

logger = Log("webdataset.writer")


class TarWriter(Transaction):
    """Writes samples (dicts) into one tar archive.

    `fileobj` is a path, a url (`pipe:...`, `-`, ...) or a binary stream, which is left open. A sample needs a
    `__key__`; its other fields become members `KEY.FIELD`, in sorted order, encoded by their extension; fields that
    begin with `_` are left out unless `keep_meta`. A sample that cannot be encoded leaves no member behind.

    `encoder` is True (by extension), False or None (bytes only), a function of the sample, or a dict from
    extension to function. `compress` is None (by the name's suffix), False, or one of gz, bz2, xz, zst, lz4.
    `mtime` is the members' time in seconds; without one it is 0: the same samples are written as the same bytes.
    `level` is the compression level; `durable` forces the data to the disk before the name appears. `index` writes
    where each sample and field is beside the shard: "wdx" our own index, `NAME.tar.wdx`, "dali" DALI's `NAME.idx`,
    "energon" Energon's `NAME.tar.idx`, or several of them; True is "wdx" and "dali". `storage_options` say how the
    server or store is reached, as for a WebDataset.

    `user`, `group` and `mode` are the members' owner and permissions; `format` is accepted for old programs.

    A writer that is never closed publishes nothing: a warning names the temporary file that holds its samples.
    """

    def __init__(  # noqa: PLR0917 - the order is given by the API
        self,
        fileobj: object,
        user: str = "bigdata",
        group: str = "bigdata",
        mode: int = 0o444,
        compress: bool | str | None = None,
        encoder: bool | Encoder | Mapping[str, Callable[[Any], bytes]] | None = True,
        keep_meta: bool = False,
        mtime: float | None = None,
        format: object = None,
        *,
        level: int | None = None,
        durable: bool = False,
        index: bool | str | Iterable[str] = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.user, self.group, self.mode, self.mtime = user, group, mode, mtime
        self.keep_meta, self.compress, self.format = keep_meta, compress, format
        self._members = SampleEncoder(encoder, keep_meta)
        self.encoder = self._members.encoder
        headers = MemberHeaders(mode=mode, mtime=mtime or 0, user=user, group=group)
        how: dict[str, Any] = {"durable": durable, "index": index, "storage_options": storage_options}
        self._output = Output(fileobj, headers, compress=compress, level=level, **how)
        self.stream = self._output.stream
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, abandoned, self._output)
        self._is_open = True

    def write(self, obj: Sample) -> int:
        """Write one sample, the dict `obj`; the result is the size of its fields in bytes."""
        return self.write_members(self._members(obj))

    def write_members(self, members: Members) -> int:
        """Write one sample that is already encoded: `members` are pairs of member name and data."""
        if not self._is_open:
            raise StorageError("this writer is closed", url=self._output.url, hint="write before close()")
        with self._lock:  # members of one sample stay together, also with several threads
            return self._output.add(members)

    def write_packed(self, packed: bytes, sizes: Sequence[tuple[int, int]]) -> None:
        """Write samples as the bytes `packed` that they are in an archive.

        `sizes` has, for each, the number of these bytes and the number of bytes in its fields.
        """
        if not self._is_open:
            raise StorageError("this writer is closed", url=self._output.url, hint="write before close()")
        if self._output.index is not None:
            raise ValueError("samples that are packed already are in no index: write them one by one")
        with self._lock:
            self._output.add_packed(packed, sizes)

    def close(self) -> None:
        """Complete the archive and give it its name; a second call does nothing."""
        self._is_open = False
        if self._finalizer.detach() is not None:
            try:
                self._output.finish()
            except BaseException:
                self._output.abort()
                raise

    def abort(self) -> None:
        """Give up: nothing appears under the archive's name."""
        self._is_open = False
        if self._finalizer.detach() is not None:
            self._output.abort()

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a writer cannot be sent to another process: open one in each, or use ShardWriter(shared=True)")


class WriterOptions(TypedDict, total=False):
    """The options that a ShardWriter hands to the writers of its shards."""

    user: str
    group: str
    mode: int
    compress: bool | str | None
    encoder: bool | Encoder | Mapping[str, Callable[[Any], bytes]] | None
    keep_meta: bool
    mtime: float | None
    format: Any
    level: int | None
    durable: bool
    index: bool | str | Iterable[str]
    storage_options: Mapping[str, Any] | None


class ShardWriter(Transaction):
    """Writes samples into a sequence of shards, each with at most `maxcount` samples and about `maxsize` bytes.

    `pattern` holds the shard's number as `%06d` or `{shard:06d}`. All options of TarWriter are accepted, as `kw`.
    `post(fname)` is called for each complete shard; `opener(fname)` may return the stream to write to. What is being
    written is logged (logger `webdataset.writer`, level INFO) unless `verbose=0`.

    `workers=N` encodes in N threads; the shards are the same, in the same order. Do not change a value after you
    have written it then; an error in a sample is raised by a later `write` or by `close`.

    `shared=True` lets any number of processes write into one pattern: a shard gets the first free number at the
    moment it is complete, so there are neither gaps nor clashes, even if a process is killed. `fname` is then known
    afterwards (`post` gets it), and finished shards must stay where they are until all processes are done.

    `progress=True` shows a bar of tqdm with the samples that were written.

    Shards of the same names are replaced, one by one. `overwrite` says what to do about shards of an earlier, longer
    set, which would be left over: "warn" warns in the end, True removes them then, False raises an ExistingShardsError
    at once if any shard of the pattern, from `start_shard` on, is there. Left over is what was there when this writer
    began, is still the same, and follows its last shard without a gap: so writers that have a range of numbers each do
    not disturb each other. Places that cannot be looked at (`pipe:`, `ssh:`, `opener=`) have no check.
    """

    def __init__(  # noqa: PLR0917 - the order is given by the API
        self,
        pattern: str | os.PathLike[str],
        maxcount: int = 100000,
        maxsize: float = 3e9,
        post: Callable[[str], object] | None = None,
        start_shard: int = 0,
        verbose: int = 1,
        opener: Callable[[str], Any] | None = None,
        *,
        workers: int = 0,
        shared: bool = False,
        overwrite: bool | str = "warn",
        progress: bool = False,
        **kw: Unpack[WriterOptions],
    ) -> None:
        if maxcount < 1 or maxsize <= 0:
            raise ValueError(f"maxcount must be at least 1 and maxsize positive, got {maxcount} and {maxsize}")
        if workers < 0:
            raise ValueError(f"workers must be 0 or more, got {workers}")
        _check_options(kw)
        if kw.get("storage_options") is not None:
            kw["storage_options"] = StorageOptions.of(kw["storage_options"])  # wrong ones are an error here and now
        if shared and overwrite != "warn":
            raise ValueError("with shared=True nothing is overwritten: shards get numbers that are free")
        self.pattern = os.fspath(pattern)
        self.maxcount, self.maxsize = maxcount, maxsize
        self.post, self.verbose, self.opener, self.kw = post, verbose, opener, kw
        self.shard = start_shard
        self.total = self.count = self.size = 0
        self.tarstream: TarWriter | None = None
        self._members = SampleEncoder(kw.get("encoder", True), kw.get("keep_meta", False))
        self._shared, self._used, self._closed, self._given_up = shared, False, False, False
        self._check()
        looks, options = not shared and opener is None, kw.get("storage_options")
        self.overwriting = Overwriting(self.pattern, self.shard, overwrite, looks=looks, storage_options=options)
        self._name_next()
        self._bar = progress_bar("write", "samples") if progress else None
        self._pool = _thread_pool(workers) if workers else None
        self._queue: deque[Future[Members]] = deque()
        self._most = workers * QUEUED_PER_WORKER

    def write(self, obj: Sample) -> None:
        """Write one sample, the dict `obj`, into a new shard if this one is full."""
        if self._closed:
            raise StorageError("this writer is closed", url=self.fname, hint="write before close()")
        if self._pool is None:
            self._put(self._members(obj))
            return
        self._queue.append(self._pool.submit(self._members, dict(obj)))
        while len(self._queue) > self._most:
            self._put(self._queue.popleft().result())

    def write_packed(self, packed: bytes, sizes: Sequence[tuple[int, int]]) -> None:
        """Write samples as the bytes `packed` that they are in an archive.

        `sizes` has, for each, the number of these bytes and the number of bytes in its fields.
        """
        if self._closed:
            raise StorageError("this writer is closed", url=self.fname, hint="write before close()")
        while self._queue:
            self._put(self._queue.popleft().result())
        begin = start = 0
        while begin < len(sizes):
            stream = self._with_room()
            end, stop = begin, start
            while end < len(sizes) and self.count < self.maxcount and self.size < self.maxsize:
                stop += sizes[end][0]
                self._count(sizes[end][1])
                end += 1
            stream.write_packed(packed[start:stop], sizes[begin:end])
            begin, start = end, stop

    def next_stream(self) -> None:
        """End this shard; the next sample begins a new one."""
        self.finish()
        if self._used:
            self._name_next()

    def finish(self) -> None:
        """Complete the shard being written, if there is one."""
        stream = self.tarstream
        if stream is None:
            return
        try:
            self.overwriting.replacing(self.shard - 1)
            stream.close()
        except BaseException:  # an interrupt may come at any moment
            stream.abort()
            raise
        finally:
            self.tarstream = None
        if self._shared:
            self.shard = stream._output.number + 1
            self.fname = shard_name(self.pattern, stream._output.number)
        self.overwriting.completed(self.shard - 1)
        if self.post is not None:
            self.post(self.fname)

    def close(self) -> None:
        """Write what waits and complete the last shard; a second call does nothing."""
        if self._given_up:
            return
        self._closed = True
        try:
            while self._queue:
                self._put(self._queue.popleft().result())
            self.finish()
        except BaseException:
            self.abort()
            raise
        self._stop_workers()
        self.overwriting.ended()

    def abort(self) -> None:
        """Give the last shard up; complete ones stay."""
        self._closed = self._given_up = True
        self._queue.clear()
        self._stop_workers()
        stream, self.tarstream = self.tarstream, None
        if stream is not None:
            stream.abort()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        except BaseException as failure:
            self.overwriting.note(failure)
            raise
        if error is not None:
            self.overwriting.note(error)

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a writer cannot be sent to another process: open one in each, with shared=True")

    def _put(self, members: Members) -> None:
        stream = self.tarstream
        if stream is None or self.count >= self.maxcount or self.size >= self.maxsize:
            stream = self._with_room()
        self._count(stream.write_members(members))

    def _count(self, size: int) -> None:
        self.size += size
        self.count += 1
        self.total += 1
        if self._bar is not None:
            self._bar.update()

    def _with_room(self) -> TarWriter:
        """The shard being written, a new one if that is full."""
        if self.tarstream is not None and (self.count >= self.maxcount or self.size >= self.maxsize):
            self.finish()
        if self.tarstream is None:
            if self._used:
                self._name_next()
            self.tarstream = self._open()
            self._used = True
        return self.tarstream

    def _name_next(self) -> None:
        if self._used and shard_name(self.pattern, self.shard) == self.fname:
            hint = "put a number into it, for example train-%06d.tar"
            raise ValueError(
                f"the pattern {self.pattern!r} has no number, so a second shard would replace the first; {hint}"
            )
        self._last = self.count, self.size
        self.fname = shard_name(self.pattern, self.shard)
        self.shard += 1
        self.count = self.size = 0
        self._used = False

    def _open(self) -> TarWriter:
        if self.verbose:
            count, size = self._last
            logger.info("# writing %s %d %.1f GB %d", redacted(self.fname), count, size / 1e9, self.total)
        if self.opener is not None:
            stream = TarWriter(self.opener(self.fname), **self.kw)
            stream._output.owned = True
            return stream
        stream = TarWriter(self.fname, **self.kw)
        if self._shared:
            folder = os.path.dirname(stream._output.path)
            names = ((n, os.path.basename(shard_name(self.pattern, n))) for n in count_from(self.shard - 1))
            stream._output.names = ((n, os.path.join(folder, name)) for n, name in names)
        return stream

    def _check(self) -> None:
        """Errors that the first shard would end in, before any work is done."""
        path = None if self.opener is not None else local_target(rewritten_url(shard_name(self.pattern, self.shard)))
        if path is not None:
            checked_target(path)
        if self._shared and (path is None or not is_numbered(os.path.basename(self.pattern))):
            raise ValueError(
                f"shared=True needs a local pattern with a number in the file's name, got {self.pattern!r}"
            )

    def _stop_workers(self) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _check_options(given: Iterable[str]) -> None:
    """Refuse what no writer takes, before there is anything to write."""
    known = argument_names(TarWriter.__init__)[2:]
    for name in given:
        if name not in known:
            meant = did_you_mean(name, (*known, *argument_names(ShardWriter.__init__)[1:]))
            raise TypeError(f"ShardWriter() got an unexpected keyword argument {name!r}{meant}")


def _thread_pool(workers: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(workers, "webdataset-writer")
