"""A user's function as bytes that another process or machine can load."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

from webdataset.base.packages import imported
from webdataset.errors import WebDatasetError


class FunctionError(WebDatasetError, TypeError):
    """A function that cannot be sent to other processes."""


def dumped(function: Callable[..., Any]) -> bytes:
    """Return a function as bytes: by value if cloudpickle is there, else by name.

    >>> loaded(dumped(len))("abc")
    3
    """
    if not callable(function):
        raise FunctionError(f"expected a function, got {type(function).__name__}")
    name = getattr(function, "__qualname__", type(function).__name__)
    by_value = _cloudpickle()
    if by_value is None and (getattr(function, "__module__", "") == "__main__" or "<" in name):
        hint = "pip install cloudpickle, or put the function into a module"
        raise FunctionError(f"the function {name!r} is known in this process only", hint=hint)
    try:
        data: bytes = (by_value or pickle).dumps(function)
    except Exception as error:
        hint = "it refers to something that exists in this process only; make that inside the function"
        reason = " ".join(str(error).split())
        raise FunctionError(f"the function {name!r} cannot be sent to other processes: {reason}", hint=hint) from error
    return data


def loaded(data: bytes) -> Callable[..., Any]:
    """Return the function again; a plan is a program, so nothing in it is refused."""
    try:
        function: Callable[..., Any] = pickle.loads(data)  # noqa: S301 - the user's own code
    except ImportError as error:
        hint = "install it where tasks run, or set PYTHONPATH with environment="
        raise FunctionError(f"the function needs a module that is not here: {error}", hint=hint) from error
    return function


def _cloudpickle() -> ModuleType | None:
    for name in ("cloudpickle", "ray.cloudpickle"):
        try:
            return imported(name)
        except ImportError:
            continue
    return None
