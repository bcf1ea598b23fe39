"""numpy's part of the list: dtypes, arrays and scalars, rebuilt from their checked parts.

numpy's own `__setstate__` believes what it is told: a dtype whose fields lie outside of it, or that hides
pointers, would read or call arbitrary memory. So dtypes are rebuilt through numpy's checked constructor and
arrays are copied from bytes of the right length.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from webdataset.codecs.dtypes import MAX_DEPTH, MAX_ITEM_BYTES, depth, fits, is_dtype_string, is_shape

from .builders import Builder, Draft, Name, check

if TYPE_CHECKING:
    import numpy as np

    from .machine import Machine

SCALAR_TYPES = frozenset(
    ["bool", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intc", "intp"]
    + ["longlong", "ulonglong", "float16", "float32", "float64", "longdouble", "complex64", "complex128"]
    + ["clongdouble", "str_", "bytes_", "datetime64", "timedelta64"]
)
TIME_UNITS = frozenset(b"Y M W D h m s ms us ns ps fs as generic".split())


def find_numpy(full: str) -> tuple[Any, Builder | None] | None:
    """The object for one of numpy's names on the stack, and its builder."""
    import numpy as np

    if full in BUILDERS:
        return Name(full), BUILDERS[full]
    if full == "numpy.dtype":
        return np.dtype, _dtype
    if full == "numpy.ndarray":
        return np.ndarray, None
    name = full.removeprefix("numpy.")
    return (getattr(np, name), None) if name in SCALAR_TYPES else None


class DtypeDraft(Draft):
    """A dtype by its letters; size, byte order and fields come with the state."""

    __slots__ = ("letters",)

    def __init__(self, letters: str) -> None:
        super().__init__()
        self.letters = letters

    def finished(self, machine: Machine, state: Any) -> np.dtype[Any]:
        check(type(state) is tuple and len(state) in (8, 9), "a dtype", "with such a state")
        _, order, subarray, names, fields, size, *_ = state
        check(order in ("<", ">", "|", "="), "a dtype", "with such a byte order")
        if names is not None:
            dtype = _with_fields(machine, names, fields, size, flags=state[7])
        elif subarray is not None:
            dtype = _with_shape(subarray)
        else:
            dtype = self._plain(size, state[8] if len(state) == 9 else None)
        check(dtype.itemsize <= MAX_ITEM_BYTES, "a dtype", f"of {dtype.itemsize} bytes")
        check(depth(dtype) <= MAX_DEPTH, "a dtype", f"of more than {MAX_DEPTH} levels")
        return dtype.newbyteorder(order) if order in "<>" and names is None and subarray is None else dtype

    def _plain(self, size: Any, metadata: object) -> np.dtype[Any]:
        import numpy as np

        kind = self.letters[:1]
        if kind in "SUV":
            check(type(size) is int and 0 <= size <= MAX_ITEM_BYTES, "a dtype", "of such a size")
            return np.dtype(f"{kind}{size // 4 if kind == 'U' else size}")
        if kind in "Mm":
            return np.dtype(f"{kind}8{_time_unit(metadata)}")
        return np.dtype(self.letters)


class ArrayDraft(Draft):
    """An array; all of it comes with the state."""

    __slots__ = ()

    def finished(self, machine: Machine, state: Any) -> np.ndarray[Any, Any]:
        check(type(state) is tuple and len(state) == 5, "an array", "with such a state")
        _, shape, dtype, fortran, data = state
        return _array(machine, data, dtype, shape, "F" if fortran else "C")


def _dtype(machine: Machine, args: tuple[Any, ...]) -> DtypeDraft:  # noqa: ARG001
    letters = args[0] if args else None
    check(is_dtype_string(letters), "a dtype", "of such a kind")
    assert isinstance(letters, str)
    return DtypeDraft(letters)


def _reconstruct(machine: Machine, args: tuple[Any, ...]) -> ArrayDraft:  # noqa: ARG001
    import numpy as np

    check(len(args) == 3 and args[0] is np.ndarray, "an array", "of a class of its own")
    return ArrayDraft()


def _frombuffer(machine: Machine, args: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    check(len(args) in (4, 5) and args[3] in ("C", "F"), "an array", "with such arguments")
    check(len(args) == 4 or args[4] is None, "an array", "with reordered axes")
    return _array(machine, args[0], args[1], args[2], args[3])


def _scalar(machine: Machine, args: tuple[Any, ...]) -> object:
    check(len(args) == 2, "a numpy scalar", "with such arguments")
    return _array(machine, args[1], args[0], (), "C", objects=False)[()]


BUILDERS: dict[str, Builder] = {
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray.scalar": _scalar,
    "numpy._core.numeric._frombuffer": _frombuffer,
}


def _array(
    machine: Machine, data: Any, dtype: Any, shape: Any, order: Any, *, objects: bool = True
) -> np.ndarray[Any, Any]:
    import numpy as np

    check(isinstance(dtype, np.dtype), "an array", "without a dtype")
    check(is_shape(shape) and fits(shape, 0, machine.size), "an array", "of such a shape")
    if dtype == np.dtype("O") and objects:
        return _object_array(machine, data, shape, order)
    check(not dtype.hasobject, "an array", "that mixes objects and bytes")
    size = math.prod(shape) * dtype.itemsize
    check(type(data) in (bytes, bytearray) and len(data) == size, "an array", "whose bytes do not fit its shape")
    machine.charge(size)
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, order=order)
    if size:
        array.reshape(-1, order="A").view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return array


def _object_array(machine: Machine, items: Any, shape: tuple[int, ...], order: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    fits = type(items) is list and len(items) == math.prod(shape)
    check(fits, "an array of objects", "whose number does not fit its shape")
    machine.charge(8 * len(items))
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = item
    shaped = array.reshape(shape, order=order)
    machine.containers.append(shaped)
    return shaped


def _with_fields(machine: Machine, names: Any, fields: Any, size: Any, *, flags: object) -> np.dtype[Any]:
    """numpy's constructor checks that the fields lie inside the item and that objects do not overlap."""
    import numpy as np

    given = type(names) is tuple and type(fields) is dict and type(size) is int and 0 <= size <= MAX_ITEM_BYTES
    check(given and all(type(name) is str and name in fields for name in names), "a dtype", "with such fields")
    machine.charge(len(names))
    parts = [fields[name] for name in names]
    check(all(_is_field(part) for part in parts), "a dtype", "with such fields")
    description: dict[str, Any] = {
        "names": list(names),
        "formats": [part[0] for part in parts],
        "offsets": [part[1] for part in parts],
        "itemsize": size,
    }
    if any(len(part) == 3 for part in parts):
        description["titles"] = [part[2] if len(part) == 3 else None for part in parts]
    aligned = type(flags) is int and bool(flags & 0x80)
    dtype: np.dtype[Any] = np.dtype(description, align=aligned)  # type: ignore[call-overload]
    return dtype


def _with_shape(subarray: Any) -> np.dtype[Any]:
    import numpy as np

    given = type(subarray) is tuple and len(subarray) == 2 and isinstance(subarray[0], np.dtype)
    check(given and is_shape(subarray[1]), "a dtype", "of such a shape")
    base, shape = subarray
    check(base.itemsize * math.prod(shape) <= MAX_ITEM_BYTES, "a dtype", "of such a size")
    return np.dtype((base, shape))


def _time_unit(metadata: object) -> str:
    """The unit of datetime64 and timedelta64: (dict, (b"ns", number, numerator, denominator))."""
    unit = metadata[1] if type(metadata) is tuple and len(metadata) == 2 else None
    given = type(unit) is tuple and len(unit) == 4 and type(unit[0]) is bytes and unit[0] in TIME_UNITS
    given = given and unit[2:] == (1, 1) and type(unit[1]) is int  # type: ignore[index]
    check(given and 0 < unit[1] < 1 << 31, "a dtype", "with such a time unit")  # type: ignore[index]
    assert unit is not None
    return "" if unit[0] == b"generic" else f"[{unit[1]}{unit[0].decode()}]"


def _is_field(part: object) -> bool:
    import numpy as np

    return (
        type(part) is tuple
        and len(part) in (2, 3)
        and isinstance(part[0], np.dtype)
        and type(part[1]) is int
        and (len(part) == 2 or part[2] is None or type(part[2]) is str)
    )
