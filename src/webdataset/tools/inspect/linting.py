"""Find problems in a dataset.

Every shard is read once, completely. Problems that concern the whole dataset (which fields a sample should have, how
large a shard should be) are reported at the end.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webdataset.autodecode import IMAGE_EXTENSIONS
from webdataset.base.printing import reason_of
from webdataset.base.reports import Report
from webdataset.base.units import size_text
from webdataset.codecs.compression import decompressed, is_expanded
from webdataset.errors import DecodingError, WebDatasetError
from webdataset.gopen import gopen
from webdataset.tar.archive import BEHIND_END, NO_END
from webdataset.tar.large import LargeMember, LargeMembers
from webdataset.tar.reader import read_members
from webdataset.tariterators import base_plus_ext

from .listing import RESERVED

MOST_EXAMPLES = 5
RARE = 100
"""A field that fewer than one in RARE samples have is rare."""

PROBLEMS = {
    "unreadable": "the shard cannot be read to its end",
    "no-end": "the archive has no end marker: it may have been cut",
    "behind-end": "there are members after the archive's end marker, where readers stop (concatenated=True reads on)",
    "empty": "the shard has no samples",
    "no-key": "the member's name has no key or no field, so it is not part of a sample",
    "reserved": "the name is reserved for metadata (__...__), so readers leave the member out",
    "not-utf8": "the name is not UTF-8",
    "repeated-field": "a field occurs twice in one sample (fields are case-insensitive)",
    "not-adjacent": "the members of a sample are not adjacent, so it is read as several samples",
    "key-collision": "the key occurs again, in this or another shard",
    "case-collision": "two keys differ only in case",
    "empty-field": "the field is empty",
    "too-large": "the member is larger than readers accept (WDS_MAX_MEMBER_BYTES)",
    "wrong-image": "the image cannot be decoded",
    "other-format": "the image's format does not match its name",
    "half-sample": "samples lack fields that most others have",
    "dots-in-keys": "names have several dots, so that a part of the key is taken for the field",
    "size-imbalance": "a shard is less than half or more than twice the median size",
}

_WARNED = {NO_END: "no-end", BEHIND_END: "behind-end"}
_PASSED_OVER = LargeMembers(lambda _: False)
_FORMATS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "gif": "GIF", "webp": "WEBP", "bmp": "BMP", "tif": "TIFF",
            "tiff": "TIFF", "ppm": "PPM", "pgm": "PPM", "pbm": "PPM"}  # fmt: skip


class Finding(NamedTuple):
    """A problem, and where it is."""

    problem: str
    """One of PROBLEMS."""
    url: str
    detail: str = ""
    offset: int | None = None
    member: str | None = None
    key: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what is known as plain data."""
        known = {name: value for name, value in self._asdict().items() if value not in (None, "")}
        return known | {"message": PROBLEMS[self.problem]}


def lint(
    urls: Iterable[str],
    *,
    images: bool = True,
    concatenated: bool = False,
    progress: Callable[[int, int, int], object] = lambda samples, size, shards: None,  # noqa: ARG005 - nobody listens
) -> Iterator[Finding]:
    """Read shards and yield the problems; `images=False` does not decode images.

    `concatenated` reads past end markers, where another archive may follow. `progress` is told of samples, bytes and
    shards that were read.

    >>> import tempfile, tarfile
    >>> with tempfile.NamedTemporaryFile(suffix=".tar") as file:
    ...     with tarfile.open(file.name, "w") as tar:
    ...         tar.addfile(tarfile.TarInfo("README"))
    ...     [finding.problem for finding in lint([file.name])]
    ['no-key', 'empty']
    """
    whole = _Dataset()
    seen: set[str] = set()
    for url in urls:
        if url in seen:
            yield Finding("key-collision", url, "the shard is listed twice: all its keys occur again")
            continue
        seen.add(url)
        yield from _Shard(url, whole, images=images, concatenated=concatenated, progress=progress).findings()
        progress(0, 0, 1)
    yield from whole.findings()


class _Shard:
    """Finds the problems of one shard."""

    def __init__(
        self,
        url: str,
        whole: _Dataset,
        *,
        images: bool,
        concatenated: bool,
        progress: Callable[[int, int, int], object],
    ) -> None:
        self.progress = progress
        self.url = url
        self.whole = whole
        self.images = images
        self.concatenated = concatenated
        self.bytes = self.samples = 0
        self.key: str | None = None
        self.fields: dict[str, str] = {}
        self.offset = 0
        self.here: dict[int, None] = {}

    def findings(self) -> Iterator[Finding]:
        report = _Collected()
        try:
            with gopen(self.url) as stream:
                plain = decompressed(stream, url=self.url)
                limits = _PASSED_OVER.limits(None if is_expanded(plain) else stream)
                reading: dict[str, Any] = {"limits": limits, "report": report, "concatenated": self.concatenated}
                for window in read_members(plain, url=self.url, **reading):
                    for name, offset, data in window:
                        yield from self._member(name, offset, data)
            yield from self._end_of_sample()
        except (WebDatasetError, OSError) as error:
            place = {"offset": getattr(error, "offset", None), "member": getattr(error, "member", None)}
            yield Finding("unreadable", self.url, getattr(error, "message", "") or str(error), **place)
            return
        for message, places in report.warned:
            kind = _WARNED.get(message, "unreadable")
            yield Finding(kind, self.url, message if kind == "unreadable" else "", offset=places.get("offset"))
        if not self.samples:
            yield Finding("empty", self.url)
        self.whole.shards[self.url] = self.bytes

    def _member(self, name: str, offset: int, data: bytes | LargeMember) -> Iterator[Finding]:
        self.bytes += len(data)
        self.progress(0, 512 + len(data) + -len(data) % 512, 0)
        place: dict[str, Any] = {"offset": offset, "member": name}
        if any("\udc80" <= char <= "\udcff" for char in name):
            yield Finding("not-utf8", self.url, **place)
        key, extension = base_plus_ext(name)
        if key is None or extension is None or key == "":
            yield Finding("no-key", self.url, **place)
            return
        if extension.startswith("__") or RESERVED.match(name):
            yield Finding("reserved", self.url, **place)
            return
        if key != self.key:
            yield from self._end_of_sample()
            self.key, self.fields, self.offset = key, {}, offset
        field = extension.lower()
        if field in self.fields:
            yield Finding("repeated-field", self.url, f"{self.fields[field]} comes before", key=key, **place)
        self.fields.setdefault(field, name)
        if not data:
            yield Finding("empty-field", self.url, key=key, **place)
        elif isinstance(data, LargeMember):
            yield Finding("too-large", self.url, size_text(data.size), key=key, **place)
        elif self.images:
            yield from self._image(field, data, place | {"key": key})

    def _end_of_sample(self) -> Iterator[Finding]:
        if self.key is None:
            return
        self.samples += 1
        self.progress(1, 0, 0)
        number = _number(self.key)
        if number in self.here:
            yield Finding("not-adjacent", self.url, offset=self.offset, key=self.key)
        else:
            self.here[number] = None
            yield from self.whole.add_key(self.key, number, self.url, self.offset)
        self.whole.add_fields(self.url, self.key, self.fields)

    def _image(self, field: str, data: bytes, place: dict[str, Any]) -> Iterator[Finding]:
        extension = field.rpartition(".")[2]
        if extension not in IMAGE_EXTENSIONS or extension in ("mpg", "mpeg", "h5", "hdf"):
            return
        problem = _image_problem(extension, data)
        if problem is not None:
            yield Finding(problem[0], self.url, problem[1], **place)


class _Dataset:
    """Finds problems that concern all shards."""

    def __init__(self) -> None:
        self.shards: dict[str, int] = {}
        self.keys: dict[int, str] = {}
        self.lower: dict[int, int] = {}
        self.field_sets: Counter[frozenset[str]] = Counter()
        self.examples: dict[frozenset[str], list[tuple[str, str]]] = {}

    def add_key(self, key: str, number: int, url: str, offset: int) -> Iterator[Finding]:
        if number in self.keys:
            yield Finding("key-collision", url, f"it is also in {self.keys[number]}", offset=offset, key=key)
            return
        self.keys[number] = url
        if self.lower.setdefault(_number(key.lower()), number) != number:
            yield Finding("case-collision", url, offset=offset, key=key)

    def add_fields(self, url: str, key: str, fields: Mapping[str, str]) -> None:
        names = frozenset(fields)
        self.field_sets[names] += 1
        examples = self.examples.setdefault(names, [])
        if len(examples) < MOST_EXAMPLES:
            examples.append((url, key))

    def findings(self) -> Iterator[Finding]:
        samples = self.field_sets.total()
        counts: Counter[str] = Counter()
        for names, n in self.field_sets.items():
            counts.update(dict.fromkeys(names, n))
        dotted = _parts_of_keys(counts, samples)
        if dotted:
            yield from self._dots(dotted)
        else:
            yield from self._halves(counts, samples)
        yield from _imbalances(self.shards)

    def _dots(self, dotted: list[str]) -> Iterator[Finding]:
        names = next(names for names in self.field_sets if dotted[0] in names)
        url, key = self.examples[names][0]
        shown = ", ".join(dotted[:MOST_EXAMPLES])
        yield Finding("dots-in-keys", url, f"{len(dotted)} fields are rare, such as {shown}", key=key)

    def _halves(self, counts: Counter[str], samples: int) -> Iterator[Finding]:
        expected = {name for name, n in counts.items() if 2 * n > samples}
        for names, n in self.field_sets.most_common():
            if missing := expected - names:
                url, key = self.examples[names][0]
                others = ", ".join(key for _, key in self.examples[names])
                yield Finding("half-sample", url, f"{n} lack {', '.join(sorted(missing))}: {others}", key=key)


class _Collected(Report):
    """A report that collects its warnings."""

    def __init__(self) -> None:
        super().__init__(strict=False)
        self.warned: list[tuple[str, dict[str, Any]]] = []

    def warn(self, message: str, **places: Any) -> None:
        self.warned.append((message, places))


def _image_problem(extension: str, data: bytes) -> tuple[str, str] | None:
    from webdataset.codecs.stored import opened, pillow

    pillow()
    try:
        with opened(data) as image:
            found = image.format
        _decode(data)
    except Exception as error:
        text = reason_of(error)
        return "wrong-image", " ".join(text.split())[:200]
    expected = _FORMATS.get(extension)
    return ("other-format", f"it is {found}") if expected not in (None, found) else None


def _decode(data: bytes) -> None:
    """Decode an image; depth maps and the like cannot be RGB, and a few formats have no exact pixel values."""
    from webdataset.codecs.images import decode_image

    try:
        decode_image(data, "pixels")
    except DecodingError:
        decode_image(data, "rgb8")


def _parts_of_keys(counts: Counter[str], samples: int) -> list[str]:
    """Return rare fields with dots and the same extension: `0001.jpg`, `0002.jpg`."""
    rare = [name for name, n in counts.items() if "." in name and n * RARE <= max(samples, RARE)]
    by_ending = Counter(name.rpartition(".")[2] for name in rare)
    return [name for name in rare if by_ending[name.rpartition(".")[2]] > 2]


def _imbalances(shards: dict[str, int]) -> Iterator[Finding]:
    if len(shards) < 3:
        return
    usual = statistics.median(shards.values())
    last = list(shards)[-1]
    for url, size in shards.items():
        # the last shard may be smaller
        if size > 2 * usual or (2 * size < usual and url != last):
            yield Finding("size-imbalance", url, f"{size_text(size)} of data, the median is {size_text(usual)}")


def _number(key: str) -> int:
    """Hash a key to 8 bytes, as all of them are kept."""
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest())
