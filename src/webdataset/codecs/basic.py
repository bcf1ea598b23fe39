"""Numbers, texts and structured values as the bytes of a field."""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable
from types import ModuleType
from typing import Any

from webdataset.base.packages import package
from webdataset.errors import EncodingError

from .packages import is_array, is_tensor


def encode_int(value: object) -> bytes:
    """A class label or other number, in ASCII.

    >>> encode_int(7), encode_int(True), encode_int("7")
    (b'7', b'1', b'7')
    """
    if type(value) is int:
        return b"%d" % value
    if isinstance(value, str):
        return value.encode()
    number = scalar(value)
    if isinstance(number, bool):
        number = int(number)
    if not isinstance(number, (int, float)):
        raise EncodingError(f"a number is needed, got {kind_of(value)}")
    return str(number).encode("ascii")


def decode_int(data: bytes) -> int:
    """A class label or other whole number.

    >>> decode_int(b" 7\\n")
    7
    """
    return int(data)


def encode_text(value: object) -> bytes:
    """A text, in UTF-8."""
    if not isinstance(value, str):
        raise EncodingError(f"a str is needed, got {kind_of(value)}")
    return value.encode()


def decode_text(data: bytes) -> str:
    """A text, in UTF-8."""
    return data.decode("utf-8")


def encode_json(value: object) -> bytes:
    """Any JSON value; numpy and torch numbers and arrays become numbers and lists.

    >>> encode_json({"a": [1, None]})
    b'{"a": [1, null]}'
    """
    return _to_json(value).encode("utf-8")


def decode_json(data: bytes) -> Any:
    """Any JSON value."""
    return json.loads(data)


def encode_msgpack(value: object) -> bytes:
    """Any MessagePack value."""
    packed: bytes = _msgpack().packb(value)
    return packed


def decode_msgpack(data: bytes) -> Any:
    """Any MessagePack value."""
    return _msgpack().unpackb(data)


def encode_bytes(value: Any) -> bytes:
    """The bytes of anything that has a buffer: arrays, `array.array`."""
    if is_tensor(value):
        value = value.detach().cpu().contiguous().numpy()
    return memoryview(value).tobytes()


def scalar(value: Any) -> Any:
    """The Python number in a numpy or torch value that holds just one; other values as they are."""
    if is_array(value) and value.size == 1:
        return value.item()
    if is_tensor(value) and value.numel() == 1:
        return value.item()
    return value


def kind_of(value: Any) -> str:
    """A value's type, with dtype and shape if it has them.

    >>> kind_of([1]), kind_of(None)
    ('list', 'None')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    if is_array(value) or is_tensor(value):
        return f"{name} of {value.dtype}, shape {tuple(value.shape)}"
    return name


def _plain(value: Any) -> object:
    if is_array(value) or is_tensor(value):
        return value.tolist()
    raise EncodingError(f"{kind_of(value)} has no JSON form")


def _json_encoder() -> Callable[[Any], str]:
    """`json.dumps`, its encoder made once instead of in each call, which is a third of the time of a small value.

    It holds no state, so threads share it; a value that contains itself ends in a RecursionError.
    """
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(default=_plain).encode
    quoted = json.encoder.encode_basestring_ascii
    pieces = make(None, _plain, quoted, None, ": ", ", ", False, False, True)
    return lambda value: "".join(pieces(value, 0))


_to_json = _json_encoder()


def _msgpack() -> ModuleType:
    return package("msgpack", extra="formats", purpose="for MessagePack fields")
