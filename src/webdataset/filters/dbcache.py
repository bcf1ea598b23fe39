"""DBCache: the first samples of a dataset, kept in a SQLite file."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from webdataset.base.behaviour import Behaviour
from webdataset.base.iterables import TorchIterable
from webdataset.base.logs import Log
from webdataset.base.private import open_regular
from webdataset.base.stages import PipelineStage
from webdataset.errors import SecurityError, StorageError
from webdataset.handlers import close

from .caching import SampleBytes, Skips, part_name

if TYPE_CHECKING:
    import sqlite3

LAYOUT = "webdataset-samples-2"
log = Log(__name__)


class DBCache(TorchIterable, PipelineStage):
    """Keep the first `size` samples in a SQLite file, and serve them from there once they are complete.

    It is a stage of a pipeline, or a dataset of its own when it has a source.
    The file is filled in one transaction: if the pass fails, is killed, given up, or skips a shard, it is as if it had
    not begun.

    Args:
        dbname: the path of the file
        size: how many samples to keep
        source: the samples, if it is a dataset of its own
        shuffle: serve the stored samples in random order
        verbose: log what it does
        allow_pickle: let stored samples hold any object; None asks `WDS_ALLOW_PICKLE`
    """

    behaviour = Behaviour("caches", "dbcache() serves samples from its file")

    def __init__(
        self,
        dbname: str | os.PathLike[str],
        size: float,
        source: Iterable[Any] | None = None,
        shuffle: bool = False,
        verbose: bool = True,
        *,
        allow_pickle: bool | None = None,
    ) -> None:
        if size < 1:
            raise ValueError(f"size is the number of samples to keep, at least 1, got {size}")
        self.dbname = os.fspath(dbname)
        self.size = int(size)
        self.source = source
        self.shuffle = shuffle
        self.verbose = verbose
        self.allow_pickle = allow_pickle

    def __iter__(self) -> Iterator[Any]:
        if self.source is None:
            raise ValueError("DBCache has no source: DBCache(dbname, size, source=dataset)")
        return self.run(self.source)

    def source_(self, source: Iterable[Any]) -> DBCache:
        """Set the `source`, as the 0.1 API does."""
        self.source = source
        return self

    def run(self, src: Iterable[Any]) -> Iterator[Any]:
        path = part_name(self.dbname)
        return self._run(iter(src), SampleBytes(allow_pickle=self.allow_pickle), path, Skips(path))

    def _run(self, source: Iterator[Any], samples: SampleBytes, path: str, skips: Skips) -> Iterator[Any]:
        try:
            with closing(_connected(path)) as db:
                state = _begun(db, path, self.size)
                self._say("%s: %s", path, state)
                if state == "complete":
                    yield from self._served(db, samples)
                elif state == "to be filled":
                    yield from self._filled(db, samples, islice(source, self.size), skips)
                else:
                    yield from islice(source, self.size)
        finally:
            close(source)

    def _filled(
        self, db: sqlite3.Connection, samples: SampleBytes, source: Iterator[Any], skips: Skips
    ) -> Iterator[Any]:
        count = 0
        for count, sample in enumerate(source, 1):
            key = sample.get("__key__") if isinstance(sample, dict) else None
            db.execute("insert into cache values (?, ?, ?)", (count, key, samples.dumps(sample)))
            if count == self.size and skips.none():
                self._commit(db, count)
            yield sample
        if count < self.size and skips.none():
            self._commit(db, count)

    def _commit(self, db: sqlite3.Connection, count: int) -> None:
        whole = int(count < self.size)
        facts = {"layout": LAYOUT, "count": count, "whole": whole}
        db.executemany("insert into meta values (?, ?)", facts.items())
        db.execute("commit")
        self._say("%s: %d samples kept", self.dbname, count)

    def _served(self, db: sqlite3.Connection, samples: SampleBytes) -> Iterator[Any]:
        numbers = list(range(1, min(self.size, int(_meta(db)["count"])) + 1))
        if self.shuffle:
            random.Random().shuffle(numbers)
        for number in numbers:
            found = db.execute("select data from cache where number = ?", (number,)).fetchone()
            if found is None:
                raise StorageError(f"sample {number} is missing", url=self.dbname, hint="delete the file")
            yield samples.loads(found[0])

    def _say(self, message: str, *args: object) -> None:
        if self.verbose:
            log.info(message, *args)


def _connected(path: str) -> sqlite3.Connection:
    import sqlite3

    try:
        for beside in ("-journal", "-wal", "-shm"):  # which SQLite reads and writes, too
            with suppress(FileNotFoundError):
                os.close(open_regular(path + beside, os.O_RDONLY))
        os.close(open_regular(path, os.O_RDWR | os.O_CREAT, 0o600))  # nobody else reads it
        # a generator may be closed by the garbage collector, in any thread
        return sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except SecurityError:
        raise
    except (sqlite3.Error, OSError) as exn:
        raise StorageError(f"the cache cannot be opened: {exn}", url=path) from exn


def _begun(db: sqlite3.Connection, path: str, size: int) -> str:
    """What is in the file; when it is to be filled, it is empty, and locked by an open transaction."""
    import sqlite3

    try:
        if _is_complete(db, path, size):
            return "complete"
        db.execute("begin exclusive")
        if _is_complete(db, path, size):  # another process was quicker
            db.execute("commit")
            return "complete"
        for table in ("cache", "meta"):
            db.execute(f"drop table if exists {table}")
        db.execute("create table cache (number integer primary key, key text, data blob)")
        db.execute("create table meta (name text primary key, value)")
        return "to be filled"
    except sqlite3.OperationalError as exn:
        if "locked" in str(exn):
            return "being filled by another process"
        raise StorageError(f"the cache cannot be used: {exn}", url=path) from exn
    except sqlite3.DatabaseError as exn:
        raise StorageError(f"the file is no cache: {exn}", url=path, hint="delete it or choose another name") from exn


def _is_complete(db: sqlite3.Connection, path: str, size: int) -> bool:
    tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
    if not tables:
        return False
    facts = _meta(db) if tables == {"cache", "meta"} else {}
    if facts.get("layout") != LAYOUT:
        raise StorageError(
            "the database was not written by this version's DBCache",
            url=path,
            hint="delete it or choose another name",
        )
    return bool(facts["whole"]) or int(facts["count"]) >= size


def _meta(db: sqlite3.Connection) -> dict[str, Any]:
    return dict(db.execute("select * from meta"))
