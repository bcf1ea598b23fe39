"""The indices of a whole dataset: `wds.index(urls)` makes what is missing or stale, and tells what there is.

What is known of a list of shards is kept as one file in the cache folder, so that a list of 100,000 shards is not
100,000 files to open.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .catalogue import Catalogue, Shard
from .errors import ShardError, WebDatasetError
from .handlers import Handler, ask, reraise_exception
from .indexfiles import (
    BESIDE,
    CACHE,
    StaleIndexError,
    check_fits,
    file_version,
    find_index,
    fits_version,
    full_url,
    index_place,
    make_index,
    rule_name,
)
from .indexjobs import IndexProcesses, index_facts
from .reports import current_report
from .settings import settings
from .shardlists import expand_urls
from .storage.ranges import object_size_and_version
from .storage.urls import as_url, local_path
from .tariterators import SplitName, base_plus_ext

__all__ = ["Catalogue", "Shard", "StaleIndexError", "catalogue_of", "check_fits", "find_index", "index", "make_index"]

REMOTE_JOBS = 16
TRIAL_SECONDS = 0.2
WORTH_SECONDS = 5.0
"""Other processes are started when this time has passed and the rest would take more than that."""
Progress = Callable[[int, int, str], Any]
Facts = tuple[int, int, str | None]


def index(
    urls: Any,
    *,
    jobs: int | None = None,
    force: bool = False,
    where: str | None = None,
    progress: Progress | None = None,
    keys: SplitName = base_plus_ext,
    handler: Handler = reraise_exception,
) -> Catalogue:
    """Make the indices of all shards that have none, or one that does not fit, and return the catalogue.

    `where` is "beside" (`a.tar.wdx`), "cache" or a folder; without it local indices stand beside their shards where
    that is possible, and all others in the cache folder. `progress(done, shards, url)` is called after each shard,
    `handler` is asked about one that cannot be indexed: to continue is to leave it out.

    >>> import tempfile
    >>> from webdataset.writer import TarWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/a.tar") as sink:
    ...         size = sink.write({"__key__": "x", "cls": 3})
    ...     index(f"{folder}/a.tar"), sorted(os.listdir(folder))
    (Catalogue(1 shards, 1 samples), ['a.tar', 'a.tar.wdx'])
    """
    given = _given(urls, keys)
    shards = list(given.urls) if given is not None else expand_urls(urls)
    work = _Work(shards, where=where, force=force, keys=keys, check=True)
    return work.catalogue(jobs, progress, handler)


def catalogue_of(
    urls: Any, *, keys: SplitName = base_plus_ext, jobs: int | None = None, progress: Progress | None = None
) -> Catalogue:
    """The catalogue for reading these shards; indices that are missing are made and kept in the cache folder.

    `urls` may be a catalogue, or the name of one (`.json`), which is taken as it is. Local files are compared with
    what is known of them; remote shards are compared when they are opened.
    """
    given = _given(urls, keys)
    if given is not None:
        return given
    return _Work(expand_urls(urls), where=None, force=False, keys=keys, check=False).catalogue(
        jobs, progress, reraise_exception
    )


def _given(urls: Any, keys: SplitName) -> Catalogue | None:
    if isinstance(urls, Catalogue):
        return urls
    if isinstance(urls, (str, os.PathLike)) and as_url(urls).partition("?")[0].endswith(".json"):
        return Catalogue.load(urls, keys=keys)
    return None


class _Work:
    """One list of shards: what is known of it, and what must be made."""

    def __init__(self, urls: Sequence[str], *, where: str | None, force: bool, keys: SplitName, check: bool) -> None:
        self.urls = list(urls)
        self.where = where
        self.force = force
        self.keys = keys
        self.check = check
        self._summary = _summary_path(self.urls, keys)

    def catalogue(self, jobs: int | None, progress: Progress | None, handler: Handler) -> Catalogue:
        known = {} if self.force else self._known()
        missing = [number for number in range(len(self.urls)) if number not in known]
        report = current_report()
        done = len(known)
        for number, result in self._made(missing, jobs):
            done += 1
            if isinstance(result, Exception):
                if not ask(handler, result, report, "shards_skipped"):
                    break
            else:
                known[number] = result
            if progress is not None:
                progress(done, len(self.urls), self.urls[number])
        rows = [known[number] for number in sorted(known)]
        catalogue = Catalogue(rows, keys=self.keys, where=None if self.where in (BESIDE, CACHE) else self.where)
        if missing and len(rows) == len(self.urls):
            # without it the next time is slower, no more
            with contextlib.suppress(OSError, WebDatasetError):
                os.makedirs(os.path.dirname(self._summary), exist_ok=True)
                catalogue.save(self._summary)
        return catalogue

    def _known(self) -> dict[int, Shard]:
        """What the last time left, as far as it still holds."""
        try:
            kept = Catalogue.load(self._summary)
        except (ShardError, OSError):
            return {}
        if len(kept) != len(self.urls):
            return {}
        columns = (self.urls, kept.counts.tolist(), kept.sizes.tolist(), kept.versions)
        rows = enumerate(map(Shard, *columns))
        return {number: row for number, row in rows if self._still_holds(row)}

    def _still_holds(self, row: Shard) -> bool:
        path = local_path(row.url)
        if path is None:
            return not self.check
        if self.check and not os.path.exists(index_place(row.url, self._place(row.url), self.keys)):
            return False
        return fits_version(row.version, file_version(path))

    def _made(self, numbers: list[int], jobs: int | None) -> Iterator[tuple[int, Shard | Exception]]:
        """What is made of these shards, as it comes."""
        local = [number for number in numbers if local_path(self.urls[number]) is not None]
        away = [number for number in numbers if local_path(self.urls[number]) is None]
        if away:
            yield from self._side_by_side(away, jobs or REMOTE_JOBS, self._facts)
        started = time.monotonic()
        for done, number in enumerate(local):
            yield number, self._row(number, self._facts)
            taken, left = time.monotonic() - started, len(local) - done - 1
            workers = min(left, jobs or settings.processors)
            if workers > 1 and taken > TRIAL_SECONDS and taken / (done + 1) * left > WORTH_SECONDS and self._plain:
                break
        else:
            return
        processes = IndexProcesses()
        try:
            yield from self._side_by_side(local[done + 1 :], workers, processes.facts)
        finally:
            processes.close()

    def _side_by_side(
        self, numbers: list[int], jobs: int, facts: Callable[..., Facts]
    ) -> Iterator[tuple[int, Shard | Exception]]:
        from concurrent.futures import ThreadPoolExecutor, as_completed

        with ThreadPoolExecutor(min(jobs, len(numbers)), "webdataset-index") as pool:
            futures = {pool.submit(self._row, number, facts): number for number in numbers}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    @property
    def _plain(self) -> bool:
        """Whether other processes can do the same: they cannot be given the user's function."""
        return self.keys is base_plus_ext

    def _facts(self, url: str, *, where: str | None, force: bool) -> Facts:
        remote = local_path(url) is None
        version = object_size_and_version(url)[1] if remote and self.check and not force else None
        return index_facts(url, where=where, force=force, keys=self.keys, version=version)

    def _row(self, number: int, facts: Callable[..., Facts]) -> Shard | Exception:
        url = self.urls[number]
        try:
            place = self._place(url) if self.check else self.where
            return Shard(url, *facts(url, where=place, force=self.force))
        except Exception as error:
            return error

    def _place(self, url: str) -> str:
        if self.where is not None:
            return self.where
        path = local_path(url)
        beside = path is not None and os.access(os.path.dirname(os.path.abspath(path)), os.W_OK)
        return BESIDE if beside else CACHE


def _summary_path(urls: list[str], keys: SplitName) -> str:
    """Where the catalogue of this list of shards is kept."""
    import hashlib

    digest = hashlib.blake2b(repr(rule_name(keys)).encode(), digest_size=12)
    digest.update("\0".join(map(full_url, urls)).encode("utf-8", "surrogateescape"))
    return os.path.join(settings.indices_dir, "lists", f"{digest.hexdigest()}.json")
