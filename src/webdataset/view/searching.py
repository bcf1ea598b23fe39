"""Find samples by a part of their key or by a condition, a slice of time after the other."""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import Any

from webdataset.display.kinds import kind_of
from webdataset.display.rasters import image_facts
from webdataset.display.videos import video_facts
from webdataset.handlers import close

from .conditions import Condition, is_about_keys
from .fields import told, value_of
from .samples import SampleList, StoredSample, each

SECONDS = 1.0
"""How long one request searches; the page asks again from where it ended."""
MOST_DECODED = 8 << 20
LOOK_EVERY = 256


class Found:
    """The numbers of samples that were found, and where to go on."""

    def __init__(self, start: int) -> None:
        self.numbers: list[int] = []
        self.next = start
        self.is_end = False
        self.failed = 0
        """Samples about which the condition could not be decided."""
        self.why = ""

    def as_dict(self) -> dict[str, Any]:
        """As plain data, without the samples."""
        return {"next": None if self.is_end else self.next, "failed": self.failed, "why": self.why}


def search(samples: SampleList, query: str, *, start: int, most: int, seconds: float = SECONDS) -> Found:
    """Up to `most` samples from a number on; fewer if time is up, or there are no more."""
    query = query.strip()
    found = Found(start)
    if not query:
        return _all(samples, found, most)
    end = time.monotonic() + seconds
    if is_about_keys(query):
        return _by_key(samples, found, query.lower(), most, end)
    return _by_condition(samples, found, Condition(query), most, end)


def _by_condition(samples: SampleList, found: Found, condition: Condition, most: int, end: float) -> Found:
    decided = each(samples, partial(_decided, samples, condition), count(found.next))
    try:
        for holds in decided:
            if holds is None:
                found.is_end = True
                return found
            if isinstance(holds, str):
                found.failed += 1
                found.why = found.why or f"sample {found.next}: {holds}"
            elif holds:
                found.numbers.append(found.next)
            found.next += 1
            if len(found.numbers) >= most or time.monotonic() > end:
                return found
    finally:
        close(decided)
    return found


def _decided(samples: SampleList, condition: Condition, number: int) -> bool | str | None:
    """Whether a condition holds for a sample, or why that cannot be said; None if there is no such sample."""
    try:
        sample = samples.sample(number)
    except IndexError:
        return None
    try:
        return condition.holds(_Values(sample).value, _Values(sample).facts)
    except Exception as error:
        return f"{type(error).__name__}: {told(error)}"


def _by_key(samples: SampleList, found: Found, part: str, most: int, end: float) -> Found:
    for key in samples.keys(found.next):
        if part in key.lower():
            found.numbers.append(found.next)
        found.next += 1
        if len(found.numbers) >= most or (found.next % LOOK_EVERY == 0 and time.monotonic() > end):
            return found
    found.is_end = True
    return found


def _all(samples: SampleList, found: Found, most: int) -> Found:
    while len(found.numbers) < most:
        try:
            samples.key(found.next)
        except IndexError:
            found.is_end = True
            break
        found.numbers.append(found.next)
        found.next += 1
    if samples.is_complete() and found.next >= samples.known():
        found.is_end = True
    return found


class _Values:
    """The values of a sample, each decoded when it is asked for."""

    def __init__(self, sample: StoredSample) -> None:
        self._sample = sample

    def value(self, name: str) -> Any:
        if name in ("key", "__key__") and name not in self._sample.fields:
            return self._sample.key
        if name in ("shard", "__url__") and name not in self._sample.fields:
            return self._sample.url
        return value_of(self._sample.fields[name], MOST_DECODED)

    def facts(self, function: str, name: str) -> Any:
        if function == "has":
            return name in self._sample.fields
        field = self._sample.fields[name]
        if function == "size":
            return field.size
        read = video_facts if kind_of(name) == "video" else image_facts
        return read(field.read(MOST_DECODED))[function]
