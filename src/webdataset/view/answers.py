"""What the page can ask for: each answer is a function of the words in the address."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from webdataset.base.redact import redacted
from webdataset.display.kinds import kind_of, plain_extension
from webdataset.display.monitors import monitored
from webdataset.display.rasters import Picture
from webdataset.display.reprs import urls_text

from .conditions import ConditionError
from .datasets import ViewedDataset
from .fields import card, content, hex_page, picture, sample_facts, told
from .jobs import Job
from .plans import planned
from .problems import Problems
from .samples import StoredField, StoredSample, each
from .searching import search
from .server import Answer, Body, RequestError, ViewServer, as_json
from .statistics import statistics

MOST_CARDS = 240
LARGEST_PICTURE = 2048
PICTURES_AT_ONCE = 4
PICTURES_KEPT = 64 << 20
MEDIA = {
    "wav": "audio/wav", "mp3": "audio/mpeg", "flac": "audio/flac", "ogg": "audio/ogg", "m4a": "audio/mp4",
    "mp4": "video/mp4", "webm": "video/webm", "ogv": "video/ogg", "mov": "video/mp4",
}  # fmt: skip
"""Types of sound and video, by the field's name; a browser is told not to guess another."""


class View:
    """A dataset, and the answers to what a page wants to know of it."""

    def __init__(self, urls: Sequence[str], *, concatenated: bool = False, port: int = 0) -> None:
        self.dataset = ViewedDataset(urls, concatenated=concatenated)
        self.problems = Problems(urls, concatenated=concatenated)
        self._statistics = self._new_statistics()
        self._pictures = _PictureCache(PICTURES_KEPT)
        self._room = threading.BoundedSemaphore(PICTURES_AT_ONCE)
        self._of_settled = False
        self.server = ViewServer(self.answers(), port=port)

    def start(self) -> str:
        """Begin to answer, and return the address of the page."""
        self.dataset.start()
        self.server.start()
        return self.server.url

    def close(self) -> None:
        """End, and release everything."""
        for job in (self._statistics, self.problems.job):
            job.stop()
        self.server.close()
        self.dataset.close()

    def __enter__(self) -> View:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def answers(self) -> dict[str, Answer]:
        """The table of what can be asked for."""
        tables: dict[str, Callable[[dict[str, str]], Any]] = {
            "state": self.state, "samples": self.samples, "sample": self.sample, "field": self.field, "hex": self.hex,
            "shards": self.shards, "statistics": self.statistics, "problems": self.lint, "plan": self.plan,
            "live": self.live,
        }  # fmt: skip
        answers: dict[str, Answer] = {f"api/{name}": _jsonly(answer) for name, answer in tables.items()}
        return answers | {"picture": self.picture, "media": self.media, "download": self.download}

    # -- the dataset -----------------------------------------------------------------------------

    def state(self, _: dict[str, str]) -> dict[str, Any]:
        """What is looked at, and how far its index is."""
        dataset = self.dataset
        done, shards = dataset.indexed
        mode = "indexed" if dataset.catalogue is not None else "streamed" if dataset.is_settled else "indexing"
        samples = dataset.samples if dataset.urls else None
        return {
            "title": urls_text([redacted(url) for url in dataset.urls]) if dataset.urls else "",
            "mode": mode if dataset.urls else "live",
            "samples": 0 if samples is None else samples.known(),
            "complete": samples is None or samples.is_complete(),
            "shards": len(dataset.urls),
            "indexed": done if mode == "indexing" else shards,
            "errors": dataset.errors()[:20],
            "problems": self.problems.counts.total(),
            "live": len(monitored()),
        }

    def samples(self, asked: dict[str, str]) -> dict[str, Any]:
        """Cards of the samples from a number on, which a query selects."""
        samples = self._data().samples
        try:
            found = search(
                samples,
                asked.get("q", ""),
                start=_number(asked, "start"),
                most=_number(asked, "count", 60, MOST_CARDS),
            )
        except ConditionError as error:
            raise RequestError(str(error)) from None

        def shown(number: int) -> dict[str, Any]:
            sample = samples.sample(number)
            return card(sample) | {"problems": self.problems.number_of(sample.url, sample.key)}

        cards = list(each(samples, shown, found.numbers))
        return {"cards": cards, **found.as_dict(), "known": samples.known(), "complete": samples.is_complete()}

    def sample(self, asked: dict[str, str]) -> dict[str, Any]:
        """One sample, by its number or key."""
        found = self._sample(asked)
        return sample_facts(found) | {"problems": self.problems.of(found.url, found.key)}

    def field(self, asked: dict[str, str]) -> dict[str, Any]:
        """One field of a sample."""
        with self._room:
            return content(self._field(asked))

    def hex(self, asked: dict[str, str]) -> dict[str, Any]:
        """Some bytes of a field."""
        return hex_page(self._field(asked), _number(asked, "start", most=1 << 62))

    def picture(self, asked: dict[str, str]) -> Body:
        """A field as a picture."""
        number, field = _number(asked, "n"), self._field(asked)
        size = _number(asked, "size", 256, LARGEST_PICTURE) or 1
        wanted = (number, field.name, size, asked.get("item", ""))
        found = self._pictures.get(wanted)
        if found is None:
            with self._room:
                found = self._drawn(field, size, wanted[3])
            if self.dataset.is_settled:  # before, a number may still come to mean another sample
                self._pictures.keep(wanted, found)
        return Body(found.type, found.data, lasts=self.dataset.is_settled)

    def _drawn(self, field: StoredField, size: int, item: str) -> Picture:
        try:
            return picture(field, size, item)
        except Exception as error:  # whatever is wrong with it, it is the data
            raise RequestError(told(error), 422) from error

    def media(self, asked: dict[str, str]) -> Body:
        """Sound or video, in parts as the player wants them."""
        field = self._field(asked)
        kind = MEDIA.get(plain_extension(field.name))
        if kind is None or kind_of(field.name) not in ("audio", "video"):
            raise RequestError("browsers do not play this field", 415)
        return Body(kind, size=field.size, read=field.read_part)

    def download(self, asked: dict[str, str]) -> Body:
        """A field as it is stored, to be saved as a file."""
        sample, field = self._sample(asked), self._field(asked)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{sample.key.rpartition('/')[2]}.{field.name}")[-120:]
        return Body("application/octet-stream", size=field.size, read=field.read_part, name=name)

    # -- the whole -------------------------------------------------------------------------------

    def shards(self, _: dict[str, str]) -> dict[str, Any]:
        """The map of shards."""
        rows = self._data().shards()
        for url, row in zip(self.dataset.urls, rows, strict=True):
            row["problems"] = self.problems.by_shard[url]
        return {"shards": rows}

    def statistics(self, asked: dict[str, str]) -> dict[str, Any]:
        """Histograms, and how far they are; they are made when somebody first asks for them."""
        self._data()
        if self.dataset.is_settled and not self._of_settled:  # what was seen of a stream is only its beginning
            self._of_settled = True
            if self._statistics.state != "waiting":
                self._statistics.stop()
                self._statistics = self._new_statistics()
        if asked.get("start"):
            self._statistics.start()
        return self._statistics.progress() | {"result": self._statistics.result}

    def lint(self, asked: dict[str, str]) -> dict[str, Any]:
        """Problems, and how far the search for them is; `start=1` begins it."""
        dataset = self._data()
        if asked.get("start"):
            self.problems.job.start()
        return self.problems.as_dict(dataset.samples, _number(asked, "from", most=1 << 30))

    def plan(self, asked: dict[str, str]) -> dict[str, Any]:
        """The plan of an exact epoch."""
        catalogue = self._data().catalogue
        if catalogue is None:
            raise RequestError("an exact epoch needs the index of all shards, which is not there", 409)
        names = {"ranks": 1, "workers": 1, "batch": 32, "seed": 0, "epoch": 0}
        options: dict[str, Any] = {name: _number(asked, name, default, 1 << 31) for name, default in names.items()}
        if asked.get("shuffle_bytes"):
            options["shuffle_bytes"] = asked["shuffle_bytes"]
        return planned(catalogue, options, first=_number(asked, "first", most=1 << 40))

    def live(self, _: dict[str, str]) -> dict[str, Any]:
        """The loaders that are watched now."""
        return {"loaders": monitored()}

    def _new_statistics(self) -> Job:
        return Job(lambda job: statistics(self.dataset.samples, job))

    # -- helpers ---------------------------------------------------------------------------------

    def _data(self) -> ViewedDataset:
        if not self.dataset.urls:
            raise RequestError("no dataset is looked at: name shards, as in `wl view train.tar`", 404)
        return self.dataset

    def _sample(self, asked: dict[str, str]) -> StoredSample:
        samples = self._data().samples
        try:
            return samples.sample(samples.find(asked["key"]) if "key" in asked else _number(asked, "n"))
        except IndexError as error:
            raise RequestError(f"there is no such sample: {error}", 404) from None
        except KeyError:
            raise RequestError("there is no sample with this key", 404) from None

    def _field(self, asked: dict[str, str]) -> StoredField:
        fields = self._sample(asked).fields
        if asked.get("field") not in fields:
            raise RequestError("the sample has no such field", 404)
        return fields[asked["field"]]


class _PictureCache:
    """The pictures that were asked for last, up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Any, Picture] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, wanted: object) -> Picture | None:
        with self._lock:
            found = self._kept.get(wanted)
            if found is not None:
                self._kept.move_to_end(wanted)
            return found

    def keep(self, wanted: object, found: Picture) -> None:
        with self._lock:
            if wanted not in self._kept:
                self._kept[wanted] = found
                self._bytes += len(found.data)
            while self._bytes > self._most:
                self._bytes -= len(self._kept.popitem(last=False)[1].data)


def _jsonly(answer: Callable[[dict[str, str]], Any]) -> Answer:
    return lambda asked: as_json(answer(asked))


def _number(asked: dict[str, str], name: str, default: int = 0, most: int = 1 << 53) -> int:
    text = asked.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise RequestError(f"{name} is a number, not {text[:40]!r}")
    return min(int(text), most)
