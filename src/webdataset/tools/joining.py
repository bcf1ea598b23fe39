"""Plain shards of this machine, one after the other into one archive: copied as they lie, headers and all.

The system copies while we check: every header, that there are only samples and that each is whole and by itself, up to
the end marker, which is left out between shards. The archive appears when both are done. Whatever calls for a
closer look, such as a directory, a link, a key that comes twice or any damage, is `NotPlain`: then nothing was done.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator
from queue import Queue
from typing import BinaryIO, NamedTuple

from webdataset.settings import settings
from webdataset.storage.local import open_local
from webdataset.storage.publish import AtomicFile, is_special
from webdataset.storage.urls import local_path
from webdataset.tar.whole import NotPlain, PlainArchive

__all__ = ["Joined", "NotPlain", "join_shards"]

END = bytes(1024)
TAIL = 64 << 10
PIECE = 16 << 20
OPEN = 4
"""How many shards wait to be copied, at most."""
MAX_KEYS = 1 << 20

# The key of each run of names that differ in their fields only; nothing where a name has no key or no field.
_RUNS = rb"(%s)\.[^\0/]*+\0(?:\1\.[^\0/]*+\0)*+|[^\0]*\0"
_PLAIN_RUNS = re.compile(_RUNS % rb"[^\0/.]+")
_DEEP_RUNS = re.compile(_RUNS % rb"(?:[^\0]*/)?[^\0/.]+")


class Joined(NamedTuple):
    """One shard that was checked."""

    path: str
    samples: int
    size: int


def join_shards(urls: Iterable[str], output: str) -> Iterator[Joined]:
    """Join the shards; the archive is complete when all were given out. NotPlain if that cannot be done so.

    >>> import tempfile
    >>> from webdataset.writer import TarWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/a.tar") as writer:
    ...         _ = writer.write({"__key__": "a", "txt": "hello"})
    ...     [shard.samples for shard in join_shards([f"{folder}/a.tar"], f"{folder}/b.tar")]
    [1]
    """
    target = local_path(output)
    if target is None or not target.endswith(".tar") or is_special(target) or settings.gopen_rewrite:
        raise NotPlain
    shards = [_looked_at(url) for url in urls]
    if not shards:
        raise NotPlain
    copying = _Copying(AtomicFile(target))
    last = b""
    try:
        for path, end in shards:
            with _opened(path) as stream:
                copying.put(stream, end)
                check = _Check(stream, end, last)
                last = check.last
            yield Joined(path, check.samples, end)
        copying.finish()
    finally:
        copying.close()


def _looked_at(url: str) -> tuple[str, int]:
    """A shard's path and where its members seem to end, from a look at its end."""
    path = local_path(url)
    if path is None or not os.path.isfile(path):
        raise NotPlain
    with _opened(path) as stream:
        start = stream.read(512)
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - TAIL, 0))
        tail = stream.read(TAIL)
    zeros = (len(tail) - len(tail.rstrip(b"\0"))) // 512 * 512
    if start[257:262] != b"ustar" or size % 512 or not len(END) <= zeros < len(tail):
        raise NotPlain
    return path, size - zeros


def _opened(path: str) -> BinaryIO:
    return open_local(os.path.abspath(path), buffering=0)  # no name that begins with / is taken for a url


class _Check:
    """The names of one shard: samples only, each complete in itself and with a key of its own.

    Names are looked at many at a time, by what needs no step per name.
    """

    def __init__(self, stream: BinaryIO, end: int, before: bytes) -> None:
        self.samples = 0
        self.last = before
        """The last sample's key."""
        self._seen = {before}
        archive = PlainArchive(stream, os.fstat(stream.fileno()).st_size)
        held: list[bytes] = []
        for names in archive.names():
            held = self._take(held + names)
        self._take(held, to_the_end=True)
        if archive.end != end:
            raise NotPlain

    def _take(self, names: list[bytes], *, to_the_end: bool = False) -> list[bytes]:
        """Check the names of whole samples, and give back those of the last one, which may go on."""
        runs = _runs(names)
        last = runs[-1] + b"."
        whole = len(names)
        if not to_the_end:
            runs.pop()
            while whole and names[whole - 1].startswith(last):
                whole -= 1
        if len(set(names)) < len(names) or len(set(runs)) < len(runs) or not self._seen.isdisjoint(runs):
            raise NotPlain  # a field or a key comes twice
        self.samples += len(runs)
        self.last = last[:-1]
        if len(self._seen) > MAX_KEYS:
            self._seen.clear()
        self._seen.update(runs)
        return names[whole:]


def _runs(names: list[bytes]) -> list[bytes]:
    """The keys of samples whose members follow each other, if nothing is to be said about any of the names."""
    joined = b"\0".join(names) + b"\0"
    runs: list[bytes] = (_DEEP_RUNS if b"/" in joined else _PLAIN_RUNS).findall(joined)
    if b"" in runs or joined[:2] == b"__" or b"\0__" in joined or b".__" in joined:
        raise NotPlain
    text = joined.decode("utf-8", "surrogateescape")
    if text != text.lower() and not all(map(_is_lower, text.split("\0"))):
        raise NotPlain  # other names in the end
    return runs


def _is_lower(name: str) -> bool:
    field = name[name.rfind("/") + 1 :].partition(".")[2]
    return field == field.lower()


class _Copying:
    """Copies shards to the end of a file, in a thread."""

    def __init__(self, file: AtomicFile) -> None:
        self._file = file
        self._failure: BaseException | None = None
        self._stopped = self._published = False
        self._queue: Queue[tuple[int, int] | None] = Queue(OPEN)
        self._thread = threading.Thread(target=self._run, name="webdataset-join", daemon=True)
        self._thread.start()

    def put(self, stream: BinaryIO, size: int) -> None:
        """Copy so many bytes."""
        self._queue.put((os.dup(stream.fileno()), size))
        self._raise_failure()

    def finish(self) -> None:
        """Wait until all is copied, and give the file its name."""
        self._end()
        self._raise_failure()
        self._file.write(END)
        self._file.publish()
        self._published = True

    def close(self) -> None:
        """Leave nothing, unless the file is complete."""
        self._stopped = True
        self._end()
        if not self._published:
            self._file.abort()

    def _end(self) -> None:
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            source, size = job
            try:
                for start in range(0, size, PIECE):
                    if self._stopped or self._failure:
                        break
                    self._file.append(source, start, min(PIECE, size - start))
            except BaseException as error:
                self._failure = error  # raised by the thread that waits for us
            finally:
                os.close(source)
