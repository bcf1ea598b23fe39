"""Datasets that torch takes for its own IterableDataset, without our importing torch.

Programs ask with isinstance(), which looks at `__class__` when the type does not tell. So once the program has imported
torch, before or after us, `__class__` is a class that is both: the dataset's own and torch's.
"""

from __future__ import annotations

import copyreg
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, Self, SupportsIndex

real_class = object.__dict__["__class__"]


class TorchIterable:
    """Base class of our datasets: an iterable that torch takes for an IterableDataset."""

    _torch_names: tuple[str, ...] = ("IterableDataset",)
    """The classes of torch.utils.data that it is taken for."""

    @property
    def __class__(self) -> type[Self]:
        kind: Any = type(self)
        data = sys.modules.get("torch.utils.data")
        classes = tuple(getattr(data, name) for name in kind._torch_names if hasattr(data, name))
        return _also_torch(kind, classes) if classes else kind

    @__class__.setter
    def __class__(self, kind: type) -> None:
        real_class.__set__(self, kind)

    def __add__(self, other: object) -> Any:
        """One dataset after the other, as torch's ChainDataset."""
        from torch.utils.data import ChainDataset

        return ChainDataset([self, other])

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """As usual, but remade by a function of ours: pickle's own insists on the class that `__class__` says."""
        made = super().__reduce_ex__(max(int(protocol), 2))
        newobj: object = getattr(copyreg, "__newobj__")  # noqa: B009 - spelled out, it would be a private name of the class
        return (_remade, *made[1:]) if isinstance(made, tuple) and made[0] is newobj else made


class NoLengthError(TypeError, AttributeError):
    """A dataset has no `len()`: a TypeError to those who ask for it, and to hasattr() there is no such method."""


class LengthIfKnown:
    """`__len__` of datasets that may not know it: a method if `known` says so, else it is not there.

    Python's own message for a class without the method could not say what to do about it.
    """

    def __init__(self, known: Callable[[Any], Callable[[], int] | None] = lambda _: None) -> None:
        self.known = known

    def __get__(self, instance: object, owner: type) -> Callable[[], int]:
        found = None if instance is None else self.known(instance)
        if found is None:
            raise NoLengthError(
                f"a streamed {owner.__name__} has no len(): its samples are counted while they are read; "
                "WebDataset(..., exact=True) knows it, and with_length(n) declares one"
            )
        return found


@functools.cache
def _also_torch(kind: type, classes: tuple[Any, ...]) -> type:
    """The class as a subclass of torch's; the class itself where it is one, or where metaclasses do not go together."""
    missing = [one for one in classes if one not in kind.__mro__]
    if not missing:
        return kind
    for one in missing:
        if hasattr(one, "register"):  # issubclass() is asked about the class itself
            one.register(kind)
    body = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    try:
        both = types.new_class(
            kind.__name__, (_Unannounced, kind, *missing), exec_body=lambda scope: scope.update(body)
        )
    except TypeError:
        return kind
    # whoever says `self.__class__(...)` means the class that has a name
    both.__new__ = lambda _, *args, **kw: kind(*args, **kw)  # type: ignore[method-assign, assignment]
    return both


class _Unannounced:
    """Spares a program's `__init_subclass__` a subclass that it did not define."""

    def __init_subclass__(cls, **kw: object) -> None:
        pass


def _remade(kind: type, *args: object) -> object:
    return kind.__new__(kind, *args)
