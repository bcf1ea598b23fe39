"""The instructions of the pickle machine, one function each.

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

Instruction = Callable[["Machine"], None]
INSTRUCTIONS: dict[int, Instruction] = {}


def instruction(code: bytes) -> Callable[[Instruction], Instruction]:
    """Declare the function that executes an instruction."""

    def declare(function: Instruction) -> Instruction:
        INSTRUCTIONS[code[0]] = function
        return function

    return declare


STOP = pickle.STOP[0]

# -- constants and numbers -----------------------------------------------------------------------


def _constant(code: bytes, make: Callable[[], Any]) -> None:
    INSTRUCTIONS[code[0]] = lambda machine: machine.stack.append(make())


_constant(pickle.NONE, lambda: None)
_constant(pickle.NEWTRUE, lambda: True)
_constant(pickle.NEWFALSE, lambda: False)
_constant(pickle.EMPTY_TUPLE, tuple)


def _empty(code: bytes, make: Callable[[], Any]) -> None:
    def push(machine: Machine) -> None:
        container = make()
        machine.containers.append(container)
        machine.stack.append(container)

    INSTRUCTIONS[code[0]] = push


_empty(pickle.EMPTY_LIST, list)
_empty(pickle.EMPTY_DICT, dict)
_empty(pickle.EMPTY_SET, set)


@instruction(pickle.BININT1)
def _binint1(machine: Machine) -> None:
    machine.stack.append(machine.data[machine.position])
    machine.position += 1


@instruction(pickle.BININT2)
def _binint2(machine: Machine) -> None:
    machine.stack.append(machine.number(2))


@instruction(pickle.BININT)
def _binint(machine: Machine) -> None:
    machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True))


@instruction(pickle.INT)
def _int(machine: Machine) -> None:
    text = machine.line()
    machine.stack.append({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text, 0))


@instruction(pickle.LONG)
def _long(machine: Machine) -> None:
    machine.stack.append(int(machine.line().rstrip(b"L"), 0))


@instruction(pickle.LONG1)
def _long1(machine: Machine) -> None:
    machine.stack.append(int.from_bytes(machine.take(machine.number(1)), "little", signed=True))


@instruction(pickle.LONG4)
def _long4(machine: Machine) -> None:
    machine.stack.append(int.from_bytes(machine.take(machine.number(4)), "little", signed=True))


@instruction(pickle.FLOAT)
def _float(machine: Machine) -> None:
    machine.stack.append(float(machine.line()))


@instruction(pickle.BINFLOAT)
def _binfloat(machine: Machine) -> None:
    machine.stack.append(struct.unpack_from(">d", machine.data, machine.position)[0])
    machine.position += 8


# -- text and bytes ------------------------------------------------------------------------------


@instruction(pickle.SHORT_BINUNICODE)
def _short_binunicode(machine: Machine) -> None:
    start = machine.position + 1  # the most frequent instruction, so without calls
    machine.position = end = start + machine.data[start - 1]
    if end > machine.size:
        raise IndexError
    machine.stack.append(str(machine.data[start:end], "utf-8", "surrogatepass"))


@instruction(pickle.BINUNICODE)
def _binunicode(machine: Machine) -> None:
    machine.stack.append(str(machine.take(machine.number(4)), "utf-8", "surrogatepass"))


@instruction(pickle.BINUNICODE8)
def _binunicode8(machine: Machine) -> None:
    machine.stack.append(str(machine.take(machine.number(8)), "utf-8", "surrogatepass"))


@instruction(pickle.UNICODE)
def _unicode(machine: Machine) -> None:
    machine.stack.append(str(machine.line(), "raw-unicode-escape"))


@instruction(pickle.SHORT_BINBYTES)
def _short_binbytes(machine: Machine) -> None:
    machine.stack.append(machine.take(machine.number(1)))


@instruction(pickle.BINBYTES)
def _binbytes(machine: Machine) -> None:
    machine.stack.append(machine.take(machine.number(4)))


@instruction(pickle.BINBYTES8)
def _binbytes8(machine: Machine) -> None:
    machine.stack.append(machine.take(machine.number(8)))


@instruction(pickle.BYTEARRAY8)
def _bytearray8(machine: Machine) -> None:
    machine.stack.append(bytearray(machine.take(machine.number(8))))


@instruction(pickle.STRING)
def _string(machine: Machine) -> None:
    text = machine.line()
    if len(text) < 2 or text[0] != text[-1] or text[:1] not in (b'"', b"'"):
        raise UnpicklingError("a string without quotes")
    machine.stack.append(codecs.escape_decode(text[1:-1])[0].decode("ascii"))


@instruction(pickle.SHORT_BINSTRING)
def _short_binstring(machine: Machine) -> None:
    machine.stack.append(machine.take(machine.number(1)).decode("ascii"))


@instruction(pickle.BINSTRING)
def _binstring(machine: Machine) -> None:
    machine.stack.append(machine.take(machine.number(4)).decode("ascii"))


# -- containers ----------------------------------------------------------------------------------


@instruction(pickle.MARK)
def _mark(machine: Machine) -> None:
    machine.marks.append(machine.stack)
    machine.stack = []


@instruction(pickle.POP)
def _pop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


@instruction(pickle.POP_MARK)
def _pop_mark(machine: Machine) -> None:
    machine.pop_mark()


@instruction(pickle.DUP)
def _dup(machine: Machine) -> None:
    if isinstance(machine.stack[-1], Draft):
        raise UnpicklingError("an array used before it is complete")
    machine.stack.append(machine.stack[-1])


@instruction(pickle.TUPLE)
def _tuple(machine: Machine) -> None:
    machine.push_container(tuple(machine.pop_mark()))


@instruction(pickle.TUPLE1)
def _tuple1(machine: Machine) -> None:
    machine.push_container((machine.stack.pop(),))


@instruction(pickle.TUPLE2)
def _tuple2(machine: Machine) -> None:
    second, first = machine.stack.pop(), machine.stack.pop()
    machine.push_container((first, second))


@instruction(pickle.TUPLE3)
def _tuple3(machine: Machine) -> None:
    third, second, first = machine.stack.pop(), machine.stack.pop(), machine.stack.pop()
    machine.push_container((first, second, third))


@instruction(pickle.LIST)
def _list(machine: Machine) -> None:
    machine.push_container(machine.pop_mark())


@instruction(pickle.DICT)
def _dict(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.push_container({})
    _set_items(machine, items)


@instruction(pickle.FROZENSET)
def _frozenset(machine: Machine) -> None:
    items = machine.pop_mark()
    machine.check_keys(items)
    machine.push_container(frozenset(items))


@instruction(pickle.APPEND)
def _append(machine: Machine) -> None:
    item = machine.stack.pop()
    _extend(machine, [item])


@instruction(pickle.APPENDS)
def _appends(machine: Machine) -> None:
    _extend(machine, machine.pop_mark())


@instruction(pickle.SETITEM)
def _setitem(machine: Machine) -> None:
    value = machine.stack.pop()
    key = machine.stack.pop()
    _set_items(machine, [key, value])


@instruction(pickle.SETITEMS)
def _setitems(machine: Machine) -> None:
    _set_items(machine, machine.pop_mark())


@instruction(pickle.ADDITEMS)
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


# -- memo ----------------------------------------------------------------------------------------


@instruction(pickle.MEMOIZE)
def _memoize(machine: Machine) -> None:
    memo = machine.memo
    memo[len(memo)] = value = machine.stack[-1]
    if isinstance(value, Draft):
        value.memo.append(len(memo) - 1)


@instruction(pickle.PUT)
def _put(machine: Machine) -> None:
    machine.put(int(machine.line()))


@instruction(pickle.BINPUT)
def _binput(machine: Machine) -> None:
    machine.put(machine.number(1))


@instruction(pickle.LONG_BINPUT)
def _long_binput(machine: Machine) -> None:
    machine.put(machine.number(4))


@instruction(pickle.GET)
def _get(machine: Machine) -> None:
    machine.get(int(machine.line()))


@instruction(pickle.BINGET)
def _binget(machine: Machine) -> None:
    machine.get(machine.number(1))


@instruction(pickle.LONG_BINGET)
def _long_binget(machine: Machine) -> None:
    machine.get(machine.number(4))


# -- objects -------------------------------------------------------------------------------------


@instruction(pickle.GLOBAL)
def _global(machine: Machine) -> None:
    module = machine.line().decode("utf-8")
    machine.push_global(module, machine.line().decode("utf-8"))


@instruction(pickle.STACK_GLOBAL)
def _stack_global(machine: Machine) -> None:
    name = machine.stack.pop()
    module = machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise UnpicklingError("the name of a global is not a str")
    machine.push_global(module, name)


@instruction(pickle.REDUCE)
def _reduce(machine: Machine) -> None:
    args = machine.stack.pop()
    machine.build(machine.stack.pop(), args)


@instruction(pickle.NEWOBJ)
def _newobj(machine: Machine) -> None:
    args = machine.stack.pop()
    machine.build(machine.stack.pop(), args, new=True)


@instruction(pickle.NEWOBJ_EX)
def _newobj_ex(machine: Machine) -> None:
    if machine.stack.pop():
        raise UnsafePickleError("the pickle builds an object with keyword arguments, which is not plain data")
    _newobj(machine)


@instruction(pickle.OBJ)
def _obj(machine: Machine) -> None:
    thing, *args = machine.pop_mark()
    machine.build(thing, tuple(args))


@instruction(pickle.INST)
def _inst(machine: Machine) -> None:
    _global(machine)
    thing = machine.stack.pop()
    machine.build(thing, tuple(machine.pop_mark()))


@instruction(pickle.BUILD)
def _build(machine: Machine) -> None:
    machine.complete(machine.stack.pop())


# -- protocol ------------------------------------------------------------------------------------


@instruction(pickle.PROTO)
def _proto(machine: Machine) -> None:
    if (version := machine.number(1)) > pickle.HIGHEST_PROTOCOL:
        raise UnpicklingError(f"pickle protocol {version} is not known")


@instruction(pickle.FRAME)
def _frame(machine: Machine) -> None:
    machine.take(8)


def _refused(code: bytes, what: str) -> None:
    def refuse(machine: Machine) -> None:  # noqa: ARG001 an instruction takes the machine
        raise UnsafePickleError(f"the pickle uses {what}, which plain data does not need")

    INSTRUCTIONS[code[0]] = refuse


for _code in (pickle.PERSID, pickle.BINPERSID):
    _refused(_code, "a persistent id")
for _code in (pickle.EXT1, pickle.EXT2, pickle.EXT4):
    _refused(_code, "the extension registry")
for _code in (pickle.NEXT_BUFFER, pickle.READONLY_BUFFER):
    _refused(_code, "an out-of-band buffer")
