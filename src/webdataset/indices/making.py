"""The indices of a whole dataset: `wds.index(urls)` makes the missing and stale ones, and returns the catalogue."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from webdataset.base.logs import Log, progress_bar
from webdataset.base.redact import redacted
from webdataset.base.reports import current_report
from webdataset.base.settings import settings
from webdataset.base.stages import suggesting
from webdataset.base.stops import Stop, Thread
from webdataset.handlers import Handler, ask, checked_handler, reraise_exception
from webdataset.shardlists import expand_urls
from webdataset.storage.local import allowed_path
from webdataset.storage.urls import FAMILIES, as_url, is_replaced, local_path, opened_scheme, rewritten_url
from webdataset.tariterators import SplitName, base_plus_ext

from .catalogue import Catalogue, Shard
from .files import (
    BESIDE,
    CACHE,
    ENDING,
    INDEXED_STORES,
    StaleIndexError,
    check_can_be_indexed,
    check_fits,
    find_index,
    fits_version,
    index_place,
    make_index,
    remote_state,
)
from .jobs import Indexed, IndexProcesses, index_facts
from .lists import Facts, keep_of_dataset, keep_of_folders, known_of_dataset, known_of_folders
from .rules import ReadingRules

__all__ = ["Catalogue", "Shard", "StaleIndexError", "catalogue_of", "check_fits", "find_index", "index", "make_index"]

REMOTE_JOBS = 16
WRITTEN = INDEXED_STORES | {"ssh"}
"""Where indices are written beside their shards without being asked, by families of schemes."""
NOT_WRITTEN = {"hf": "gets them with --where beside, each in a commit of its own"}
TRIAL_SECONDS = 0.2
WORTH_SECONDS = 5.0
"""Other processes are started when this time has passed and the rest would take more than that."""
Progress = Callable[[int, int, str], Any]
_log = Log("webdataset.indices")


@suggesting()
def index(
    urls: object,
    *,
    jobs: int | None = None,
    force: bool = False,
    where: str | None = None,
    progress: Progress | bool | None = None,
    keys: SplitName = base_plus_ext,
    handler: Handler = reraise_exception,
    storage_options: Mapping[str, Any] | None = None,
    concatenated: bool = False,
    places: PlacesOfIndices | None = None,
) -> Catalogue:
    """Make the indices of all shards that have none, or one that does not fit, and return the catalogue.

    `where` is "beside" (`a.tar.wdx`), "cache" or a folder. Without it indices stand beside their shards, in files and
    in stores; where that is refused, they are kept in the cache folder of this machine, and a warning is logged.
    `progress(done, shards, url)` is called after each shard; True shows a bar of tqdm. `handler` is asked about one
    that cannot be indexed: to continue is to leave it out. `storage_options` say how servers and stores are reached,
    and `concatenated` reads on behind an end marker, both as for a WebDataset.

    Args:
        urls: the shards, as for a WebDataset, or a catalogue
        jobs: how many are indexed at a time; None chooses
        force: make indices again, even where they fit
        where: "beside", "cache" or a folder
        progress: a function of (done, shards, url)
        keys: a function that splits a member's name into key and field
        handler: what to do with a shard that cannot be indexed
        storage_options: as for a WebDataset
        concatenated: as for a WebDataset
        places: a `PlacesOfIndices`, which learns where the indices are, instead of the log

    >>> import tempfile
    >>> from webdataset.writer import TarWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/a.tar") as sink:
    ...         size = sink.write({"__key__": "x", "cls": 3})
    ...     index(f"{folder}/a.tar"), sorted(os.listdir(folder))
    (Catalogue(1 shard, 1 sample), ['a.tar', 'a.tar.wdx'])
    """
    checked_handler(handler)
    rules = ReadingRules.of(keys, storage_options, concatenated=concatenated)
    given = _catalogue_in(urls, rules)
    if given is None:
        shards = expand_urls(urls, storage_options=rules.options)
    else:
        shards, rules = list(given.urls), replace(rules, options=given.storage_options)
    kept_at = PlacesOfIndices()
    work = _Work(shards, rules, where=where, force=force, check=True, places=kept_at if places is None else places)
    if not isinstance(progress, bool):
        catalogue = work.catalogue(jobs, progress, handler)
    elif not progress:
        catalogue = work.catalogue(jobs, None, handler)
    else:
        with progress_bar("index", "shards", len(shards)) as bar:
            catalogue = work.catalogue(jobs, lambda done, _, __: bar.update(done - bar.n), handler)
    if kept_at.refusals:
        _log.warning("%s", kept_at)
    return catalogue


class PlacesOfIndices:
    """Where indices are kept, and why some are not beside their shards.

    >>> places = PlacesOfIndices()
    >>> places.add("a.tar", "a.tar.wdx")
    >>> print(places)
    the indices are beside their shards
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Indices by their folder; those beside their shards are under an empty name."""
        self.why_not_beside: dict[str, str] = {}
        """Folders of shards -> why they did not get the indices, as `takes none: access denied`."""
        self.refusals = 0
        """How many of these were tried."""

    def add(self, url: str, place: str) -> None:
        """Count an index of the shard at `url`."""
        self.counts["" if place == url + ENDING else os.path.dirname(place)] += 1

    def not_beside(self, url: str, reason: str, *, refused: bool = True) -> None:
        """Remember that the folder of a shard takes no index, or is not asked to."""
        self.why_not_beside.setdefault(folder_of(url), reason)
        self.refusals += refused

    def __str__(self) -> str:
        counts = [(f"in {folder}" if folder else "beside their shards", n) for folder, n in self.counts.items()]
        several = len(counts) > 1
        text = ", ".join(f"{n:,} {where}" if several else where for where, n in counts)
        one_of_each = {reason: redacted(folder) for folder, reason in self.why_not_beside.items()}
        why = "".join(f"; {folder} {reason}" for reason, folder in one_of_each.items())
        return f"the indices are {text}{', for this machine alone' if why else ''}{why}"


def folder_of(url: str) -> str:
    """The folder of a shard, as its url names it.

    >>> folder_of("s3://bucket/photos/a.tar"), folder_of("a.tar")
    ('s3://bucket/photos/', './')
    """
    return url.partition("?")[0].rpartition("/")[0] + "/" if "/" in url else "./"


def catalogue_of(
    urls: object,
    *,
    keys: SplitName = base_plus_ext,
    jobs: int | None = None,
    progress: Progress | None = None,
    local_copy: Callable[[str], str | None] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    concatenated: bool = False,
) -> Catalogue:
    """The catalogue for reading these shards; indices that are missing are made and kept in the cache folder.

    `urls` may be a catalogue, or the name of one (`.json`), which is taken as it is. Local files are compared with
    what is known of them; remote shards are compared when they are opened. `local_copy(url)` returns the path of a
    copy of a remote shard, from which its index is made, or None.
    """
    rules = ReadingRules.of(keys, storage_options, concatenated=concatenated)
    given = _catalogue_in(urls, rules)
    if given is not None:
        return given
    shards = expand_urls(urls, storage_options=rules.options)
    return _Work(shards, rules, local_copy=local_copy).catalogue(jobs, progress, reraise_exception)


def _catalogue_in(urls: object, rules: ReadingRules) -> Catalogue | None:
    """The catalogue that is meant, if it is one: itself, or the name of its file."""
    if isinstance(urls, Catalogue):
        if rules.concatenated and not urls.concatenated:
            raise ValueError("the catalogue was made without concatenated=True; give it to wds.index(), too")
        return urls.using(rules.options)
    if isinstance(urls, (str, os.PathLike)) and as_url(urls).partition("?")[0].endswith(".json"):
        return Catalogue.load(urls, keys=rules.keys, storage_options=rules.options, concatenated=rules.concatenated)
    return None


class _Work:
    """The indices of one list of shards: looks up what is known, and makes what is missing."""

    def __init__(
        self,
        urls: Sequence[str],
        rules: ReadingRules,
        *,
        where: str | None = None,
        force: bool = False,
        check: bool = False,
        local_copy: Callable[[str], str | None] | None = None,
        places: PlacesOfIndices | None = None,
    ) -> None:
        self.urls = list(urls)
        self.rules = rules
        self.where = where
        self.force = force
        self.check = check
        """Whether to look at every index, rather than at what is known of them all."""
        self.local_copy = local_copy
        self.places = PlacesOfIndices() if places is None else places
        self._allowed = not settings.secure

    def catalogue(self, jobs: int | None, progress: Progress | None, handler: Handler) -> Catalogue:
        rows: list[Facts | None] = [None] * len(self.urls) if self.check else self._known()
        missing = [number for number, row in enumerate(rows) if row is None]
        report, done = current_report(), len(rows) - len(missing)
        for number, result in self._results(missing, jobs):
            done += 1
            if not isinstance(result, Exception):
                rows[number] = result
            elif not ask(handler, result, report, "shards_skipped"):
                break
            if progress is not None:
                progress(done, len(rows), self.urls[number])
        if missing:
            self._remember(rows)
        shards = [(url, *row) for url, row in zip(self.urls, rows, strict=True) if row is not None]
        where = None if self.where in (BESIDE, CACHE) else self.where
        return Catalogue(
            shards,
            keys=self.rules.keys,
            where=where,
            local_copy=self.local_copy,
            storage_options=self.rules.options,
            concatenated=self.rules.concatenated,
        )

    def _known(self) -> list[Facts | None]:
        """The facts that were kept the last time, as far as they still hold."""
        rows: Sequence[Facts | None] | None = known_of_dataset(self.urls, self.rules)
        if rows is None and self.rules.is_usual:
            rows = known_of_folders(self.urls)
        if rows is None:
            return [None] * len(self.urls)
        return [
            row if row is not None and self._still_holds(url, row[2]) else None
            for url, row in zip(self.urls, rows, strict=True)
        ]

    def _remember(self, rows: list[Facts | None]) -> None:
        """Leave what is known for the next time."""
        known = [row for row in rows if row is not None]
        if len(known) == len(rows):
            keep_of_dataset(self.urls, self.rules, known)
        if self.check and self.where in (None, BESIDE) and self.rules.is_usual:
            keep_of_folders((url, row) for url, row in zip(self.urls, rows, strict=True) if row is not None)

    def _still_holds(self, url: str, version: str | None) -> bool:
        path = url if ":" not in url else local_path(url)
        if path is None:
            return True
        try:
            found = os.stat(path if self._allowed else allowed_path(path))
        except FileNotFoundError:
            return False
        now = f"{found.st_size}-{found.st_mtime_ns}"
        return now == version or fits_version(version, now)

    def _results(self, numbers: list[int], jobs: int | None) -> Iterator[tuple[int, Facts | Exception]]:
        """The facts or the error of each of these shards, as they come."""
        away = [number for number in numbers if local_path(self.urls[number]) is None]
        if away:
            yield from self._side_by_side(away, jobs or REMOTE_JOBS, self._facts)
        here, spent, made = deque(sorted({*numbers} - {*away})), 0.0, 0
        while here:
            # finding is quick, making may be worth other processes
            number = here.popleft()
            if (found := self._find(number)) is not None:
                yield number, found
                continue
            before = time.monotonic()
            yield number, self._row(number, self._facts)
            spent, made = spent + time.monotonic() - before, made + 1
            workers = min(len(here), jobs or settings.processors)
            worth = spent > TRIAL_SECONDS and spent / made * len(here) > WORTH_SECONDS
            if worth and workers > 1 and self.rules.keys is base_plus_ext:  # they cannot be given the user's function
                with contextlib.closing(IndexProcesses(self.rules)) as processes:
                    yield from self._side_by_side([*here], workers, processes.facts)
                return

    def _find(self, number: int) -> Facts | None:
        if self.force:
            return None
        url = self.urls[number]
        try:
            found = find_index(url, self.rules, where=self._where(url), only=self.check)
        except Exception:
            return None  # making it meets the same error, with the handler
        if found is None:
            return None
        self.places.add(url, index_place(url, self._where(url) or CACHE, self.rules))
        return found.samples, found.size, found.version

    def _side_by_side(
        self, numbers: list[int], jobs: int, facts: Callable[..., Indexed]
    ) -> Iterator[tuple[int, Facts | Exception]]:
        """By threads that nobody waits for after an interrupt: a slow server may keep one for hours."""
        waiting, results = deque(numbers), SimpleQueue[tuple[int, Facts | Exception]]()
        stop = Stop()

        def work() -> None:
            with contextlib.suppress(IndexError), stop.in_force():
                while True:
                    number = waiting.popleft()
                    results.put((number, self._row(number, facts)))

        threads = [Thread(target=work, name="webdataset-index", daemon=True) for _ in range(min(jobs, len(numbers)))]
        for thread in threads:
            thread.start()
        try:
            for _ in numbers:
                yield results.get()
        except (KeyboardInterrupt, SystemExit):
            threads.clear()
            raise
        finally:
            waiting.clear()
            stop.set()  # a server that is down is not waited for after an error
            for thread in threads:
                thread.join()

    def _facts(self, url: str, **options: Any) -> Indexed:
        version = None
        if self.check and local_path(url) is None:
            check_can_be_indexed(url)
            version = None if self.force else remote_state(url, self.rules.options)[1]
        return index_facts(url, self.rules, version=version, local_copy=self.local_copy, **options)

    def _row(self, number: int, facts: Callable[..., Indexed]) -> Facts | Exception:
        url = self.urls[number]
        try:
            found = facts(url, where=self._where(url), force=self.force, or_cache=self.where is None)
        except Exception as error:
            return error
        self.places.add(url, found.place)
        if found.refusal:
            self.places.not_beside(url, f"takes none: {found.refusal}")
        return found.facts

    def _where(self, url: str) -> str | None:
        """Where the index must be afterwards, if that is not refused; None if it may be anywhere."""
        if self.where is not None or not self.check:
            return self.where
        if folder_of(url) in self.places.why_not_beside:
            return CACHE
        path = local_path(url)
        if path is not None and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
            self.places.not_beside(url, "takes none: no permission to write there")
            return CACHE
        if path is None and (reason := _why_not_tried(url)):
            self.places.not_beside(url, reason, refused=False)
            return CACHE
        return BESIDE


def _why_not_tried(url: str) -> str:
    """Why nothing is written beside a remote shard unless that is asked for; an empty text if it is tried."""
    if "?" in url:
        return "gets none: its urls have parameters, which may be a signature for the shards alone"
    if is_replaced(rewritten_url(url)):
        return "gets none: a function of this program opens its urls"
    family = FAMILIES.get(opened_scheme(rewritten_url(url)), "")
    return "" if family in WRITTEN else NOT_WRITTEN.get(family, "gets them with --where beside")
