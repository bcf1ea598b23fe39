"""The dataset that is looked at: a stream at once, an index as soon as it is made in the background."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Sequence
from typing import Any

from webdataset.base.redact import redacted
from webdataset.base.stops import Bell, Stop, Thread
from webdataset.errors import WebDatasetError
from webdataset.indices.catalogue import Catalogue
from webdataset.indices.making import catalogue_of, index
from webdataset.storage.urls import local_path

from .samples import CataloguedSamples, NotedReport, SampleList, StreamedSamples

_SHARD = re.compile(r"(, shard \d+)?\].*")


class ViewedDataset:
    """Shards, and their samples by number."""

    def __init__(self, urls: Sequence[str], *, concatenated: bool = False) -> None:
        self.urls = list(urls)
        self.concatenated = concatenated
        self.indexed = (0, len(self.urls))
        """How many shards have an index, of how many."""
        self.why_streamed = ""
        """Why there is no index, if none could be made."""
        self.broken: dict[str, str] = {}
        """Shards that cannot be indexed, with the reason."""
        self._streamed: StreamedSamples | None = None
        self._catalogued: CataloguedSamples | None = None
        self._notes: list[Exception] = []
        self._stop = Stop()
        self._is_ready = False
        self._ready = Bell()
        self._lock = threading.Lock()
        self._thread = Thread(target=self._index, name="webdataset-view-index", daemon=True)

    def start(self) -> None:
        """Begin to make the index; one that is known already is there at once."""
        if self.urls:
            self._thread.start()
            self.wait(0.5)

    @property
    def samples(self) -> SampleList:
        """The samples: those of the index, if there is one by now."""
        if self._catalogued is not None:
            return self._catalogued
        with self._lock:
            if self._streamed is None:
                self._streamed = StreamedSamples(self.urls, concatenated=self.concatenated)
            return self._streamed

    @property
    def catalogue(self) -> Catalogue | None:
        """The index of all shards, once it is there."""
        return None if self._catalogued is None else self._catalogued.catalogue

    @property
    def is_settled(self) -> bool:
        """Whether there is an index by now, or none will be made."""
        return self._is_ready or not self.urls

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until that is so."""
        return self._ready.wait(lambda: self.is_settled, seconds)

    def shards(self) -> list[dict[str, Any]]:
        """What is known of each shard: name, samples, bytes, age, and what is wrong with it."""
        catalogue = self.catalogue
        number, found = 0, []  # the catalogue has the same shards in the same order, without those that are broken
        for url in self.urls:
            row: dict[str, Any] = {"url": redacted(url), "name": redacted(url).partition("?")[0].rpartition("/")[2]}
            row |= _file_facts(url)
            if catalogue is not None and number < len(catalogue) and catalogue.urls[number] == url:
                count = int(catalogue.counts[number])
                row |= {"samples": count, "first": int(catalogue.ends[number]) - count}
                if catalogue.sizes[number] >= 0:
                    row["bytes"] = int(catalogue.sizes[number])
                number += 1
            if url in self.broken:
                row["error"] = self.broken[url]
            found.append(row)
        return found

    def errors(self) -> list[str]:
        """What could not be read."""
        told = [self.why_streamed] if self.why_streamed else []
        told += self.broken.values()
        read = [] if self._streamed is None else self._streamed.errors
        told += [_one_line(error) for error in (*self._notes, *read)]
        # indexing and reading meet the same trouble, and only one of them counts shards
        return list({_SHARD.sub("", text): text for text in reversed(told)}.values())[::-1]

    def close(self) -> None:
        """Release files and connections; an index that is being made is left unfinished."""
        self._stop.set()
        for samples in (self._streamed, self._catalogued):
            if samples is not None:
                samples.close()

    def _index(self) -> None:
        try:
            with self._stop.in_force(), NotedReport(self._notes).in_force():
                catalogue = self._make()
            if catalogue.total:
                self._catalogued = CataloguedSamples(catalogue)
        except Exception as error:
            self.why_streamed = _one_line(error)
        finally:
            self._is_ready = True
            self._ready.ring()

    def _make(self) -> Catalogue:
        options: dict[str, Any] = {"progress": self._progress, "concatenated": self.concatenated}
        with contextlib.suppress(WebDatasetError, OSError):
            return catalogue_of(self.urls, **options)
        # one that is broken keeps nobody from looking at the others; nothing is written beside the data
        errors: list[Exception] = []

        def leave_out(error: Exception) -> bool:
            errors.append(error)
            return True

        found = index(self.urls, where="cache", handler=leave_out, **options)
        self.broken = {str(getattr(error, "url", "") or ""): _one_line(error) for error in errors}
        if not found.total and errors:
            raise errors[0]
        return found

    def _progress(self, done: int, shards: int, url: str) -> None:  # noqa: ARG002 - called with these
        self.indexed = (done, shards)


def _file_facts(url: str) -> dict[str, Any]:
    path = local_path(url)
    try:
        found = os.stat(path) if path is not None else None
    except OSError:
        return {}
    return {} if found is None else {"bytes": found.st_size, "modified": found.st_mtime}


def _one_line(error: Exception) -> str:
    return redacted(" ".join(str(error).split()))[:500]
