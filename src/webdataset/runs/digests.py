"""Digests of code: results are kept as long as the code that made them is the same."""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

PLAIN = (str, bytes, int, float, complex, bool, type(None))


def digest_of(program: object, files: Iterable[str] = ()) -> str:
    """Return the digest of a program as plain data, and of the contents of the files that it uses.

    >>> digest_of({"code": "a"}) == digest_of({"code": "a"}) != digest_of({"code": "b"})
    True
    """
    digest = hashlib.sha256(json.dumps(program, sort_keys=True, default=str).encode())
    for path in files:
        with open(path, "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:16]


def function_digest(function: Callable[..., Any], version: str | None = None) -> str:
    """Return the digest of a function's code, of the functions and constants it uses, or of the version instead.

    >>> def double(x): return 2 * x
    >>> def triple(x): return 3 * x
    >>> function_digest(double) == function_digest(triple), function_digest(double, "1") == function_digest(triple, "1")
    (False, True)
    """
    facts: list[str] = [version] if version is not None else list(_facts(function, set()))
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


def _facts(value: object, seen: set[int]) -> Iterable[str]:
    """Yield texts that say what a value does; objects are known by their type and attributes only."""
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, partial):
        yield from _facts([value.func, *value.args, *sorted(value.keywords.items())], seen)
    elif isinstance(value, types.MethodType):
        yield from _facts([value.__func__, value.__self__], seen)
    elif isinstance(value, types.FunctionType):
        yield from _function_facts(value, seen)
    elif isinstance(value, types.CodeType):
        yield from (value.co_code.hex(), *value.co_names, *value.co_varnames)
        yield from _facts(value.co_consts, seen)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _facts(each, seen)
    elif isinstance(value, (set, frozenset)):
        yield from sorted(map(repr, value))
    elif isinstance(value, dict):
        yield from _facts(list(value.items()), seen)
    elif isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType)):
        yield getattr(value, "__qualname__", value.__name__)
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__}"
        yield from _facts(getattr(value, "__dict__", {}), seen)


def _function_facts(function: types.FunctionType, seen: set[int]) -> Iterable[str]:
    yield from _facts(function.__code__, seen)
    yield from _facts(function.__defaults__, seen)
    yield from _facts(function.__kwdefaults__, seen)
    for cell in function.__closure__ or ():
        yield from _facts(cell.cell_contents, seen)
    for name in _names(function.__code__):
        used = function.__globals__.get(name)
        # of the libraries that a function uses, only the names count: an update is no reason to do everything again
        if isinstance(used, (*PLAIN, list, tuple, dict, set, frozenset)) or (
            isinstance(used, types.FunctionType) and used.__module__ == function.__module__
        ):
            yield name
            yield from _facts(used, seen)


def _names(code: types.CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
