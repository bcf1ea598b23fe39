"""What a pickle may build besides literals: a closed list of names, each with a function that checks its arguments."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webdataset.errors import UnsafePickleError

from .builders import SWITCHES, Builder, Draft, Name, check

if TYPE_CHECKING:
    from .machine import Machine

# Python 2's and numpy 1's names for the same things
RENAMED_MODULES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "numpy.core.multiarray": "numpy._core.multiarray",
    "numpy.core.numeric": "numpy._core.numeric",
}

RENAMED = {"builtins.xrange": "builtins.range", "builtins.long": "builtins.int", "builtins.unicode": "builtins.str"}

registered: dict[str, Any] = {}


def find(module: str, name: str) -> tuple[Any, Builder | None]:
    """The object for a global on the stack, and its builder (None: it is only a value)."""
    full = f"{RENAMED_MODULES.get(module, module)}.{name}"
    full = RENAMED.get(full, full)
    given = registered.get(f"{module}.{name}", registered.get(full))
    if given is not None:
        return given, _call_registered(given)
    if full in VALUES:
        return VALUES[full], BUILDERS.get(full)
    if full in BUILDERS:
        return Name(full), BUILDERS[full]
    found = _find_in_libraries(full)
    if found is None:
        raise UnsafePickleError(f"the pickle asks for {full:.200}, which is not plain data", hint=SWITCHES)
    return found


def named(thing: object) -> str:
    """A short name for messages; never a repr, which data could make endless."""
    if isinstance(thing, Name):
        return thing.name
    if isinstance(thing, type):
        return f"{thing.__module__}.{thing.__qualname__}"
    return f"a {type(thing).__name__}"


# -- registered classes ---------------------------------------------------------------------------


def is_registered(thing: object) -> bool:
    """Whether the program itself allowed this class."""
    return isinstance(thing, type) and any(thing is given for given in registered.values())


def new_registered(cls: Any, args: tuple[Any, ...]) -> object:
    """A new instance, as pickle makes it: without __init__."""
    return cls.__new__(cls, *args)


def set_state(thing: object, state: Any) -> None:
    """Give an instance of a registered class its state, as pickle does it."""
    if (setstate := getattr(thing, "__setstate__", None)) is not None:
        setstate(state)
        return
    attributes, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    for part in (attributes, slots):
        for name, value in (part or {}).items():
            check(type(name) is str and not name.startswith("__"), "an attribute", "with such a name")
            object.__setattr__(thing, name, value)


def _call_registered(given: Callable[..., Any]) -> Builder:
    return lambda machine, args: given(*args)  # noqa: ARG005 a builder takes the machine


# -- plain Python ---------------------------------------------------------------------------------


def _set(machine: Machine, args: tuple[Any, ...]) -> set[Any]:
    return set(_keys(machine, args))


def _frozenset(machine: Machine, args: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(_keys(machine, args))


def _empty_bytes(machine: Machine, args: tuple[Any, ...]) -> bytes:  # noqa: ARG001
    check(args == (), "bytes", "with arguments")
    return b""


def _bytearray(machine: Machine, args: tuple[Any, ...]) -> bytearray:
    if not args:
        return bytearray()
    if len(args) == 2:
        return bytearray(_latin1(machine, args))
    check(len(args) == 1 and type(args[0]) is bytes, "a bytearray", "of other things than bytes")
    machine.charge(len(args[0]))
    return bytearray(args[0])


def _latin1(machine: Machine, args: tuple[Any, ...]) -> bytes:
    """How protocols before 3 write bytes: a text and its encoding."""
    check(len(args) == 2 and type(args[0]) is str and args[1] in ("latin1", "latin-1"), "bytes", "in another encoding")
    machine.charge(len(args[0]))
    return bytes(args[0], "latin-1")


def _complex(machine: Machine, args: tuple[Any, ...]) -> complex:  # noqa: ARG001
    check(len(args) == 2 and all(type(part) in (float, int) for part in args), "a complex number", "of such parts")
    return complex(*args)


def _range(machine: Machine, args: tuple[Any, ...]) -> range:  # noqa: ARG001
    check(1 <= len(args) <= 3 and all(type(part) is int for part in args), "a range", "of such parts")
    return range(*args)


def _slice(machine: Machine, args: tuple[Any, ...]) -> slice:  # noqa: ARG001
    check(len(args) == 3 and all(part is None or type(part) is int for part in args), "a slice", "of such parts")
    return slice(*args)


def _ordered_dict(machine: Machine, args: tuple[Any, ...]) -> OrderedDict[Any, Any]:
    result: OrderedDict[Any, Any] = OrderedDict()
    for pair in _items(machine, args):
        check(type(pair) in (list, tuple) and len(pair) == 2, "an OrderedDict", "of other things than pairs")
        machine.check_keys([pair[0]], result)
        result[pair[0]] = pair[1]
    return result


def _defaultdict(machine: Machine, args: tuple[Any, ...]) -> defaultdict[Any, Any]:  # noqa: ARG001
    factory = args[0] if args else None
    check(len(args) <= 1 and (factory is None or factory in FACTORIES), "a defaultdict", "with such a factory")
    return defaultdict(factory)


def _deque(machine: Machine, args: tuple[Any, ...]) -> deque[Any]:
    maxlen = args[1] if len(args) == 2 else None
    check(len(args) <= 2 and (maxlen is None or type(maxlen) is int), "a deque", "with such arguments")
    return deque(_items(machine, args[:1]), maxlen)


def _counter(machine: Machine, args: tuple[Any, ...]) -> Counter[Any]:
    check(len(args) <= 1 and all(type(arg) is dict for arg in args), "a Counter", "of another thing than a dict")
    result: Counter[Any] = Counter()
    for counts in args:
        machine.charge(len(counts))
        dict.update(result, counts)
    return result


def _date(machine: Machine, args: tuple[Any, ...]) -> datetime.date:  # noqa: ARG001
    check(len(args) == 1 and _is_packed(args[0], 4), "a date", "of such parts")
    return _day(args[0])


def _time(machine: Machine, args: tuple[Any, ...]) -> datetime.time:  # noqa: ARG001
    check(1 <= len(args) <= 2 and _is_packed(args[0], 6) and _zones(args[1:]), "a time", "of such parts")
    packed = args[0]
    return _time_of_day(packed[0] & 0x7F, packed[1:], packed[0] >> 7, *args[1:])


def _datetime(machine: Machine, args: tuple[Any, ...]) -> datetime.datetime:  # noqa: ARG001
    check(1 <= len(args) <= 2 and _is_packed(args[0], 10) and _zones(args[1:]), "a datetime", "of such parts")
    packed = args[0]
    day = _day(bytes([*packed[:2], packed[2] & 0x7F, packed[3]]))
    return datetime.datetime.combine(day, _time_of_day(packed[4], packed[5:], packed[2] >> 7, *args[1:]))


def _day(packed: bytes) -> datetime.date:
    """Year, month and day, through the constructor that checks them; the one for pickles believes its bytes."""
    return datetime.date(packed[0] << 8 | packed[1], packed[2], packed[3])


def _time_of_day(hour: int, packed: bytes, fold: int, zone: datetime.tzinfo | None = None) -> datetime.time:
    microsecond = int.from_bytes(packed[2:5], "big")
    return datetime.time(hour, packed[0], packed[1], microsecond, zone, fold=fold)


def _timedelta(machine: Machine, args: tuple[Any, ...]) -> datetime.timedelta:  # noqa: ARG001
    check(len(args) <= 3 and all(type(part) is int for part in args), "a timedelta", "of such parts")
    return datetime.timedelta(*args)


def _timezone(machine: Machine, args: tuple[Any, ...]) -> datetime.timezone:  # noqa: ARG001
    offset = type(args[0]) is datetime.timedelta if args else False
    check(offset and len(args) <= 2 and all(type(name) is str for name in args[1:]), "a timezone", "of such parts")
    return datetime.timezone(*args)


def _decimal(machine: Machine, args: tuple[Any, ...]) -> decimal.Decimal:
    check(len(args) == 1 and type(args[0]) is str, "a Decimal", "of another thing than a str")
    machine.charge(len(args[0]))
    return decimal.Decimal(args[0])


class _UUIDDraft(Draft):
    __slots__ = ()

    def finished(self, machine: Machine, state: object) -> uuid.UUID:  # noqa: ARG002
        number = state.get("int") if type(state) is dict and len(state) == 1 else None
        check(type(number) is int, "a UUID", "with such a state")
        return uuid.UUID(int=number)


def _uuid(machine: Machine, args: tuple[Any, ...]) -> _UUIDDraft:  # noqa: ARG001
    check(args == (), "a UUID", "with arguments")
    return _UUIDDraft()


def _reconstructor(machine: Machine, args: tuple[Any, ...]) -> object:
    """How protocols before 2 make an instance without __init__: class, base, the base's state."""
    check(len(args) == 3 and args[1] is object and args[2] is None, "an object", "with such a base")
    if args[0] is uuid.UUID:
        return _uuid(machine, ())
    if not is_registered(args[0]):
        raise UnsafePickleError(f"the pickle builds {named(args[0])}, which is not plain data", hint=SWITCHES)
    return new_registered(args[0], ())


# names that are values by themselves ({"type": int}); BUILDERS says which of them may be called
VALUES: dict[str, Any] = {
    **{f"builtins.{cls.__name__}": cls for cls in (int, float, bool, str, list, tuple, dict, object)},
    **{f"builtins.{cls.__name__}": cls for cls in (set, frozenset, bytes, bytearray, complex, range, slice)},
    **{f"collections.{cls.__name__}": cls for cls in (OrderedDict, defaultdict, deque, Counter)},
    **{f"datetime.{name}": getattr(datetime, name) for name in ("date", "time", "datetime", "timedelta", "timezone")},
    "decimal.Decimal": decimal.Decimal,
    "uuid.UUID": uuid.UUID,
}

FACTORIES = (int, float, bool, str, bytes, list, tuple, dict, set)

BUILDERS: dict[str, Builder] = {
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
    "builtins.bytes": _empty_bytes,
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "builtins.range": _range,
    "builtins.slice": _slice,
    "_codecs.encode": _latin1,
    "copyreg._reconstructor": _reconstructor,
    "collections.OrderedDict": _ordered_dict,
    "collections.defaultdict": _defaultdict,
    "collections.deque": _deque,
    "collections.Counter": _counter,
    "datetime.date": _date,
    "datetime.time": _time,
    "datetime.datetime": _datetime,
    "datetime.timedelta": _timedelta,
    "datetime.timezone": _timezone,
    "decimal.Decimal": _decimal,
    "uuid.UUID": _uuid,
}


def _find_in_libraries(full: str) -> tuple[Any, Builder | None] | None:
    library = full.partition(".")[0]
    if library == "numpy":
        from .arrays import find_numpy

        return find_numpy(full)
    if library == "torch":
        from .tensors import find_torch

        return find_torch(full)
    return None


def _items(machine: Machine, args: tuple[Any, ...]) -> list[Any]:
    check(len(args) <= 1 and all(type(arg) in (list, tuple) for arg in args), "a container", "of another thing")
    items = list(args[0]) if args else []
    machine.charge(8 * len(items))
    return items


def _keys(machine: Machine, args: tuple[Any, ...]) -> list[Any]:
    keys = _items(machine, args)
    machine.check_keys(keys)
    return keys


def _is_packed(value: object, size: int) -> bool:
    return type(value) is bytes and len(value) == size


def _zones(values: tuple[Any, ...]) -> bool:
    return all(value is None or type(value) is datetime.timezone for value in values)
