"""Concatenate plain local shards byte for byte into one archive.

A thread copies while the shards are checked, by several processes if they are large: every header, and that they hold
only complete samples with distinct keys, up to the end marker, which is left out between shards. The archive appears
when both are done. Anything else, such as a directory, a link, a repeated key or any damage, is `NotPlain`: nothing is
written.
"""

from __future__ import annotations

import io
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple, NoReturn

from webdataset.base.settings import settings
from webdataset.base.stops import Thread
from webdataset.loading.forks import leaving_garbage
from webdataset.storage.local import open_local
from webdataset.storage.publish import AtomicFile, is_special
from webdataset.storage.urls import local_path
from webdataset.tar.whole import NotPlain, PlainArchive

__all__ = ["JoinedShard", "NotPlain", "join_shards"]

END = bytes(1024)
TAIL = 64 << 10
PIECE = 64 << 20
OPEN = 4
"""How many shards are queued for copying, at most."""
PROCESSES = 4
WORTH_A_PROCESS = 32 << 20
"""Checking this many bytes of small members takes several times as long as starting a process."""
MAX_KEYS = 1 << 20

# The key of each run of names that differ only in their fields; empty where a name has no key or no field.
_RUNS = rb"(%s)\.[^\0/]*+\0(?:\1\.[^\0/]*+\0)*+|[^\0]*\0"
_PLAIN_RUNS = re.compile(_RUNS % rb"[^\0/.]+")
_DEEP_RUNS = re.compile(_RUNS % rb"(?:[^\0]*/)?[^\0/.]+")


class JoinedShard(NamedTuple):
    """A shard that was checked."""

    path: str
    samples: int
    size: int


def join_shards(urls: Iterable[str], output: str) -> Generator[JoinedShard]:
    """Join the shards and yield them; at the end the archive is complete. NotPlain if they cannot be joined.

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
    shards = [_Shard.of(url) for url in urls]
    if not shards:
        raise NotPlain
    with _checkers(shards) as check:  # processes start before threads do
        copying = _Copying(AtomicFile(target))
        last = b""
        try:
            for number, stream in enumerate(_copied(shards, copying)):
                checked = check(number, stream)
                if checked.first == last:
                    raise NotPlain  # readers would take the two samples for one
                last = checked.last
                yield JoinedShard(shards[number].path, checked.samples, shards[number].end)
            copying.finish()
        finally:
            copying.close()


def _copied(shards: list[_Shard], copying: _Copying) -> Iterator[BinaryIO]:
    """Yield the shards to check; the next ones are being copied meanwhile."""
    opened: deque[BinaryIO] = deque()
    with ExitStack() as closing:
        for shard in shards:
            opened.append(closing.enter_context(shard.opened()))
            copying.put(opened[-1], shard.end)
            if len(opened) == OPEN:
                with opened.popleft() as stream:
                    yield stream
        for stream in opened:
            yield stream


class _Shard(NamedTuple):
    """A shard, and where its end marker seems to be."""

    path: str
    end: int
    state: tuple[int, ...]

    @classmethod
    def of(cls, url: str) -> _Shard:
        """Look at the end of the file."""
        path = local_path(url)
        if path is None or not os.path.isfile(path):
            raise NotPlain
        with _opened(path) as stream:
            state = _state(stream)
            start = stream.read(512)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(size - TAIL, 0))
            tail = stream.read(TAIL)
        zeros = (len(tail) - len(tail.rstrip(b"\0"))) // 512 * 512
        if start[257:262] != b"ustar" or size % 512 or not len(END) <= zeros < len(tail):
            raise NotPlain
        return cls(path, size - zeros, state)

    def opened(self) -> BinaryIO:
        """Open the file; NotPlain if it has changed since."""
        stream = _opened(self.path)
        if _state(stream) != self.state:
            stream.close()
            raise NotPlain
        return stream


def _opened(path: str) -> BinaryIO:
    return open_local(os.path.abspath(path), buffering=0)  # an absolute path cannot be mistaken for a url


def _state(stream: BinaryIO) -> tuple[int, ...]:
    status = os.fstat(stream.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


# -- checking ------------------------------------------------------------------------------------------


class _Checked(NamedTuple):
    """The number of samples, and the keys at both ends."""

    samples: int
    first: bytes
    """The first sample's key."""
    last: bytes


def _checked(stream: BinaryIO, end: int) -> _Checked:
    """Check that a shard has only complete samples with distinct keys, and ends here.

    Names are checked many at a time, without a step per name.
    """
    archive = PlainArchive(stream, os.fstat(stream.fileno()).st_size)
    keys = _Keys()
    held: list[bytes] = []
    for names in archive.names():
        held = keys.take(held + names)
    keys.take(held, to_the_end=True)
    if archive.end != end:
        raise NotPlain
    return _Checked(keys.samples, keys.first, keys.last)


class _Keys:
    """The keys of one shard."""

    def __init__(self) -> None:
        self.samples = 0
        self.first = self.last = b""
        self._seen: set[bytes] = set()

    def take(self, names: list[bytes], *, to_the_end: bool = False) -> list[bytes]:
        """Check the names of complete samples, and return those of the last one, which may continue."""
        runs = _runs(names)
        self.first, self.last = self.first or runs[0], runs[-1]
        whole = len(names)
        if not to_the_end:
            runs.pop()
            while whole and names[whole - 1].startswith(self.last + b"."):
                whole -= 1
        if len(set(names)) < len(names) or len(set(runs)) < len(runs) or not self._seen.isdisjoint(runs):
            raise NotPlain  # a field or a key comes twice
        self.samples += len(runs)
        if len(self._seen) > MAX_KEYS:
            self._seen.clear()
        self._seen.update(runs)
        return names[whole:]


def _runs(names: list[bytes]) -> list[bytes]:
    """Return the keys of runs of names; NotPlain if any name is unusual."""
    joined = b"\0".join(names) + b"\0"
    runs: list[bytes] = (_DEEP_RUNS if b"/" in joined else _PLAIN_RUNS).findall(joined)
    if b"" in runs or joined[:2] == b"__" or b"\0__" in joined or b".__" in joined:
        raise NotPlain
    text = joined.decode("utf-8", "surrogateescape")
    if text != text.lower() and not all(map(_is_lower, text.split("\0"))):
        raise NotPlain  # readers change the case
    return runs


def _is_lower(name: str) -> bool:
    field = name[name.rfind("/") + 1 :].partition(".")[2]
    return field == field.lower()


@contextmanager
def _checkers(shards: list[_Shard]) -> Iterator[Callable[[int, BinaryIO], _Checked]]:
    """Return a function that checks a shard by its number, or asks the process that does."""
    processes = [_Checker(shards, n) for n in _helpers(shards)]
    step = len(processes) + 1

    def check(number: int, stream: BinaryIO) -> _Checked:
        part = number % step
        return processes[part - 1].next() if part else _checked(stream, shards[number].end)

    try:
        for process in processes:
            process.start(step)
        yield check
    finally:
        for process in processes:
            process.end()


def _helpers(shards: list[_Shard]) -> range:
    """Return the numbers of the helper processes: none if there is little to do, or if threads forbid a fork."""
    work = sum(shard.end for shard in shards) // WORTH_A_PROCESS
    alone = hasattr(os, "fork") and threading.active_count() == 1
    return range(1, min(work, len(shards), os.cpu_count() or 1, PROCESSES) if alone else 1)


class _Checker:
    """A process that checks every n-th shard."""

    def __init__(self, shards: list[_Shard], number: int) -> None:
        self._shards, self._number = shards, number
        self._pid = 0
        self._results: BinaryIO = io.BytesIO()

    def start(self, step: int) -> None:
        reading, writing = os.pipe()
        self._results = os.fdopen(reading, "rb")
        with leaving_garbage():
            self._pid = os.fork()
        if not self._pid:
            self._work(step, writing)
        os.close(writing)

    def next(self) -> _Checked:
        """Return the next result; NotPlain if there is none, for whatever reason."""
        words = self._results.readline().split(b" ")
        if len(words) != 3:
            raise NotPlain
        return _Checked(int(words[0]), bytes.fromhex(words[1].decode()), bytes.fromhex(words[2].decode()))

    def end(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the process id is still valid
            os.waitpid(self._pid, 0)
        self._results.close()

    def _work(self, step: int, output: int) -> NoReturn:
        try:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for shard in self._shards[self._number :: step]:
                with shard.opened() as stream:
                    samples, first, last = _checked(stream, shard.end)
                os.write(output, f"{samples} {first.hex()} {last.hex()}\n".encode())
        finally:
            os._exit(0)  # run none of the parent's exit handlers


# -- copying -------------------------------------------------------------------------------------------


class _Copying:
    """Appends shards to a file, in a thread."""

    def __init__(self, file: AtomicFile) -> None:
        self._file = file
        self._failure: BaseException | None = None
        self._stopped = self._published = False
        self._queue: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()  # an entry for each shard that may be queued
        for _ in range(OPEN):
            self._room.put(None)
        self._thread = Thread(target=self._run, name="webdataset-join", daemon=True)
        self._thread.start()

    def put(self, stream: BinaryIO, size: int) -> None:
        """Queue that many bytes of a shard."""
        self._room.get()
        self._queue.put((os.dup(stream.fileno()), size))
        self._raise_failure()

    def finish(self) -> None:
        """Wait until everything is copied, and publish the file."""
        self._end()
        self._raise_failure()
        self._file.write(END)
        self._file.publish()
        self._published = True

    def close(self) -> None:
        """Remove the file, unless it is complete."""
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
                self._room.put(None)
