"""Digests of code: results are kept as long as the code that made them is the same.

A function is known by its code, by all that it refers to, as a pickle would hold it, and by the sources of the user's
modules that it imports. Of libraries only names count: an update is no reason to do everything again.
"""

from __future__ import annotations

import ast
import contextlib
import copyreg
import dis
import functools
import hashlib
import inspect
import json
import os
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .sources import source_digest, source_text

PLAIN = {str, bytes, int, float, complex, bool, type(None), type(...), type(NotImplemented)}
"""Types, not their subclasses, whose objects may have attributes and methods of their own."""
CODE_OPTIONS = ("code", "precode", "pipeline")
"""Options of our commands that are Python code."""
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def digest_of(program: dict[str, Any], folder: str = "", sources: dict[str, str] | None = None) -> str:
    """Return the digest of a program as plain data, of its files, which are in a folder, and of what these import.

    The digest of each file is put into `sources`.

    >>> digest_of({"code": "a"}) == digest_of({"code": "a"}) != digest_of({"code": "b"})
    True
    """
    digest = hashlib.sha256(json.dumps(program, sort_keys=True, default=str).encode())
    seen: dict[str, str] = {} if sources is None else sources
    folder = os.path.abspath(folder)
    for name in program.get("files", ()):
        path = os.path.join(folder, name)
        with open(path, "rb") as file:
            data = file.read()
        digest.update(data)
        seen[os.path.abspath(path)] = source_digest(data)
        for text in _imported_by(data, os.path.dirname(path), seen):
            digest.update(text.encode())
    options = program.get("options", {})
    texts = [text for name in CODE_OPTIONS for text in _texts(options.get(name))]
    if options.get("function"):
        texts.append(f"import {options['function'].partition(':')[0]}")
    for text in texts:
        for found in _imported_by(text, folder, seen):
            digest.update(found.encode())
    return digest.hexdigest()[:16]


def function_digest(
    function: Callable[..., Any], version: str | None = None, sources: dict[str, str] | None = None
) -> str:
    """Return the digest of a function with all that it uses, or of the version instead.

    What the digest cannot see is said in a warning. The digest of each file that it is read from is put into `sources`.

    >>> def double(x): return 2 * x
    >>> def triple(x): return 3 * x
    >>> function_digest(double) == function_digest(triple), function_digest(double, "1") == function_digest(triple, "1")
    (False, True)
    """
    if version is not None:
        return hashlib.sha256(version.encode()).hexdigest()[:16]
    digests = _Digests({} if sources is None else sources)
    found = digests.of(function)
    digests.look_at_named()
    if digests.unseen:
        names = ", ".join(sorted(digests.unseen))
        text = f"changes of {names} would not be noticed; version= says when the results are to be made again"
        warnings.warn(text, stacklevel=3)
    return found[:16]


class _Digests:
    """Digests of values by what they are made of; each value is looked at once."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.unseen: set[str] = set()
        """What is used, but cannot be taken apart."""
        self._known: dict[int, tuple[object, str]] = {}
        """With the values, so that no other one gets their ids."""
        self._sources = sources
        """The files that were looked at, with their digests."""
        self._named: set[str | None] = set()
        """Modules from which other processes import what is used."""

    def of(self, value: object) -> str:
        """Return the digest of a value; inside a cycle, the place in it."""
        if type(value) in PLAIN:
            return _hashed(f"{type(value).__name__} {value!r}")
        known = self._known.get(id(value))
        if known is None:
            self._known[id(value)] = value, f"cycle {len(self._known)}"
            known = self._known[id(value)] = value, _hashed(*self._parts(value))
        return known[1]

    def look_at_named(self) -> None:
        """Look at the files from which other processes import, last: all that they have is not in the digest."""
        for name in self._named - {"__main__"}:
            path = getattr(sys.modules.get(name or ""), "__file__", None)
            if path is not None and path.endswith(".py"):
                list(_source(path, self._sources))  # the digest is kept there

    def _parts(self, value: object) -> Iterator[str]:
        if isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.CodeType):
            yield from (value.co_code.hex(), *value.co_names, *value.co_varnames, self.of(value.co_consts))
        elif type(value) in (list, tuple):
            yield type(value).__name__
            yield from map(self.of, value)  # type: ignore[call-overload]
        elif type(value) in (set, frozenset):
            yield from sorted(map(self.of, value))  # type: ignore[call-overload]
        elif type(value) in (dict, types.MappingProxyType):
            yield from (self.of(each) for pair in value.items() for each in pair)  # type: ignore[attr-defined]
        elif isinstance(value, types.ModuleType):
            yield value.__name__
            yield from self._module(getattr(value, "__file__", None) or "", value.__name__)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, (staticmethod, classmethod, functools.cached_property)) or _is_wrapper(value):
            yield self.of(inspect.unwrap(getattr(value, "func", None) or getattr(value, "__func__", None) or value))  # type: ignore[arg-type]
        elif isinstance(value, property):
            yield from map(self.of, (value.fget, value.fset))
        elif "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
            yield from self._tensor(value)
        else:
            yield from self._object(value)

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        yield function.__qualname__
        if not _is_users(function.__module__):
            return
        self._named.add(function.__module__)
        yield from map(self.of, (function.__code__, function.__defaults__, function.__kwdefaults__, function.__dict__))
        for cell in function.__closure__ or ():
            with contextlib.suppress(ValueError):  # it is empty
                yield self.of(cell.cell_contents)
        for code in _codes(function.__code__):
            for name in code.co_names:
                if name in function.__globals__:
                    yield name
                    value = function.__globals__[name]
                    yield self.of(value)
                    if isinstance(value, types.ModuleType):
                        yield from self._submodules(value, code.co_names)
            folder = os.path.dirname(os.path.abspath(code.co_filename))
            for text in _imports_of(code):
                yield from _imported_by(text, folder, self._sources)

    def _module(self, path: str, name: str) -> Iterator[str]:
        if path.endswith(".py"):
            if not _is_library(path):
                yield from _source(path, self._sources)
        elif path and not _is_library(path):
            self.unseen.add(f"the module {name}")

    def _submodules(self, module: types.ModuleType, names: Iterable[str]) -> Iterator[str]:
        """Look at what `import package.module` has brought, of which a function's globals have only the package."""
        for name in names:
            value = sys.modules.get(f"{module.__name__}.{name}")
            if value is not None:
                yield self.of(value)
                yield from self._submodules(value, names)

    def _tensor(self, tensor: Any) -> Iterator[str]:
        """Look at the values: a pickle has addresses, too."""
        yield f"{type(tensor).__qualname__} {tensor.dtype} {tuple(tensor.shape)}"
        try:
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            yield self.of(plain.view(sys.modules["torch"].uint8).numpy().tobytes())
        except (RuntimeError, TypeError, NotImplementedError):
            self.unseen.add(f"a tensor of {tensor.layout} on {tensor.device}")

    def _class(self, kind: type) -> Iterator[str]:
        yield f"{kind.__module__}.{kind.__qualname__}"
        if not _is_users(kind.__module__):
            return
        self._named.add(kind.__module__)
        yield from map(self.of, (type(kind), *kind.__bases__))
        for name, value in sorted(vars(kind).items()):
            is_code = callable(value) or isinstance(value, classmethod)
            if name != "_abc_impl" and (is_code or not name.startswith("__")):
                yield name
                yield self.of(value)

    def _object(self, value: object) -> Iterator[str]:
        """Take an object apart as a pickle would."""
        try:
            registered = copyreg.dispatch_table.get(type(value))
            reduced: Any = registered(value) if registered else value.__reduce_ex__(4)
        except Exception:
            self.unseen.add(f"an object of type {type(value).__module__}.{type(value).__qualname__}")
            yield self.of(type(value))
            return
        if isinstance(reduced, str):
            yield reduced
            return
        made, arguments, *more = reduced
        yield from map(self.of, (made, arguments))
        for each in more:
            yield self.of(list(each) if isinstance(each, Iterator) else each)


def _hashed(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a function's code, and that of functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_wrapper(value: object) -> bool:
    """Whether a library's object, such as that of a decorator, stands for a function."""
    return hasattr(value, "__wrapped__") and not _is_users(type(value).__module__)


def _imports_of(code: types.CodeType) -> Iterator[str]:
    """Yield the import statements in a function, as text."""
    steps = list(dis.get_instructions(code))
    for level, names, step in zip(steps, steps[1:], steps[2:], strict=False):
        if step.opname == "IMPORT_NAME":
            name = f"{'.' * level.argval}{step.argval}"
            yield f"from {name} import {', '.join(names.argval)}" if names.argval else f"import {name}"


def _is_users(module: str | None) -> bool:
    """Whether this is a module of the user, not of a library."""
    found = sys.modules.get(module or "")
    if found is None:
        return True
    path = getattr(found, "__file__", None)
    if path is None:
        return module == "__main__" or getattr(found, "__spec__", None) is None
    return not _is_library(path)


@functools.cache
def _is_library(path: str) -> bool:
    own = os.path.abspath(path)
    places = (*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")), _OWN)
    return own.startswith(tuple(f"{place}{os.sep}" for place in places)) or "site-packages" in own.split(os.sep)


# -- sources ---------------------------------------------------------------------------------------------


def _imported_by(source: str | bytes, folder: str, seen: dict[str, str]) -> Iterator[str]:
    """Yield the sources of the user's modules that a text imports, and of those that these import."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            first = [node.module] if node.module else []
            names = [(".".join([*first, *more]), node.level) for more in ([], *([a.name] for a in node.names))]
        else:
            continue
        for name, level in names:
            start = os.path.join(folder, *[os.pardir] * (level - 1)) if level else ""
            for place in [start] if start else [folder, *sys.path]:
                if found := _found(os.path.join(os.path.abspath(place), *name.split("."))):
                    yield from _source(found, seen)
                    break


def _found(path: str) -> str:
    """Return the file of a user's module, if it is there."""
    for each in (f"{path}.py", os.path.join(path, "__init__.py")):
        if os.path.isfile(each):
            return "" if _is_library(each) else each
    return ""


def _source(path: str, seen: dict[str, str]) -> Iterator[str]:
    """Yield the source of a module, without comments, and of those that it imports."""
    path = os.path.abspath(path)
    if path in seen:
        return
    data = _as_imported(path)
    seen[path] = source_digest(data)
    yield source_text(data)
    yield from _imported_by(data, os.path.dirname(path), seen)


class _Import:
    """One import of a module; reloading it makes another one."""

    def __init__(self, spec: object) -> None:
        self.spec = spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Import) and self.spec is other.spec

    def __hash__(self) -> int:
        return id(self.spec)


def _as_imported(path: str) -> bytes:
    """Return a source as it was when it was looked at first, if this process has imported and not reloaded it since."""
    with open(path, "rb") as file:
        data = file.read()
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and getattr(module, "__file__", None) == path:
            first = _first_seen(_Import(spec), path)
            if source_digest(first) != source_digest(data):
                text = f"{path} has changed since it was imported, and is used as it was: reload it, or begin again"
                warnings.warn(text, stacklevel=2)
            return first
    return data


@functools.lru_cache(maxsize=1000)
def _first_seen(_: _Import, path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _texts(value: object) -> Iterable[str]:
    return [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
