"""Data types and shapes of arrays as files describe them, checked before numpy sees them.

numpy's parser is not made for foreign text: a datetime unit with a divisor of zero (`<M8[Y/0]`) ends the process.
So a description must be one of the forms that numpy itself writes, and a shape must fit the bytes that are there.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from webdataset.errors import DecodingError

if TYPE_CHECKING:
    import numpy as np

MAX_DEPTH = 32
"""Levels of structured types within each other."""
MAX_DIMENSIONS = 64
MAX_ITEM_BYTES = 1 << 28
FREE_ITEMS = 1 << 20
"""Items that take no bytes: an array may have this many, however small the file is."""

_PLAIN = r"[biufcSUVO][1-9]?\d{0,8}|[?bBhHiIlLqQefdgFDGO]"
_TIME = r"[Mm]8(\[([1-9]\d{0,8})?(generic|Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?"
_DTYPE = re.compile(rf"[<>|=]?({_PLAIN}|{_TIME})")


def is_dtype_string(text: object) -> bool:
    """Whether a text is a data type as numpy writes it.

    >>> is_dtype_string("<f4"), is_dtype_string("<M8[25s]"), is_dtype_string("<M8[Y/0]")
    (True, True, False)
    """
    return type(text) is str and _DTYPE.fullmatch(text) is not None


def dtype_from(description: Any) -> np.dtype[Any]:
    """The data type of a description as npy files have it: a text, or a list of fields.

    >>> dtype_from("<f4"), dtype_from([("a", "|u1"), ("b", "<i2", (3,))])
    (dtype('float32'), dtype([('a', 'u1'), ('b', '<i2', (3,))]))
    """
    import numpy as np

    if not _is_description(description, MAX_DEPTH):
        raise DecodingError("the array has a data type of an unknown form")
    dtype = np.lib.format.descr_to_dtype(description)
    if dtype.itemsize > MAX_ITEM_BYTES:
        raise DecodingError(
            f"the items of the array have {dtype.itemsize} bytes each, at most {MAX_ITEM_BYTES} are read"
        )
    return dtype


def depth(dtype: np.dtype[Any]) -> int:
    """Levels of structured and array types within a data type.

    >>> import numpy as np
    >>> depth(np.dtype("f4")), depth(np.dtype([("a", [("b", "f4")])]))
    (1, 3)
    """
    level, parts = 0, {id(dtype): dtype}
    while parts and level <= MAX_DEPTH:  # each type once a level: fields may share them
        level += 1
        inner = [part for outer in parts.values() for part in _parts(outer)]
        parts = {id(part): part for part in inner}
    return level


def is_shape(shape: object) -> bool:
    """Whether this is a tuple of sizes."""
    return (
        type(shape) is tuple and len(shape) <= MAX_DIMENSIONS and all(type(size) is int and size >= 0 for size in shape)
    )


def fits(shape: tuple[int, ...], itemsize: int, size: int) -> bool:
    """Whether an array of this shape can come out of that many bytes.

    Items that take no bytes count too: a list made of the array has them all.

    >>> fits((2, 3), 4, 24), fits((2, 3), 4, 23), fits((1 << 40,), 0, 100), fits((1 << 40, 0), 4, 100)
    (True, False, False, False)
    """
    if math.prod(shape) * itemsize > size:
        return False
    return math.prod(length for length in shape if length) <= max(FREE_ITEMS, size)


def _parts(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    fields = [field[0] for field in (dtype.fields or {}).values()]
    return [*fields, dtype.subdtype[0]] if dtype.subdtype else fields


def _is_description(description: object, levels: int) -> bool:
    if type(description) is str:
        return is_dtype_string(description)
    if levels == 0:
        return False
    if type(description) is tuple:
        return len(description) == 2 and _is_description(description[0], levels - 1) and is_shape(description[1])
    return type(description) is list and all(_is_field(field, levels - 1) for field in description)


def _is_field(field: object, levels: int) -> bool:
    if type(field) is not tuple or len(field) not in (2, 3):
        return False
    names = field[0] if type(field[0]) is tuple else (field[0],)
    return (
        1 <= len(names) <= 2
        and all(type(name) is str for name in names)
        and _is_description(field[1], levels)
        and (len(field) == 2 or is_shape(field[2]))
    )
