"""Which keys a pickle puts into dicts, found without building anything: for pickles that another library loads."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from typing import Any, BinaryIO

from webdataset.codecs.keys import MAX_COLLISIONS, KeyGuard
from webdataset.errors import DecodingError

# The opcodes that make numbers of any size or tuples: without many of them no keys can be made to collide.
_SUSPICIOUS = (b"\x8a", b"\x8b", b"L", b"\x85", b"\x86", b"\x87", b"t", b"I", b"F", b"G")
_MARK = object()


def check_keys(pickle: bytes, count: int = 1) -> None:
    """Refuse a pickle whose dicts have keys that were made to collide; several, if that many stand in a row.

    >>> import pickle
    >>> check_keys(pickle.dumps({"a": 1, (1, 2): 3}))
    >>> check_keys(pickle.dumps({i * (2**61 - 1): 0 for i in range(1, 1000)}))
    Traceback (most recent call last):
    webdataset.errors.DecodingError: keys that were made to collide
    """
    if sum(pickle.count(opcode) for opcode in _SUSPICIOUS) > MAX_COLLISIONS:
        stream = io.BytesIO(pickle)
        for _ in range(count):
            _Walk().run(stream)


class _Unknown:
    """A value that nobody needs to know: it is no number and no tuple, or its keys are looked at by themselves."""


def _call_result(function: object, arguments: Any) -> object:
    """Complex numbers, too, are made to collide; the result of any other call is unknown."""
    is_complex = isinstance(function, str) and function.endswith(" complex") and isinstance(arguments, tuple)
    if is_complex and all(isinstance(number, (int, float)) for number in arguments):
        return complex(*arguments)
    return _Unknown()


class _Walk:
    """The stack of a pickle's instructions, with numbers, texts and tuples on it and everything else unknown."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.guard = KeyGuard()
        self.alive: list[Any] = []  # what the guard tells apart by its address
        self.special: dict[str, Callable[[Any], None]] = {
            "TUPLE": lambda _: self._push(tuple(self._since_mark())),
            "TUPLE1": lambda _: self._push(tuple(self._pop(1))),
            "TUPLE2": lambda _: self._push(tuple(self._pop(2))),
            "TUPLE3": lambda _: self._push(tuple(self._pop(3))),
            "EMPTY_TUPLE": lambda _: self._push(()),
            "FROZENSET": lambda _: self._push_container(self._since_mark()),
            "SETITEM": lambda _: self._set(self._pop(2)),
            "SETITEMS": lambda _: self._set(self._since_mark()),
            "DICT": lambda _: self._push_container(self._since_mark()[::2]),
            "ADDITEMS": lambda _: self._add(self._since_mark()),
            "REDUCE": lambda _: self._push(_call_result(*self._pop(2))),
            "MEMOIZE": lambda _: self._keep(len(self.memo)),
            "DUP": lambda _: self._push(self.stack[-1]),
        }
        for name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.special[name] = self._keep
        for name in ("GET", "BINGET", "LONG_BINGET"):
            self.special[name] = lambda number: self._push(self.memo[number])

    def run(self, pickle: BinaryIO) -> None:
        try:
            for opcode, argument, _ in pickletools.genops(pickle):
                action = self.special.get(opcode.name)
                if action is not None:
                    action(argument)
                else:
                    self._other(opcode, argument)
        except (IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise DecodingError(f"this is no pickle: {error}") from None

    def _other(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        """The effect on the stack that pickletools describes."""
        if pickletools.markobject in opcode.stack_before:
            self._since_mark()
            self._pop(opcode.stack_before.index(pickletools.markobject))
        else:
            self._pop(len(opcode.stack_before))
        for made in opcode.stack_after:
            if made is pickletools.markobject:
                self._push(_MARK)
            else:
                self._push(argument if isinstance(argument, (int, float, str, bytes)) else _Unknown())

    def _push(self, value: object) -> None:
        self.stack.append(value)

    def _pop(self, count: int) -> list[Any]:
        if not count:
            return []
        if len(self.stack) < count:
            raise IndexError("its stack is empty")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def _since_mark(self) -> list[Any]:
        place = len(self.stack) - 1
        while self.stack[place] is not _MARK:
            place -= 1
            if place < 0:
                raise IndexError("it has no mark")
        taken = self.stack[place + 1 :]
        del self.stack[place:]
        return taken

    def _keep(self, number: int) -> None:
        self.memo[number] = self.stack[-1]

    def _set(self, pairs: list[Any]) -> None:
        self._add(pairs[::2])

    def _add(self, keys: list[Any]) -> None:
        target = self.stack[-1]
        self.alive.append(target)
        self.guard.check(self._hashable(keys), target)

    def _push_container(self, keys: list[Any]) -> None:
        self._push(_Unknown())
        self._add(keys)

    @staticmethod
    def _hashable(keys: list[Any]) -> list[Any]:
        return [key for key in keys if not isinstance(key, _Unknown)]
