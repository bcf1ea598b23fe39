"""A package whose names are imported when they are asked for.

`import webdataset` is done in no time, and `webdataset.WebDataset` imports what it needs. Otherwise everything is as if
the package had imported all its names at once: submodules are there without an import of their own, and a name keeps
what it meant when its submodule was imported, whatever is put in its place in the submodule later.
"""

from __future__ import annotations

import ast
import os
import sys
from _thread import RLock
from importlib import import_module
from types import ModuleType
from typing import Any, cast

_importing = RLock()
"""Held while a name of a package that users see is imported.

Threads that import a package and one of its submodules at the same time wait for each other; Python notices, and lets
one of them have a module that is not complete. No module of ours may ask the package itself for a name while it is
imported: it could wait for this lock, and its holder for the module.
"""


def _renew_lock() -> None:
    global _importing  # noqa: PLW0603 - a thread that held it is not there any more
    _importing = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def import_lazily(package: str, stub: str) -> None:
    """Give a package that is being imported the names that its stub imports from its submodules.

    `new = old` in the stub is a thing under another name. A name that the submodule itself has too is the submodule's,
    not the submodule: after `from .gopen import gopen`, `package.gopen` is the function.
    """
    places, submodules = _names_in(stub)
    module = sys.modules[package]
    module.__dict__["__places__"] = places
    module.__dict__["__all__"] = sorted({*places, *submodules, "__version__"})
    module.__class__ = LazyPackage


def _names_in(stub: str) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Name -> its submodule, and its name there; and the submodules that are public themselves."""
    places: dict[str, tuple[str, str]] = {}
    private: dict[str, tuple[str, str]] = {}
    submodules: list[str] = []
    with open(stub, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module is None:
                    submodules.append(alias.name)
                else:
                    kept = private if alias.asname is None else places
                    kept[alias.name] = node.module, alias.name
        elif isinstance(node, ast.Assign):
            target, value = cast(ast.Name, node.targets[0]), cast(ast.Name, node.value)
            places[target.id] = (private | places)[value.id]
    return places, submodules


class LazyPackage(ModuleType):
    """What such a package is."""

    __places__: dict[str, tuple[str, str]]
    """Name -> its submodule, and its name there."""

    def __getattr__(self, name: str) -> Any:
        """What is not there yet: a name of a submodule, or a submodule."""
        if "." in self.__name__:  # our own modules ask these while they are imported
            return self._imported(name)
        with _importing:
            return self._imported(name)

    def _imported(self, name: str) -> object:
        if name in self.__places__:
            submodule, original = self.__places__[name]
            value = getattr(import_module(f"{self.__name__}.{submodule}"), original)
        else:
            value = self._submodule(name)
        return self.__dict__.setdefault(name, value)

    def __setattr__(self, name: str, value: object) -> None:
        """Python puts a submodule here as soon as it is imported: now its names mean what they shall mean."""
        if not isinstance(value, ModuleType) or sys.modules.get(f"{self.__name__}.{name}") is not value:
            super().__setattr__(name, value)
            return
        for public, (submodule, original) in self.__places__.items():
            if submodule == name and hasattr(value, original):
                self.__dict__.setdefault(public, getattr(value, original))
        if name not in self.__places__:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.__all__})

    def __reduce__(self) -> tuple[Any, ...]:
        # cloudpickle and its like, which pickle the modules that a function uses, know them by their exact type
        return import_module, (self.__name__,)

    def _submodule(self, name: str) -> ModuleType:
        path = f"{self.__name__}.{name}"
        try:
            if name.isidentifier() and name[0] != "_":
                return import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name, obj=self)
