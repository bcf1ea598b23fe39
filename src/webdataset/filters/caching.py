"""Caching: keep the samples of a whole pass, in memory or on disk, and serve later passes from there.

A pass that was given up, failed, was killed or skipped a shard leaves nothing that could be taken for a whole
one. Samples on disk are read as foreign data: through the restricted unpickler, unless `allow_pickle=True`.
In a job of several workers each keeps a file of its own, since each sees another part of the data.
"""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any

from webdataset.base.behaviour import Behaviour
from webdataset.base.locks import locked
from webdataset.base.logs import Log
from webdataset.base.packages import imported
from webdataset.base.private import make_private
from webdataset.base.reports import current_report
from webdataset.base.stages import PipelineStage
from webdataset.base.workers import pytorch_worker_info
from webdataset.errors import MissingPackageError, StorageError
from webdataset.handlers import close
from webdataset.storage.cache.names import without_secrets

from .lmdbfiles import check_database

if TYPE_CHECKING:
    import lmdb

log = Log(__name__)


class Cached(PipelineStage):
    """Keep all samples in memory once a pass is complete.

    >>> stage = Cached()
    >>> list(stage.run(iter("ab"))), list(stage.run(iter("not read")))
    (['a', 'b'], ['a', 'b'])
    """

    behaviour = Behaviour("caches", "mcached() serves later passes from memory")

    def __init__(self) -> None:
        self.cached: list[Any] | None = None

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        if self.cached is not None:
            return (_copied(sample) for sample in self.cached)
        return self._filled(iter(src), Skips("memory"))

    def _filled(self, source: Iterator[Any], skips: Skips) -> Iterator[Any]:
        samples = []
        try:
            for sample in source:
                samples.append(_copied(sample))
                yield sample
            if skips.none():
                self.cached = samples
        finally:
            close(source)


mcached = Cached


class LMDBCached(PipelineStage):
    """Keep all samples in an LMDB database once a pass is complete.

    LMDB maps the file into memory and believes its pages: only read databases that you trust. One that is cut short, or
    that is no database, is an error.

    Args:
        fname: the path of the database
        map_size: the most bytes that it may hold
        pickler: a module with `dumps` and `loads`, instead of pickle
        chunksize: how many samples are written at a time
        allow_pickle: let stored samples hold any object; None asks `WDS_ALLOW_PICKLE`
    """

    behaviour = Behaviour("caches", "lmdb_cached() serves later passes from its file")

    def __init__(
        self,
        fname: str | os.PathLike[str],
        map_size: float = 1e12,
        pickler: Any = pickle,
        chunksize: int = 500,
        *,
        allow_pickle: bool | None = None,
    ) -> None:
        if chunksize < 1:
            raise ValueError(f"chunksize must be at least 1, got {chunksize}")
        self.fname = os.fspath(fname)
        self.map_size = int(map_size)
        self.pickler = pickler
        self.chunksize = int(chunksize)
        self.allow_pickle = allow_pickle

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        _lmdb()
        path = part_name(self.fname)
        return self._run(iter(src), SampleBytes(self.pickler, self.allow_pickle), path, Skips(path))

    def is_complete(self) -> bool:
        """Whether this worker's cache holds a whole pass."""
        path = part_name(self.fname)
        if not os.path.exists(path):
            return False
        with self._opened(path) as db:
            return db is not None and _count(db) is not None

    def _run(self, source: Iterator[Any], samples: SampleBytes, path: str, skips: Skips) -> Iterator[Any]:
        try:
            with self._opened(path) as db:
                if db is None:
                    yield from source
                elif (count := _count(db)) is not None:
                    yield from self._served(db, samples, count)
                else:
                    yield from self._filled_by_one(db, samples, source, skips)
        finally:
            close(source)

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        """The database, or None while another pass of this process has it open: LMDB allows that only once."""
        lmdb = _lmdb()
        make_private(path)
        check_database(path)
        try:
            db = lmdb.open(path, map_size=self.map_size, mode=0o700)
        except lmdb.Error as exn:
            if "already open" not in str(exn):
                raise StorageError(f"the cache cannot be opened: {exn}", url=path) from exn
            yield None
            return
        with closing(db):
            yield db

    def _filled_by_one(
        self, db: lmdb.Environment, samples: SampleBytes, source: Iterator[Any], skips: Skips
    ) -> Iterator[Any]:
        with open(os.path.join(skips.cache, "filling"), "ab") as file, locked(file, wait=False) as mine:
            yield from self._filled(db, samples, source, skips) if mine else source

    def _filled(self, db: lmdb.Environment, samples: SampleBytes, source: Iterator[Any], skips: Skips) -> Iterator[Any]:
        with db.begin(write=True) as transaction:
            transaction.drop(db.open_db(None, transaction), delete=False)  # what an interrupted pass left
        count = 0
        while chunk := list(islice(source, self.chunksize)):
            with db.begin(write=True) as transaction:
                for n, sample in enumerate(chunk, count):
                    transaction.put(_number(n), samples.dumps(sample))
            count += len(chunk)
            yield from chunk
        if not skips.none():
            return
        with db.begin(write=True) as transaction:
            transaction.put(COMPLETE, b"%s%d" % (LAYOUT, count))

    def _served(self, db: lmdb.Environment, samples: SampleBytes, count: int) -> Iterator[Any]:
        served = 0
        while served < count:
            chunk: list[Any] = []
            taken = 0
            with db.begin() as transaction:
                while len(chunk) < min(self.chunksize, count - served) and taken < CHUNK_BYTES:
                    chunk.append(transaction.get(_number(served + len(chunk))))
                    taken += len(chunk[-1] or b"")
            served += len(chunk)
            for data in chunk:
                yield samples.loads(data)

    def __getstate__(self) -> dict[str, Any]:
        pickler = self.pickler.__name__ if isinstance(self.pickler, ModuleType) else self.pickler
        return self.__dict__ | {"pickler": pickler}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.pickler, str):
            self.pickler = importlib.import_module(self.pickler)


lmdb_cached = LMDBCached
COMPLETE = b"_"
CHUNK_BYTES = 16 << 20
"""Of samples that are read at once; they may all be the same bytes of a foreign file."""
LAYOUT = b"samples by number:"


class Skips:
    """Whether shards were skipped in a pass: then it must not be kept, because the next pass may get them."""

    def __init__(self, cache: str) -> None:
        self.cache = cache
        self.report = current_report()
        self.before = self.report.counts["shards_skipped"]

    def none(self) -> bool:
        skipped = self.report.counts["shards_skipped"] - self.before
        if skipped:
            log.warning("%s: %d shards were skipped in this pass, so it is not kept", self.cache, skipped)
        return not skipped


class SampleBytes:
    """Samples as bytes on disk; the first one written must also be readable, or it is refused at once."""

    def __init__(self, pickler: Any = pickle, allow_pickle: bool | None = None) -> None:
        self.pickler = pickler
        self.allow_pickle = allow_pickle
        self.checked = False

    def dumps(self, sample: Any) -> bytes:
        if isinstance(sample, dict) and isinstance(url := sample.get("__url__"), str):
            sample = sample | {"__url__": without_secrets(url)}  # no secret stays on a disk
        data: bytes = self.pickler.dumps(sample)
        if not self.checked:
            self.loads(data)
            self.checked = True
        return data

    def loads(self, data: bytes) -> Any:
        if self.pickler is not pickle:
            return self.pickler.loads(data)
        from webdataset.codecs import pickles

        return pickles.loads(data, allow_pickle=self.allow_pickle)


def part_name(name: str) -> str:
    """The file of this worker: the name itself when there is only one.

    >>> part_name("cache.db")
    'cache.db'
    """
    rank, world_size, worker, num_workers = pytorch_worker_info()
    parts = world_size * num_workers
    return name if parts == 1 else f"{name}.{rank * num_workers + worker}-of-{parts}"


def _copied(sample: Any) -> Any:
    """Later passes must not see what a user's function did to the sample in place."""
    return sample.copy() if isinstance(sample, (dict, list)) else sample


def _count(db: lmdb.Environment) -> int | None:
    with db.begin() as transaction:
        marker = transaction.get(COMPLETE)
    if marker is None or not bytes(marker).startswith(LAYOUT):
        return None
    return int(bytes(marker)[len(LAYOUT) :])


def _number(n: int) -> bytes:
    return b"%012d" % n


def _lmdb() -> ModuleType:
    try:
        return imported("lmdb")
    except ImportError as exn:
        raise MissingPackageError("LMDBCached needs the package lmdb", hint="pip install 'webdataset[cache]'") from exn
