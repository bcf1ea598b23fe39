"""From a sample of values to the members that store it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from webdataset.base.reports import current_report
from webdataset.codecs import encode, encoders
from webdataset.codecs.basic import encode_int
from webdataset.errors import EncodingError
from webdataset.tar.large import LargeMember
from webdataset.tar.writer import Members, name_bytes

Sample = Mapping[str, Any]
Encoder = Callable[[Any], Sample]

MAX_LAYOUTS = 1000


class EncodedField(NamedTuple):
    """A field of samples, what it adds to the key in a member's name, and whether its bytes stay as they are."""

    field: str
    suffix: bytes
    as_is: bool


Layout = tuple[EncodedField, ...]


def make_encoder(spec: bool | Encoder | Mapping[str, Callable[[Any], bytes]] | None) -> Encoder:
    """The function that turns a sample of values into a sample of bytes.

    >>> make_encoder(True)({"__key__": "a", "cls": 3})
    {'__key__': 'a', 'cls': b'3'}
    """
    if spec is None or spec is False:
        return _unchanged
    if spec is True:
        return partial(encode_based_on_extension, handlers=encoders)
    if isinstance(spec, Mapping):
        return partial(encode_based_on_extension, handlers=spec)
    if callable(spec):
        return spec
    raise ValueError(f"encoder must be True, False, None, a function or a dict of functions, got {spec!r}")


def encode_based_on_extension(sample: Sample, handlers: Mapping[str, Callable[[Any], bytes]]) -> dict[str, Any]:
    """The sample with every field as bytes; fields that begin with `_` stay as they are."""
    return {
        field: value
        if (type(value) is bytes and field[-3:] != ".gz") or field[:1] == "_"
        else encode(field, value, handlers)  # type: ignore[arg-type]  # any mapping serves
        for field, value in sample.items()
    }


def encode_based_on_extension1(data: object, tname: str, handlers: Mapping[str, Callable[[Any], bytes]]) -> Any:
    """One field's value as bytes."""
    return encode_based_on_extension({tname: data}, handlers)[tname]


def bytestr(data: object) -> bytes:
    """Bytes as they are, anything else as its text.

    >>> bytestr(b"a"), bytestr("a"), bytestr(3)
    (b'a', b'a', b'3')
    """
    return data if isinstance(data, bytes) else str(data).encode()


def make_handlers() -> dict[str, Callable[[Any], bytes]]:
    """A copy of the encoders by extension, to change without changing them for everybody."""
    return dict(encoders)


def add_handlers(d: dict[str, Callable[[Any], bytes]], keys: str | list[str], value: Callable[[Any], bytes]) -> None:
    """Use one encoder for several extensions.

    >>> handlers = make_handlers()
    >>> add_handlers(handlers, "hex heX", bytes.fromhex)
    >>> handlers["hex"]("ff")
    b'\\xff'
    """
    for extension in keys.split() if isinstance(keys, str) else keys:
        d[extension] = value


class SampleEncoder:
    """From a sample to the members that store it."""

    def __init__(self, encoder: Any, keep_meta: bool) -> None:
        self.encoder = make_encoder(encoder)
        # encoding field by field saves a copy of the sample
        self._table = self.encoder.keywords["handlers"] if isinstance(self.encoder, partial) else None
        self._keep_meta = keep_meta
        self._layouts: dict[tuple[str, ...], Layout] = {}
        self._report = current_report()
        self._dots_reported = False

    def __call__(self, obj: Sample) -> Members:
        if type(obj) is not dict and not isinstance(obj, Mapping):
            raise EncodingError(f"a sample is a dict, got {type(obj).__name__}")
        try:
            return self._members(self.encoder(obj) if self._table is None else obj)
        except EncodingError as error:
            raise error.at(key=obj.get("__key__")) from error.__cause__

    def _members(self, sample: Sample) -> Members:
        stem = self._stem(sample.get("__key__"))
        members = []
        for field, suffix, as_is in self._layouts.get(tuple(sample)) or self._layout(sample):
            data = sample[field]
            if type(data) is not bytes or not as_is:
                data = self._encoded(field, data)
            members.append((stem + suffix, data))
        return members

    def _layout(self, sample: Sample) -> Layout:
        """The fields that are stored, in their order; few kinds of samples differ in it."""
        layout = tuple(self._stored(field) for field in _sorted(sample) if self._is_stored(field))
        _check_case(field for field, _, _ in layout)
        if len(self._layouts) >= MAX_LAYOUTS:
            self._layouts.clear()
        self._layouts[tuple(sample)] = layout
        return layout

    def _is_stored(self, field: object) -> bool:
        if not isinstance(field, str):
            raise EncodingError(f"the name of a field must be a str, got {field!r}")
        if not field or "/" in field:
            raise EncodingError(
                "a field's name must not be empty or hold a slash: no reader would find it", field=field
            )
        return field != "__key__" and (field[0] != "_" or self._keep_meta)

    def _stored(self, field: str) -> EncodedField:
        as_is = self._table is None or field[-3:].lower() != ".gz"
        return EncodedField(field, b"." + name_bytes(field), as_is)

    def _encoded(self, field: str, value: object) -> bytes | LargeMember:
        if type(value) is int and self._table is not None and self._table.get(field) is encode_int:
            return b"%d" % value  # the usual label, the usual way
        if isinstance(value, LargeMember):
            return value
        if self._table is None or field[0] == "_":
            return _as_bytes(field, value)
        return encode(field, value, self._table)

    def _stem(self, key: object) -> bytes:
        if type(key) is not str:
            if key is None:
                raise EncodingError("the sample has no __key__", hint='name it: {"__key__": "000017", ...}')
            if not isinstance(key, str):
                raise EncodingError(
                    f"__key__ must be a str, got {type(key).__name__}", hint="convert it, for example with str()"
                )
        if not key or key[-1] == "/":
            raise EncodingError("__key__ must not be empty or end in a slash: no reader would find the sample")
        if "." in key and not self._dots_reported and "." in key.rpartition("/")[2]:
            self._dots_reported = True
            first = key[: key.index(".", key.rfind("/") + 1)]
            self._report.warn(
                f"the key has a dot: readers take what follows it for the field, and {first!r} for the key", key=key
            )
        return key.encode() if key.isascii() and "\0" not in key else name_bytes(key)


def _sorted(sample: Sample) -> list[str]:
    try:
        return sorted(sample)
    except TypeError:  # names of several types
        return sorted(sample, key=str)


def _check_case(fields: Iterable[str]) -> None:
    """Raise for fields that differ in case alone: readers turn all into lower case."""
    seen: dict[str, str] = {}
    for field in fields:
        if (other := seen.setdefault(field.lower(), field)) != field:
            hint = "give each a name of its own"
            raise EncodingError(
                f"the fields {other!r} and {field!r} are the same one to readers", field=field, hint=hint
            )


def _unchanged(sample: Sample) -> Sample:
    return sample


def _as_bytes(field: str, data: object) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str) and field[0] == "_":
        return data.encode("utf-8", "surrogateescape")
    message = f"{field} doesn't map to a bytes after encoding ({type(data)})"
    raise EncodingError(message, field=field, hint="encoder=True encodes by extension")
