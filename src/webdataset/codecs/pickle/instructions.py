"""The instructions of the pickle machine: a table, and functions for those that take more than a line.

What builds objects is left to `Machine.build` and `Machine.complete`; everything here makes literals, moves them
on the stack and puts them into containers.
"""

from __future__ import annotations

import codecs
import pickle
import struct
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webdataset.errors import UnsafePickleError

from .builders import Draft
from .objects import is_registered

if TYPE_CHECKING:
    from .machine import Machine

UnpicklingError = pickle.UnpicklingError

Instruction = Callable[["Machine"], object]


def _int(machine: Machine) -> None:
    text = machine.line()
    machine.stack.append({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text, 0))


def _binint1(machine: Machine) -> None:
    machine.stack.append(machine.data[machine.position])
    machine.position += 1


def _binfloat(machine: Machine) -> None:
    machine.stack.append(struct.unpack_from(">d", machine.data, machine.position)[0])
    machine.position += 8


def _short_binunicode(machine: Machine) -> None:
    start = machine.position + 1  # the most frequent instruction, so without calls
    machine.position = end = start + machine.data[start - 1]
    if end > machine.size:
        raise IndexError
    machine.stack.append(str(machine.data[start:end], "utf-8", "surrogatepass"))


def _string(machine: Machine) -> None:
    text = machine.line()
    if len(text) < 2 or text[0] != text[-1] or text[:1] not in (b'"', b"'"):
        raise UnpicklingError("a string without quotes")
    machine.stack.append(codecs.escape_decode(text[1:-1])[0].decode("ascii"))


def _signed(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _text(data: bytes) -> str:
    return str(data, "utf-8", "surrogatepass")


# -- containers ----------------------------------------------------------------------------------


def _mark(machine: Machine) -> None:
    machine.marks.append(machine.stack)
    machine.stack = []


def _pop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


def _dup(machine: Machine) -> None:
    if isinstance(machine.stack[-1], Draft):
        raise UnpicklingError("an array used before it is complete")
    machine.stack.append(machine.stack[-1])


def _short_tuple(size: int) -> Instruction:
    def push(machine: Machine) -> None:
        stack = machine.stack
        if len(stack) < size:
            raise IndexError
        items = tuple(stack[-size:])
        del stack[-size:]
        machine.push_container(items)

    return push


def _dict(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.push_container({})
    _set_items(machine, items)


def _frozenset(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.check_keys(items)
    machine.push_container(frozenset(items))


def _setitem(machine: Machine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    _set_items(machine, [key, value])


def _additems(machine: Machine) -> None:
    items = machine.pop_mark()
    target = machine.stack[-1]
    if type(target) is not set:
        raise UnpicklingError(f"items for a {type(target).__name__}, which is no set")
    machine.check_keys(items, target)
    target.update(items)


def _extend(machine: Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) not in (list, deque) and not is_registered(type(target)):
        raise UnpicklingError(f"items for a {type(target).__name__}, which is no list")
    target.extend(items)


def _set_items(machine: Machine, items: list[Any]) -> None:
    target = machine.stack[-1]
    if type(target) not in (dict, OrderedDict, defaultdict) and not is_registered(type(target)):
        raise UnpicklingError(f"items for a {type(target).__name__}, which is no dict")
    if len(items) % 2:
        raise UnpicklingError("a key without a value")
    keys = items[0::2]
    machine.check_keys(keys, target)
    for key, value in zip(keys, items[1::2], strict=True):
        target[key] = value


# -- memo and objects ----------------------------------------------------------------------------


def _memoize(machine: Machine) -> None:
    memo = machine.memo
    memo[len(memo)] = value = machine.stack[-1]
    if isinstance(value, Draft):
        value.memo.append(len(memo) - 1)


def _global(machine: Machine) -> None:
    module = machine.line().decode("utf-8")
    machine.push_global(module, machine.line().decode("utf-8"))


def _stack_global(machine: Machine) -> None:
    name = machine.stack.pop()
    module = machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise UnpicklingError("the name of a global is not a str")
    machine.push_global(module, name)


def _reduce(machine: Machine, *, new: bool = False) -> None:
    args = machine.stack.pop()
    machine.build(machine.stack.pop(), args, new=new)


def _newobj_ex(machine: Machine) -> None:
    if machine.stack.pop():
        raise UnsafePickleError("the pickle builds an object with keyword arguments, which is not plain data")
    _reduce(machine, new=True)


def _obj(machine: Machine) -> None:
    thing, *args = machine.pop_mark()
    machine.build(thing, tuple(args))


def _inst(machine: Machine) -> None:
    _global(machine)
    thing = machine.stack.pop()
    machine.build(thing, tuple(machine.pop_mark()))


def _proto(machine: Machine) -> None:
    if (version := machine.number(1)) > pickle.HIGHEST_PROTOCOL:
        raise UnpicklingError(f"pickle protocol {version} is not known")


def _refuse(what: str) -> Instruction:
    def refuse(machine: Machine) -> None:  # noqa: ARG001 - an instruction takes the machine
        raise UnsafePickleError(f"the pickle uses {what}, which plain data does not need")

    return refuse


_TABLE: dict[bytes, Instruction] = {
    # constants and numbers
    pickle.NONE: lambda machine: machine.stack.append(None),
    pickle.NEWTRUE: lambda machine: machine.stack.append(True),
    pickle.NEWFALSE: lambda machine: machine.stack.append(False),
    pickle.BININT1: _binint1,
    pickle.BININT2: lambda machine: machine.stack.append(machine.number(2)),
    pickle.BININT: lambda machine: machine.stack.append(_signed(machine.take(4))),
    pickle.INT: _int,
    pickle.LONG: lambda machine: machine.stack.append(int(machine.line().rstrip(b"L"), 0)),
    pickle.LONG1: lambda machine: machine.stack.append(_signed(machine.take(machine.number(1)))),
    pickle.LONG4: lambda machine: machine.stack.append(_signed(machine.take(machine.number(4)))),
    pickle.FLOAT: lambda machine: machine.stack.append(float(machine.line())),
    pickle.BINFLOAT: _binfloat,
    # text and bytes
    pickle.SHORT_BINUNICODE: _short_binunicode,
    pickle.BINUNICODE: lambda machine: machine.stack.append(_text(machine.take(machine.number(4)))),
    pickle.BINUNICODE8: lambda machine: machine.stack.append(_text(machine.take(machine.number(8)))),
    pickle.UNICODE: lambda machine: machine.stack.append(str(machine.line(), "raw-unicode-escape")),
    pickle.SHORT_BINBYTES: lambda machine: machine.stack.append(machine.take(machine.number(1))),
    pickle.BINBYTES: lambda machine: machine.stack.append(machine.take(machine.number(4))),
    pickle.BINBYTES8: lambda machine: machine.stack.append(machine.take(machine.number(8))),
    pickle.BYTEARRAY8: lambda machine: machine.stack.append(bytearray(machine.take(machine.number(8)))),
    pickle.STRING: _string,
    pickle.SHORT_BINSTRING: lambda machine: machine.stack.append(machine.take(machine.number(1)).decode("ascii")),
    pickle.BINSTRING: lambda machine: machine.stack.append(machine.take(machine.number(4)).decode("ascii")),
    # containers
    pickle.MARK: _mark,
    pickle.POP: _pop,
    pickle.POP_MARK: lambda machine: machine.pop_mark(),
    pickle.DUP: _dup,
    pickle.EMPTY_TUPLE: lambda machine: machine.stack.append(()),
    pickle.EMPTY_LIST: lambda machine: machine.push_container([]),
    pickle.EMPTY_DICT: lambda machine: machine.push_container({}),
    pickle.EMPTY_SET: lambda machine: machine.push_container(set()),
    pickle.TUPLE: lambda machine: machine.push_container(tuple(machine.pop_mark())),
    pickle.TUPLE1: _short_tuple(1),
    pickle.TUPLE2: _short_tuple(2),
    pickle.TUPLE3: _short_tuple(3),
    pickle.LIST: lambda machine: machine.push_container(machine.pop_mark()),
    pickle.DICT: _dict,
    pickle.FROZENSET: _frozenset,
    pickle.APPEND: lambda machine: _extend(machine, [machine.stack.pop()]),
    pickle.APPENDS: lambda machine: _extend(machine, machine.pop_mark()),
    pickle.SETITEM: _setitem,
    pickle.SETITEMS: lambda machine: _set_items(machine, machine.pop_mark()),
    pickle.ADDITEMS: _additems,
    # memo
    pickle.MEMOIZE: _memoize,
    pickle.PUT: lambda machine: machine.put(int(machine.line())),
    pickle.BINPUT: lambda machine: machine.put(machine.number(1)),
    pickle.LONG_BINPUT: lambda machine: machine.put(machine.number(4)),
    pickle.GET: lambda machine: machine.get(int(machine.line())),
    pickle.BINGET: lambda machine: machine.get(machine.number(1)),
    pickle.LONG_BINGET: lambda machine: machine.get(machine.number(4)),
    # objects
    pickle.GLOBAL: _global,
    pickle.STACK_GLOBAL: _stack_global,
    pickle.REDUCE: _reduce,
    pickle.NEWOBJ: lambda machine: _reduce(machine, new=True),
    pickle.NEWOBJ_EX: _newobj_ex,
    pickle.OBJ: _obj,
    pickle.INST: _inst,
    pickle.BUILD: lambda machine: machine.complete(machine.stack.pop()),
    # protocol
    pickle.PROTO: _proto,
    pickle.FRAME: lambda machine: machine.take(8),
    **dict.fromkeys((pickle.PERSID, pickle.BINPERSID), _refuse("a persistent id")),
    **dict.fromkeys((pickle.EXT1, pickle.EXT2, pickle.EXT4), _refuse("the extension registry")),
    **dict.fromkeys((pickle.NEXT_BUFFER, pickle.READONLY_BUFFER), _refuse("an out-of-band buffer")),
}
INSTRUCTIONS = {code[0]: instruction for code, instruction in _TABLE.items()}
STOP = pickle.STOP[0]
