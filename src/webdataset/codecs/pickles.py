"""Pickles of plain data, arrays and tensors, read without running anything.

>>> loads(dumps({"a": [1, 2.5, None]}))
{'a': [1, 2.5, None]}
>>> loads(b"cos\\nsystem\\n(S'true'\\ntR.")
Traceback (most recent call last):
webdataset.errors.UnsafePickleError: the pickle asks for os.system, which is not plain data; ...
"""

from __future__ import annotations

import pickle
from typing import Any, TypeVar

from webdataset.base.settings import settings
from webdataset.errors import UnsafePickleError

T = TypeVar("T")


def dumps(value: object) -> bytes:
    """A value as a pickle."""
    return pickle.dumps(value)


def loads(data: bytes, *, allow_pickle: bool | None = None) -> Any:
    """The value of a pickle: plain data, numpy arrays, torch tensors and registered classes only.

    With allow_pickle=True (or `WDS_ALLOW_PICKLE=1`) any object, which means that the data can run any code.
    """
    if settings.secure:
        raise UnsafePickleError("pickles are refused in secure mode (WDS_SECURE, enforce_security)")
    if settings.allow_pickle if allow_pickle is None else allow_pickle:
        return pickle.loads(data)  # noqa: S301 the user's word
    from .pickle.machine import Machine

    return Machine(data).run()


def loads_trusted(data: bytes) -> Any:
    """The value of a pickle, any object; refused in secure mode."""
    return loads(data, allow_pickle=True)


def register_safe_global(cls: T, name: str | None = None) -> T:
    """Allow pickles to build instances of a class (or call a function); usable as a decorator.

    Only register what is harmless whatever arguments and state it is given. `name` is "module.name" as the
    pickle has it, if that differs.

    >>> import fractions
    >>> register_safe_global(fractions.Fraction)
    <class 'fractions.Fraction'>
    >>> loads(dumps(fractions.Fraction(1, 3)))
    Fraction(1, 3)
    """
    from .pickle.objects import registered

    named: Any = cls
    registered[name or f"{named.__module__}.{named.__qualname__}"] = cls
    return cls
