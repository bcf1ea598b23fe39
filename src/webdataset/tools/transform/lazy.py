"""Samples that decode a field when it is accessed, and encode only what was changed.

>>> sample = LazySample({"__key__": "a", "cls": b"7", "jpg": b"not looked at"})
>>> sample["cls"] -= 1
>>> sample.encoded()
{'__key__': 'a', 'cls': b'6', 'jpg': b'not looked at'}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cache
from typing import Any

from webdataset.codecs import decoders, encode
from webdataset.errors import DecodingError, EncodingError, MissingPackageError, SampleError, WebDatasetError
from webdataset.tar.large import LargeMember

DecodeField = Callable[[str, bytes], Any]

PLAIN = frozenset(["cls", "cls2", "index", "inx", "id", "txt", "text", "transcript", "json", "jsn"])

_NOTHING: object = object()
_IMMUTABLE = (int, float, str, bytes, bool, type(None))


class MissingFieldError(SampleError, KeyError):
    """The sample has no such field; the message lists those it has."""


@cache
def field_decoder(spec: str) -> DecodeField:
    """Return a decoder of fields: by their extensions, images as `spec`; "raw" leaves everything as bytes.

    >>> field_decoder("rgb")("cls", b"3"), field_decoder("raw")("cls", b"3")
    (3, b'3')
    """
    if spec in ("raw", "none", "bytes"):
        return _as_is
    from webdataset.autodecode import Decoder

    decode = Decoder([spec] if spec != "basic" else []).decode1

    def decoded(name: str, data: bytes) -> Any:
        # labels and texts are accessed most, and no image spec or handler changes them
        plain = decoders.get(name) if name in PLAIN else None
        return decode(name, data) if plain is None else plain(data)

    return decoded


class LazySample(dict[str, Any]):
    """A dict of a sample's values; fields that are not accessed keep their bytes."""

    __slots__ = ("_decode", "_seen", "_stored")

    def __init__(self, sample: dict[str, Any], decode: DecodeField | None = None) -> None:
        super().__init__(sample)
        self._stored = sample
        self._decode = field_decoder("rgb") if decode is None else decode
        self._seen: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        value = dict.get(self, name, _NOTHING)
        if value is _NOTHING:
            raise missing_field(name, self)
        if type(value) is LargeMember:
            value = value.whole()
        if type(value) is bytes and name not in self._seen and name[:2] != "__":
            value = self._seen[name] = self._decoded(name, value)
            super().__setitem__(name, value)
        return value

    def __setitem__(self, name: str, value: object) -> None:
        self._seen.setdefault(name, _NOTHING)
        super().__setitem__(name, value)

    def __iter__(self) -> Iterator[str]:  # makes dict(sample) and {**sample} use __getitem__
        return super().__iter__()

    def copy(self) -> LazySample:
        """Return an independent copy."""
        twin = LazySample(self._stored, self._decode)
        twin.clear_to(dict(super().items()), dict(self._seen))
        return twin

    def changed(self, *changes: Any, **fields: Any) -> LazySample:
        """Return a copy with some fields changed, as `dict(sample, cls=1)` does, without decoding the others."""
        twin = self.copy()
        for change in changes:
            twin.update(change)
        twin.update(fields)
        return twin

    def __or__(self, other: object) -> Any:
        return self.changed(other) if isinstance(other, Mapping) else NotImplemented

    def clear_to(self, contents: dict[str, Any], seen: dict[str, Any]) -> None:
        """Set the contents, some of which were accessed."""
        self.clear()
        super().update(contents)
        self._seen = seen

    def encoded(self, result: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Encode the sample, or a dict made from it; unchanged fields keep their bytes."""
        if result is None or result is self:
            contents = dict(super().items())
            for name in self._seen:
                if name in contents:
                    contents[name] = self._bytes(name, contents[name])
            return contents
        if isinstance(result, LazySample):
            return result.encoded()
        return {name: self._bytes(name, value) for name, value in result.items()}

    get = Mapping.get  # type: ignore[assignment]
    items = Mapping.items  # type: ignore[assignment]
    values = Mapping.values  # type: ignore[assignment]
    pop = MutableMapping.pop
    popitem = MutableMapping.popitem
    setdefault = MutableMapping.setdefault
    update = MutableMapping.update

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self.items()),)

    def _decoded(self, name: str, data: bytes) -> Any:
        try:
            return self._decode(name, data)
        except MissingPackageError:
            raise
        except Exception as error:
            key = dict.get(self, "__key__")
            text = error.message if isinstance(error, WebDatasetError) else f"{type(error).__name__}: {error}"
            raise DecodingError(text, url=dict.get(self, "__url__"), key=key, field=name) from error

    def _bytes(self, name: str, value: object) -> Any:
        if name[:2] == "__":
            return value
        seen = self._seen.get(name, _NOTHING)
        stored = self._stored.get(name, _NOTHING)
        if stored is not _NOTHING and (value is stored or (value is seen and self._unchanged(name, value, stored))):
            return stored
        return value if type(value) is bytes and name[-3:] != ".gz" else encode(name, value)

    def _unchanged(self, name: str, value: Any, stored: bytes) -> bool:
        """Whether a value that was accessed still equals its bytes: lists and arrays can be changed in place."""
        if isinstance(value, _IMMUTABLE):
            return True
        fresh = self._decode(name, stored)
        if hasattr(value, "tobytes") and hasattr(value, "shape"):
            return bool(
                value.dtype == fresh.dtype and value.shape == fresh.shape and value.tobytes() == fresh.tobytes()
            )
        try:
            before = encode(name, fresh)
        except EncodingError:
            return True  # it cannot be encoded, so a change could not be written
        return before == encode(name, value)


def missing_field(name: str, sample: Mapping[str, Any]) -> MissingFieldError:
    """Return an error that lists the fields of the sample."""
    fields = [field for field in sample.keys() if field[:2] != "__"]  # noqa: SIM118 - works for every mapping
    import difflib

    close = difflib.get_close_matches(str(name), fields, 1)
    meant = f", did you mean {close[0]!r}?" if close else ""
    return MissingFieldError(
        f"there is no field {name!r}{meant}; the fields here are {' '.join(sorted(fields)) or 'none'}",
        key=dict.get(sample, "__key__") if isinstance(sample, dict) else sample.get("__key__"),
        hint="separate several fields by spaces, not commas" if "," in str(name) else "",
    )


def _as_is(name: str, data: bytes) -> bytes:  # noqa: ARG001 - stands in for a decoder
    return data
