"""Describe a dataset: its fields, and the types, shapes, ranges and sizes of their values.

>>> description = describe([{"__key__": "a", "cls": b"3"}, {"__key__": "b", "cls": b"5", "txt": b"hello"}])
>>> description.samples, sorted(description.fields)
(2, ['cls', 'txt'])
>>> description.fields["cls"].as_dict()["range"]
[3.0, 5.0]
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from webdataset.autodecode import IMAGE_EXTENSIONS, Decoder, gzfilter
from webdataset.base.printing import reason_of
from webdataset.codecs.imageheaders import ImageHeader, image_header
from webdataset.codecs.media import (
    AUDIO_EXTENSIONS,
    VIDEO_EXTENSIONS,
    SoundInfo,
    VideoInfo,
    sound_info,
    video_info,
)
from webdataset.codecs.packages import is_array, is_tensor
from webdataset.errors import MissingPackageError
from webdataset.handlers import Handler, handled, reraise_exception
from webdataset.tar.large import LargeMember

Sample = Mapping[str, Any]

KEPT_VALUES = 10_000
"""How many values of a field are kept for its histogram: a random sample."""

MOST_KINDS = 1000
"""How many different shapes and sets of fields are counted."""


class Description:
    """Statistics of a dataset."""

    def __init__(self) -> None:
        self.samples = 0
        self.bytes = 0
        self.fields: dict[str, FieldDescription] = {}
        self.field_sets: Counter[tuple[str, ...]] = Counter()
        self.first_key: str | None = None
        self.shards: dict[str, None] = {}
        """The shards that samples came from, in order."""

    def add(self, sample: Sample, values: Sample) -> None:
        """Add a sample, as stored and as decoded."""
        names = tuple(sorted(name for name in sample if not name.startswith("__")))
        self.samples += 1
        self.first_key = self.first_key or sample.get("__key__")
        if (url := sample.get("__url__")) is not None:
            self.shards[str(url)] = None
        _count(self.field_sets, names)
        for name in names:
            field = self.fields.setdefault(name, FieldDescription())
            self.bytes += field.add(sample[name], values[name])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "samples": self.samples,
            "bytes": self.bytes,
            "shards": len(self.shards),
            "field_sets": [{"fields": list(names), "samples": n} for names, n in self.field_sets.most_common()],
            "fields": {name: field.as_dict() for name, field in sorted(self.fields.items())},
        }

    def __repr__(self) -> str:
        from .summaries import text_of

        return text_of(self)

    def _repr_html_(self) -> str:
        from .summaries import html_of

        return html_of(self)


class FieldDescription:
    """Statistics of one field."""

    def __init__(self) -> None:
        self.count = 0
        self.errors: Counter[str] = Counter()
        self.types: Counter[str] = Counter()
        self.dtypes: Counter[str] = Counter()
        self.shapes: Counter[tuple[int, ...]] = Counter()
        self.modes: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        """Of JSON objects: their keys."""
        self.rates: Counter[str] = Counter()
        """Of sounds and videos: samples or frames per second."""
        self.seconds = Range()
        """Of sounds and videos: how long they are."""
        self.frames = Range()
        """Of videos: how many frames they have."""
        self.range = Range()
        self.lengths = Range()
        self.sizes = Range()

    def add(self, stored: object, value: Any) -> int:
        """Add a value; return its size in bytes."""
        self.count += 1
        size = len(stored) if isinstance(stored, (bytes, str, LargeMember)) else 0
        self.sizes.add(size)
        if isinstance(value, _Failure):
            _count(self.errors, value.text)
            _count(self.types, "unreadable")
            return size
        if isinstance(value, (ImageHeader, SoundInfo, VideoInfo)):
            self._add_header(value)
            return size
        if isinstance(value, _Image):
            _count(self.modes, value.mode)
            value = value.pixels
            _count(self.types, "image")
        else:
            _count(self.types, _type_name(value))
        self._measure(value)
        return size

    def as_dict(self) -> dict[str, Any]:
        """Return everything that applies as plain data."""
        facts: dict[str, Any] = {"samples": self.count, "types": dict(self.types.most_common())}
        for name in ("dtypes", "modes", "keys", "rates", "errors"):
            if counts := getattr(self, name):
                facts[name] = dict(counts.most_common())
        if self.shapes:
            facts["shapes"] = [{"shape": list(shape), "samples": n} for shape, n in self.shapes.most_common(10)]
            facts["shape_range"] = shape_range(self.shapes)
        for name in ("range", "lengths", "seconds", "frames"):
            if getattr(self, name).count:
                facts[name] = getattr(self, name).ends()
        facts["bytes"] = {"min": self.sizes.least, "mean": self.sizes.mean, "max": self.sizes.most}
        facts["bytes"]["total"] = self.sizes.total
        return facts

    def _add_header(self, value: ImageHeader | SoundInfo | VideoInfo) -> None:
        """Add what the header of an image, a sound or a video says."""
        if isinstance(value, ImageHeader):
            _count(self.types, "image")
            _count(self.modes, f"{value.format} {value.mode}".strip())
            _count(self.shapes, (value.height, value.width))
            return
        self.seconds.add(value.seconds)
        if isinstance(value, SoundInfo):
            _count(self.types, "sound")
            _count(self.rates, f"{value.rate:,} Hz")
            _count(self.shapes, (value.channels, round(value.seconds * value.rate)))
        else:
            _count(self.types, "video")
            _count(self.rates, f"{value.fps:g} fps")
            self.frames.add(value.frames)
            _count(self.shapes, (value.frames, value.height, value.width, 3))

    def _measure(self, value: Any) -> None:
        if isinstance(value, dict):
            for key in value:
                _count(self.keys, str(key))
        if is_array(value) or is_tensor(value):
            _count(self.dtypes, str(value.dtype))
            _count(self.shapes, tuple(value.shape))
            self._measure_array(value)
        elif isinstance(value, (bool, int, float)):
            self.range.add(float(value))
        elif isinstance(value, (str, bytes, list, tuple, dict)):
            self.lengths.add(len(value))

    def _measure_array(self, value: Any) -> None:
        if getattr(value, "dtype", None) is not None and "complex" in str(value.dtype):
            return
        try:
            if math.prod(value.shape):
                self.range.extend(float(value.min()), float(value.max()), float(value.mean()))
        except (TypeError, ValueError, RuntimeError):
            return  # strings, objects and the like have no range


class Range:
    """Minimum, maximum and mean of numbers, and a random sample of them for a histogram."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = -math.inf
        self.kept: list[float] = []
        self._random = random.Random(0)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    def add(self, number: float) -> None:
        """Add a number."""
        self.extend(number, number, number)

    def extend(self, least: float, most: float, mean: float) -> None:
        """Add several numbers, by their minimum, maximum and mean; NaN is ignored."""
        if math.isnan(least) or math.isnan(most):
            return
        self.count += 1
        self.total += mean
        self.least, self.most = min(self.least, least), max(self.most, most)
        if len(self.kept) < KEPT_VALUES:
            self.kept.append(mean)
        elif (place := self._random.randrange(self.count)) < KEPT_VALUES:
            self.kept[place] = mean

    def ends(self) -> list[float]:
        """[least, most]."""
        return [self.least, self.most]

    def histogram(self, bins: int = 10) -> list[tuple[float, float, int]]:
        """Return (from, to, count) for bins of the numbers that were kept.

        >>> numbers = Range()
        >>> for number in (0, 1, 1, 4):
        ...     numbers.add(number)
        >>> numbers.histogram(2)
        [(0.0, 2.0, 3), (2.0, 4.0, 1)]
        >>> numbers.histogram(10)
        [(0, 0, 1), (1, 1, 2), (4, 4, 1)]
        """
        finite = [number for number in self.kept if math.isfinite(number)]
        if not finite:
            return []
        low, high = min(finite), max(finite)
        different = sorted(set(finite))
        if len(different) <= bins:
            exactly = Counter(finite)
            return [(number, number, exactly[number]) for number in different]
        width = (high - low) / bins
        counts = Counter(min(int((number - low) / width), bins - 1) for number in finite)
        return [(low + i * width, low + (i + 1) * width, counts[i]) for i in range(bins)]


def describe(
    samples: Iterable[Sample], *, decode: str | None = "rgb8", handler: Handler = reraise_exception
) -> Description:
    """Describe samples. A field that cannot be decoded is counted with the reason.

    `decode` is the image spec; None means sizes only.
    """
    description = Description()
    decoder = None if decode is None else _Decoding(decode)

    def add(sample: Sample) -> bool:
        description.add(sample, sample if decoder is None else decoder(sample))
        return True

    for _ in handled(samples, add, handler):
        pass
    return description


def shape_range(shapes: Iterable[tuple[int, ...]]) -> list[str]:
    """Format shapes with "n" or "from-to" per dimension, for each number of dimensions.

    >>> shape_range([(3, 4), (3, 9)])
    ['3 x 4-9']
    """
    by_rank: dict[int, list[tuple[int, ...]]] = {}
    for shape in shapes:
        by_rank.setdefault(len(shape), []).append(shape)
    return [" x ".join(_span(column) for column in zip(*group, strict=True)) for _, group in sorted(by_rank.items())]


class _Image:
    def __init__(self, pixels: Any, mode: str) -> None:
        self.pixels = pixels
        self.mode = mode


class _Failure:
    def __init__(self, text: str) -> None:
        self.text = text


class _Decoding:
    """Decodes a sample's fields, as far as possible."""

    def __init__(self, spec: str) -> None:
        self.decoder = Decoder([spec])
        self.extensions = set(IMAGE_EXTENSIONS)

    def __call__(self, sample: Sample) -> dict[str, Any]:
        return {name: self._value(name, data) for name, data in sample.items() if not name.startswith("__")}

    def _value(self, name: str, data: object) -> object:
        if not isinstance(data, bytes):
            return data
        if (header := _header(name, data)) is not None:
            return header
        try:
            value = self.decoder.decode1(name, data)
        except MissingPackageError:
            found = image_header(data)  # without the package there is still the header
            if found is None:
                raise
            return found
        except Exception as error:
            return _Failure(" ".join(reason_of(error).split())[:120])
        plain = gzfilter(name, data)
        key, content = (plain.key, plain.data) if plain else (name, data)
        if key.rpartition(".")[2].lower() in self.extensions:
            return _Image(value, _mode(content))
        return _text_or_bytes(value)


def _header(name: str, data: bytes) -> SoundInfo | VideoInfo | None:
    """What the header of a sound or a video says: decoding all of it would take long."""
    extension = name.rpartition(".")[2].lower()
    if extension in AUDIO_EXTENSIONS:
        return sound_info(data)
    return video_info(data) if extension in VIDEO_EXTENSIONS else None


def _mode(data: bytes) -> str:
    from webdataset.codecs.stored import opened

    with opened(data) as image:
        return f"{image.format} {image.mode}"


def _text_or_bytes(value: object) -> object:
    """Fields that no codec knows may still be text."""
    if isinstance(value, bytes) and b"\0" not in value:
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return value
    return value


def _type_name(value: object) -> str:
    return {"ndarray": "array", "str": "text", "LargeMember": "too large to look at"}.get(
        type(value).__name__, type(value).__name__
    )


def _span(column: tuple[int, ...]) -> str:
    low, high = min(column), max(column)
    return str(low) if low == high else f"{low}-{high}"


def _count(counter: Counter[Any], thing: Hashable) -> None:
    """Count a thing, unless there are too many different ones."""
    if thing in counter or len(counter) < MOST_KINDS:
        counter[thing] += 1
