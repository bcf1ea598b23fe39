"""Histograms of a dataset: classes, sizes, lengths, ranges and shapes of its fields, from samples all over it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from webdataset.base.printing import printable
from webdataset.display.describing import Description, FieldDescription, Range, describe
from webdataset.display.kinds import kind_of
from webdataset.errors import WebDatasetError
from webdataset.handlers import close
from webdataset.tar.large import LargeMember

from .jobs import Job
from .samples import SampleList, StoredField, each

MOST_SAMPLES = 1000
SECONDS = 30.0
MOST_BYTES = 16 << 20
"""Larger fields are counted with their size alone."""
BINS = 24
MOST_CLASSES = 60
MOST_VALUES = 2000
CLASS_BYTES = 64
JSON_BYTES = 1 << 16
MOST_LEAVES = 40


def statistics(samples: SampleList, job: Job, *, most: int = MOST_SAMPLES, seconds: float = SECONDS) -> dict[str, Any]:
    """Describe samples that lie evenly over the dataset, as many as there is time for."""
    classes: dict[str, Counter[str]] = {}
    leaves: dict[str, Leaf] = {}
    end = time.monotonic() + seconds
    description = describe(_counted(_spread(samples, job, most, end), classes, leaves))
    fields = [_field(name, field, classes.get(name)) for name, field in sorted(description.fields.items())]
    fields += [leaf.as_dict(name) for name, leaf in sorted(leaves.items())]
    return {"samples": description.samples, "of": samples.known(), "fields": fields, "sets": _sets(description)}


class Leaf:
    """The values at one place of JSON: texts are counted, numbers measured."""

    def __init__(self) -> None:
        self.count = 0
        self.texts: Counter[str] = Counter()
        self.numbers = Range()

    def add(self, value: object) -> None:
        """Count a value."""
        self.count += 1
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.numbers.add(float(value))
        elif isinstance(value, str) and len(value) <= CLASS_BYTES and len(self.texts) < MOST_VALUES:
            self.texts[value] += 1

    def as_dict(self, name: str) -> dict[str, Any]:
        """What the page shows of it."""
        shown: list[dict[str, Any]] = []
        if 1 < len(self.texts) <= max(MOST_CLASSES, self.count // 4):
            shown.append(_classes(self.texts))
        if self.numbers.count:
            shown.append(_bars("values", self.numbers))
        facts = {"name": name, "kind": "leaf", "samples": self.count, "histograms": shown}
        return facts | ({"range": self.numbers.ends()} if self.numbers.count else {})


def _counted(
    samples: Iterable[dict[str, Any]], classes: dict[str, Counter[str]], leaves: dict[str, Leaf]
) -> Iterator[dict[str, Any]]:
    for sample in samples:
        _count_classes(sample, classes)
        _count_leaves(sample, leaves)
        yield sample


def _count_leaves(sample: dict[str, Any], leaves: dict[str, Leaf]) -> None:
    for name, data in sample.items():
        if kind_of(name) != "json" or not 0 < len(data) <= JSON_BYTES or not name.isidentifier():
            continue
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            continue
        for path, leaf in _leaves(name, value, 0):
            if path in leaves or len(leaves) < MOST_LEAVES:
                leaves.setdefault(path, Leaf()).add(leaf)


def _leaves(path: str, value: object, depth: int) -> Iterator[tuple[str, Any]]:
    """What stands in a dict, and in dicts in it, under names that a condition can name."""
    if not isinstance(value, dict) or depth > 2:
        return
    for name, inner in value.items():
        if not name.isidentifier() or name.startswith("_"):
            continue
        if isinstance(inner, dict):
            yield from _leaves(f"{path}.{name}", inner, depth + 1)
        elif isinstance(inner, (str, int, float)):
            yield f"{path}.{name}", inner


def _spread(samples: SampleList, job: Job, most: int, end: float) -> Iterator[dict[str, Any]]:
    total = samples.known() if samples.is_complete() else most
    job.total = min(total, most)
    numbers = [count * total // job.total for count in range(job.total)]
    found = each(samples, partial(_read, samples), numbers)
    try:
        for sample in found:
            if job.stopped or time.monotonic() > end:
                return
            job.done += 1
            if sample is not None:
                yield sample
    finally:
        close(found)


def _read(samples: SampleList, number: int) -> dict[str, Any] | None:
    """A sample as bytes; None for one that is not there, or cannot be read, which its own page tells."""
    try:
        sample = samples.sample(number)
        fields = {name: _contents(field) for name, field in sample.fields.items()}
    except (WebDatasetError, OSError, IndexError):
        return None
    return {"__key__": sample.key, **fields}


def _contents(field: StoredField) -> bytes | LargeMember:
    return field.read(MOST_BYTES) if field.size <= MOST_BYTES else LargeMember(field.name, field.size)


def _count_classes(sample: dict[str, Any], classes: dict[str, Counter[str]]) -> None:
    """Count the values of fields that are a few characters long: classes, labels, flags."""
    for name, data in sample.items():
        if (
            name.startswith("__")
            or not 0 < len(data) <= CLASS_BYTES
            or kind_of(name) not in ("number", "text", "other")
        ):
            continue
        counter = classes.setdefault(name, Counter())
        try:
            text = data.decode("utf-8").strip()
        except UnicodeDecodeError:
            continue
        if text in counter or len(counter) < MOST_VALUES:
            counter[text] += 1


def _field(name: str, field: FieldDescription, classes: Counter[str] | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": name, "kind": kind_of(name), **field.as_dict()}
    facts["histograms"] = list(_histograms(field, classes))
    return facts


def _histograms(field: FieldDescription, classes: Counter[str] | None) -> Iterator[dict[str, Any]]:
    if classes and 1 < len(classes) <= max(MOST_CLASSES, field.count // 4):
        yield _classes(classes)
    elif field.range.count:
        yield _bars("mean of values" if field.shapes else "values", field.range)
    if field.lengths.count:
        yield _bars("length", field.lengths)
    if "image" in field.types:
        for place, side in enumerate(("height", "width")):
            counts = Counter({shape: n for shape, n in field.shapes.items() if len(shape) > place})
            yield _sides(side, Counter([shape[place] for shape in counts.elements()]))
    yield _bars("bytes", field.sizes)


def _bars(of: str, numbers: Range) -> dict[str, Any]:
    bins = numbers.histogram(BINS)
    return {"of": of, "bars": [{"from": low, "to": high, "count": n} for low, high, n in bins]}


def _classes(counts: Counter[str]) -> dict[str, Any]:
    common = counts.most_common(MOST_CLASSES)
    if all(_is_number(value) for value, _ in common):
        common.sort(key=lambda pair: float(pair[0]))
    bars = [{"label": printable(value, 60), "value": value, "count": n} for value, n in common]
    return {"of": "values", "bars": bars, "others": max(0, len(counts) - MOST_CLASSES)}


def _sides(of: str, counts: Counter[int]) -> dict[str, Any]:
    numbers = Range()
    for number, n in counts.items():
        for _ in range(n):
            numbers.add(float(number))
    return _bars(of, numbers)


def _sets(description: Description) -> list[dict[str, Any]]:
    return [{"fields": list(names), "samples": n} for names, n in description.field_sets.most_common(10)]


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False
