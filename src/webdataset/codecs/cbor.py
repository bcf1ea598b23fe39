"""CBOR (RFC 8949), read as plain data.

Other decoders build whatever a tag names: regular expressions, e-mail messages, cyclic structures. This one builds
numbers, texts, bytes, lists, dicts, sets, dates, decimals and UUIDs, in bounded time and memory, and returns an
unknown tag as the `CBORTag` of the package cbor2.

>>> decode_cbor(bytes.fromhex("a26161820102616263747879"))
{'a': [1, 2], 'b': 'txy'}
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import struct
import uuid
from collections.abc import Callable, Hashable
from types import ModuleType
from typing import Any

from webdataset.base.packages import package
from webdataset.errors import DecodingError

from .keys import KeyGuard

MAX_DEPTH = 1000
UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = range(8)
INDEFINITE = 31
BREAK = object()
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def encode_cbor(value: object) -> bytes:
    """Any CBOR value."""
    packed: bytes = _cbor2().dumps(value)
    return packed


def decode_cbor(data: bytes) -> Any:
    """The value of a CBOR field; plain data only."""
    position, size = 0, len(data)

    def take(count: int) -> bytes:
        nonlocal position
        start, position = position, position + count
        if position > size:
            raise DecodingError(f"the CBOR value is cut: {count} bytes are claimed, {size - start} are there")
        return data[start:position]

    return read_cbor(take)


def read_cbor(take: Callable[[int], bytes]) -> Any:
    """The next value of a stream, of which `take(n)` returns the next n bytes or raises an error."""
    return _Reader(take).value()


class _Open:
    """A container or a tag of which parts are still to come; its parts are gathered in a list."""

    __slots__ = ("kind", "missing", "parts", "tag")

    def __init__(self, kind: int, missing: int | None, tag: int = 0) -> None:
        self.kind = kind
        self.missing = missing
        self.parts: list[Any] = []
        self.tag = tag


class _Reader:
    def __init__(self, take: Callable[[int], bytes]) -> None:
        self._take = take
        self._keys = KeyGuard()

    def value(self) -> object:
        """One whole value; containers within each other are kept on a list, not on Python's stack."""
        within: list[_Open] = []
        while True:
            value = self._head(within)
            while value is not _PENDING:
                if not within:
                    _check(value is not BREAK, "an end without a beginning")
                    return value
                outer = within[-1]
                if value is BREAK:
                    _check(outer.missing is None, "an end without a beginning")
                else:
                    outer.parts.append(value)
                    if outer.missing is None or len(outer.parts) < outer.missing:
                        break
                value = self._finish(within.pop())

    def _head(self, within: list[_Open]) -> object:
        """The next scalar, or _PENDING after the beginning of something with parts."""
        first = self._take(1)[0]
        kind, info = first >> 5, first & 31
        if kind == SIMPLE:
            return self._simple(info)
        count = self._argument(info)
        if kind == UINT and count is not None:
            return count
        if kind == NEGATIVE and count is not None:
            return -1 - count
        if kind in (BYTES, TEXT) and count is not None:
            outer = within[-1] if within else None
            _check(outer is None or outer.kind not in (BYTES, TEXT) or outer.kind == kind, "a text of mixed pieces")
            return self._take(count) if kind == BYTES else self._take(count).decode("utf-8")
        _check(kind not in (UINT, NEGATIVE, TAG) or count is not None, "a number without a value")
        _check(not within or within[-1].kind not in (BYTES, TEXT), "a text of mixed pieces")
        _check(len(within) < MAX_DEPTH, f"more than {MAX_DEPTH} levels")
        opened = _Open(kind, 1, count or 0) if kind == TAG else _Open(kind, _parts(kind, count))
        if opened.missing == 0:
            return self._finish(opened)
        within.append(opened)
        return _PENDING

    def _argument(self, info: int) -> int | None:
        """The argument of an initial byte; None for an indefinite length."""
        if info < 24:
            return info
        _check(info < 28 or info == INDEFINITE, "an initial byte of a reserved form")
        return None if info == INDEFINITE else int.from_bytes(self._take(1 << (info - 24)), "big")

    def _simple(self, info: int) -> object:
        if info in FLOATS:
            form = FLOATS[info]
            return struct.unpack(form, self._take(struct.calcsize(form)))[0]
        if info == INDEFINITE:
            return BREAK
        number = self._take(1)[0] if info == 24 else info
        if number in SIMPLE_VALUES:
            return SIMPLE_VALUES[number]
        _check(info < 25, "an initial byte of a reserved form")
        return _cbor2().undefined if number == 23 else _cbor2().CBORSimpleValue(number)

    def _finish(self, done: _Open) -> object:
        if done.kind == ARRAY:
            return done.parts
        if done.kind == MAP:
            return self._map(done.parts)
        if done.kind == TAG:
            return self._build_tagged(done.tag, done.parts[0])
        pieces: Any = b"" if done.kind == BYTES else ""
        _check(all(type(piece) is type(pieces) for piece in done.parts), "a text of mixed pieces")
        return pieces.join(done.parts)

    def _map(self, parts: list[Any]) -> dict[Any, Any]:
        _check(len(parts) % 2 == 0, "a key without a value")
        keys = [_as_key(key) for key in parts[0::2]]
        self._keys.check(keys)
        return dict(zip(keys, parts[1::2], strict=True))

    def _build_tagged(self, tag: int, value: Any) -> object:
        if tag == 258:
            _check(type(value) is list, "a set of another thing than a list")
            items = [_as_key(item) for item in value]
            self._keys.check(items)
            return set(items)
        _check(tag not in SHARING, "shared references, which plain data does not need")
        build = TAGS.get(tag)
        try:
            return _cbor2().CBORTag(tag, value) if build is None else build(value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, decimal.InvalidOperation) as exn:
            raise DecodingError(f"the CBOR value under tag {tag} is damaged: {exn}") from exn


_PENDING = object()
FLOATS = {25: ">e", 26: ">f", 27: ">d"}
SIMPLE_VALUES = {20: False, 21: True, 22: None}
SHARING = (25, 28, 29, 256)


def _parts(kind: int, count: int | None) -> int | None:
    return count if count is None or kind != MAP else 2 * count


def _as_key(value: object) -> Hashable:
    """A value that can be hashed: lists become tuples."""
    if type(value) is list:
        return tuple(_as_key(item) for item in value)
    if type(value) is set:
        return frozenset(value)
    _check(type(value) is not dict, "a dict as a key")
    return value


def _timestamp(seconds: Any) -> datetime.datetime:
    _check(type(seconds) in (int, float) and math.isfinite(seconds), "a time of such a form")
    return EPOCH + datetime.timedelta(seconds=seconds)


def _whole(data: Any) -> int:
    _check(type(data) is bytes, "an integer of such a form")
    return int.from_bytes(data, "big")


def _decimal(parts: Any) -> decimal.Decimal:
    exponent, mantissa = _exponent_and_mantissa(parts)
    return decimal.Decimal(mantissa).scaleb(exponent, decimal.Context(prec=decimal.MAX_PREC))


def _binary(parts: Any) -> decimal.Decimal:
    exponent, mantissa = _exponent_and_mantissa(parts)
    return decimal.Decimal(mantissa) * decimal.Decimal(2) ** exponent


def _exponent_and_mantissa(parts: Any) -> tuple[int, int]:
    exponent, mantissa = parts
    _check(type(exponent) is int and type(mantissa) is int and abs(exponent) <= 10_000, "a number of such a form")
    return exponent, mantissa


def _fraction(parts: Any) -> fractions.Fraction:
    numerator, denominator = parts
    _check(type(numerator) is int and type(denominator) is int, "a fraction of such a form")
    return fractions.Fraction(numerator, denominator)


def _complex(parts: Any) -> complex:
    real, imaginary = parts
    return complex(float(real), float(imaginary))


TAGS: dict[int, Callable[[Any], Any]] = {
    0: datetime.datetime.fromisoformat,
    1: _timestamp,
    2: _whole,
    3: lambda data: -1 - _whole(data),
    4: _decimal,
    5: _binary,
    30: _fraction,
    37: lambda data: uuid.UUID(bytes=data),
    100: lambda days: datetime.date(1970, 1, 1) + datetime.timedelta(days=days),
    1004: datetime.date.fromisoformat,
    43000: _complex,
    55799: lambda value: value,
}


def _check(good: bool, what: str) -> None:
    if not good:
        raise DecodingError(f"the CBOR value has {what}")


def _cbor2() -> ModuleType:
    return package("cbor2", extra="formats", purpose="for CBOR fields")
