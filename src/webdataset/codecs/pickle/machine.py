"""The pickle machine: executes a pickle's instructions without ever calling what the pickle names.

Python's own unpickler imports and calls whatever a pickle asks for, and sets any attribute. This one knows
a closed list of things to build (`objects`), checks every argument, never sets an attribute on
anything but instances of registered classes, and bounds the memory and time that data can ask for.
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

from webdataset.codecs.keys import SEEDED_HASHES, KeyGuard
from webdataset.errors import DecodingError, UnsafePickleError

from .builders import SWITCHES, Builder, Draft
from .depth import NESTING, check_depth, dismantle
from .instructions import INSTRUCTIONS, STOP
from .objects import find, is_registered, named, new_registered, set_state

UnpicklingError = pickle.UnpicklingError

SPARE_BUDGET = 1 << 20


class Machine:
    """One pickle being read."""

    __slots__ = (
        "budget", "builders", "containers", "data", "drafts", "keys", "marks", "memo", "position", "size", "stack",
    )  # fmt: skip

    def __init__(self, data: bytes) -> None:
        self.data = bytes(data)
        self.size = len(self.data)
        self.position = 0
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.builders: dict[
            int, tuple[Any, Builder]
        ] = {}  # by identity; the object is kept so that its id stays its own
        self.drafts = 0
        self.containers: list[Any] = []  # all that were made, so that none is freed before their depth is known
        self.keys = KeyGuard(self.charge)
        # what is built out of a pickle is about as large as the pickle; references must not multiply it
        self.budget = 8 * len(self.data) + SPARE_BUDGET

    def run(self) -> Any:
        """Execute up to the STOP instruction and return the value."""
        try:
            value = self._execute()
            check_depth(self.containers)
        except BaseException:
            dismantle(self.containers)
            raise
        finally:
            self.keys.charge = None  # or this keeps itself and the value until the garbage is collected
        return value

    def _execute(self) -> Any:
        data, instructions = self.data, INSTRUCTIONS
        try:
            while (code := data[self.position]) != STOP:
                self.position += 1
                instructions[code](self)
            value = self.stack.pop()
        except (IndexError, struct.error):
            raise UnpicklingError(f"the pickle is cut or damaged near byte {self.position}") from None
        except KeyError as exn:
            raise UnpicklingError(f"the pickle is damaged near byte {self.position}: {exn}") from None
        except (ValueError, TypeError, OverflowError) as exn:  # of what a damaged pickle tries to build
            if isinstance(exn, UnpicklingError):
                raise
            raise UnpicklingError(f"the pickle is damaged near byte {self.position}: {exn}") from exn
        if self.drafts:
            raise UnpicklingError("the pickle ends before an array is complete")
        return value

    def charge(self, amount: int) -> None:
        """Count what is built (bytes, items) against what the pickle's size can account for."""
        self.budget -= amount
        if self.budget < 0:
            raise UnpicklingError(f"a pickle of {len(self.data)} bytes would expand too far")

    def check_keys(self, keys: list[Any], target: object = None) -> None:
        """Refuse keys that would take for ever to hash, or that were made to collide."""
        if SEEDED_HASHES.issuperset(map(type, keys)):
            return
        try:
            self.keys.check(keys, target)
        except DecodingError as exn:
            raise UnpicklingError(f"the pickle has {exn}") from None

    # -- bytes -----------------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        start = self.position
        self.position = end = start + size
        if size < 0 or end > self.size:
            raise IndexError
        return self.data[start:end]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.position)
        if end < 0:
            raise IndexError
        start, self.position = self.position, end + 1
        return self.data[start:end]

    # -- stack and memo --------------------------------------------------------------------------

    def pop_mark(self) -> list[Any]:
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def put(self, index: int) -> None:
        value = self.stack[-1]
        if isinstance(value, Draft):
            value.memo.append(index)
        self.memo[index] = value

    def get(self, index: int) -> None:
        value = self.memo[index]
        if isinstance(value, Draft):
            raise UnpicklingError("an array that contains itself")
        self.stack.append(value)

    def push_container(self, container: object) -> None:
        self.containers.append(container)
        self.stack.append(container)

    # -- objects ---------------------------------------------------------------------------------

    def push_global(self, module: str, name: str) -> None:
        found, build = find(module, name)
        if build is not None:
            self.builders[id(found)] = found, build
        self.stack.append(found)

    def build(self, thing: object, args: object, *, new: bool = False) -> None:
        """Push what `thing(*args)` would return, if it is on the list."""
        _, build = self.builders.get(id(thing), (None, None))
        if build is None or type(args) is not tuple:
            raise UnsafePickleError(f"the pickle calls {named(thing)}, which is not plain data", hint=SWITCHES)
        value = new_registered(thing, args) if new and is_registered(thing) else build(self, args)
        if isinstance(value, Draft):
            self.drafts += 1
        elif isinstance(value, NESTING):
            self.containers.append(value)
        self.stack.append(value)

    def complete(self, state: object) -> None:
        """Give the object on top of the stack its state."""
        thing = self.stack[-1]
        if isinstance(thing, Draft):
            value = self.stack[-1] = thing.finished(self, state)
            self.memo.update(dict.fromkeys(thing.memo, value))
            self.drafts -= 1
        elif is_registered(type(thing)):
            set_state(thing, state)
        else:
            raise UnsafePickleError(f"the pickle sets the state of {named(thing)}, not plain data", hint=SWITCHES)
