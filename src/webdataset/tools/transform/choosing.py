"""Choose and rename the fields of samples, and give samples new keys.

>>> keep = field_chooser("image:jpg,png cls")
>>> keep({"__key__": "a", "png": b"...", "cls": b"7", "txt": b"hello"})
{'__key__': 'a', 'image': b'...', 'cls': b'7'}
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from webdataset.base.stages import pipelinefilter
from webdataset.handlers import Handler, handled, reraise_exception
from webdataset.tar.large import LargeMembers
from webdataset.tariterators import base_plus_ext

from .lazy import missing_field

Sample = dict[str, Any]

LARGE_BYTES = 256 << 20
"""Larger members are copied in pieces, not read into memory."""


@pipelinefilter
def fields(data: Iterable[Sample], spec: str, handler: Handler = reraise_exception) -> Iterator[Sample]:
    """Keep and rename fields: `"jpg;png cls"` keeps two, `"image:jpg,png"` renames the first one present."""
    return handled(data, field_chooser(spec), handler)


@pipelinefilter
def rekey(data: Iterable[Sample], pattern: str = "{index:09d}", start: int = 0) -> Iterator[Sample]:
    """Give every sample a new key; `{index}` counts, `{key}` is the old one; `%09d` and `#` count too.

    >>> [sample["__key__"] for sample in rekey("#")([{"__key__": "b"}, {"__key__": "a"}])]
    ['000000000', '000000001']
    """
    name = key_maker(pattern)
    return (sample | {"__key__": name(sample["__key__"], n)} for n, sample in enumerate(data, start))


@pipelinefilter
def last_of_equal(data: Iterable[Sample], value_of: Callable[[Sample], Any]) -> Iterator[Sample]:
    """Keep only the last of neighbouring samples with the same value.

    >>> list(last_of_equal(lambda sample: sample["cls"])([{"cls": 1, "n": 1}, {"cls": 1, "n": 2}]))
    [{'cls': 1, 'n': 2}]
    """
    for _, group in itertools.groupby(data, value_of):
        yield deque(group, 1)[0]


@pipelinefilter
def emptied(data: Iterable[Sample]) -> Iterator[Sample]:
    """Keep the names of the fields, without their bytes."""
    return ({name: value if name[:2] == "__" else b"" for name, value in sample.items()} for sample in data)


def in_pieces(spec: str | None = None, key: str | None = None) -> LargeMembers:
    """Return what passes large members on in pieces; those of other fields or keys are skipped."""
    names = None if not spec else {name for _, names in parsed_fields(spec) for name in names}

    def wanted(member: str) -> bool:
        prefix, field = base_plus_ext(member)
        return (key is None or prefix == key) and (names is None or (field or "").lower() in names)

    return LargeMembers(wanted, limit=LARGE_BYTES)


NOT_IN_MEMORY = LargeMembers(lambda _: False)
"""Members that are too large for memory are skipped; accessing one is an error."""


def field_named(sample: Mapping[str, Any], alternatives: Sequence[str]) -> str:
    """Return the first of these fields that the sample has; the error lists the fields it has.

    >>> field_named({"__key__": "a", "png": b"...", "cls": b"7"}, ["jpg", "png"])
    'png'
    """
    for name in alternatives:
        if name in sample:
            return name
    raise missing_field(";".join(alternatives), sample).at(url=sample.get("__url__"))


def nested_value(sample: Mapping[str, Any], name: str) -> Any:
    """The value of a field, or of a part of one: `json.score`, `json.boxes.0.label`; raises KeyError without one.

    >>> nested_value({"json": {"boxes": [{"label": "cat"}]}}, "json.boxes.0.label")
    'cat'
    """
    if name in sample:
        return sample[name]
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        field = ".".join(parts[:end])
        if field in sample:
            value: Any = sample[field]
            for part in parts[end:]:
                value = _part(value, part)
            return value
    raise KeyError(name)


def _part(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return value[name]
    if isinstance(value, (list, tuple)) and name.lstrip("-").isdigit() and -len(value) <= int(name) < len(value):
        return value[int(name)]
    raise KeyError(name)


def value_named(sample: Mapping[str, Any], alternatives: Sequence[str]) -> Any:
    """Return the value of the first of these fields, or parts of fields, that the sample has."""
    for name in alternatives:
        try:
            return nested_value(sample, name)
        except KeyError:
            continue
    raise missing_field(";".join(alternatives), sample).at(url=sample.get("__url__"))


def field_chooser(spec: str, *, missing_ok: bool = False) -> Callable[[Sample], Sample]:
    """Return a function that keeps the fields of a specification; a missing one is an error that lists the others."""
    wanted = parsed_fields(spec)

    def choose(sample: Sample) -> Sample:
        result = {name: value for name, value in sample.items() if name[:2] == "__"}
        for new, names in wanted:
            found = next((name for name in names if name in sample), None)
            if found is not None:
                result[new or found] = sample[found]
            elif not missing_ok:
                raise missing_field(" or ".join(names), sample)
        return result

    return choose


def parsed_fields(spec: str) -> list[tuple[str, list[str]]]:
    """Return pairs of a new name, empty if it stays the same, and the alternative fields.

    >>> parsed_fields("jpg;png label:cls,class")
    [('', ['jpg', 'png']), ('label', ['cls', 'class'])]
    """
    parsed = []
    for part in spec.split():
        new, colon, old = part.rpartition(":")
        names = [name for name in old.replace(",", ";").split(";") if name]
        if not names or (colon and not new):
            raise ValueError(f"{part!r} names no field; use jpg, jpg;png or new:old1,old2, with spaces between fields")
        parsed.append((new, names))
    if not parsed:
        raise ValueError('no fields are named; use for example "jpg;png cls"')
    return parsed


def key_maker(pattern: str) -> Callable[[str, int], str]:
    """Return a function that makes a new key from an old key and a number."""
    pattern = "{index:09d}" if pattern == "#" else pattern
    try:
        if "%" in pattern and "{" not in pattern:
            if pattern % 0 == pattern % 1:
                raise ValueError("it has no number")
            return lambda _, index: pattern % index
        if pattern.format(index=0, key="a") == pattern.format(index=1, key="b"):
            raise ValueError("it has neither {index} nor {key}")
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the pattern {pattern!r} makes no keys: {error}; use {{index:09d}} or %09d") from None
    return lambda key, index: pattern.format(index=index, key=key)


def parsed_slice(text: str) -> slice:
    """Parse Python's lo:hi:step.

    >>> parsed_slice("2:8:2"), parsed_slice("5")
    (slice(2, 8, 2), slice(5, None, None))
    """
    try:
        parts = [int(part) if part else None for part in text.split(":")]
        cut = slice(*parts) if len(parts) > 1 else slice(parts[0], None)
        itertools.islice((), cut.start, cut.stop, cut.step)
    except (TypeError, ValueError):
        raise ValueError(f"a slice is lo:hi:step with numbers of at least 0, got {text!r}") from None
    return cut
