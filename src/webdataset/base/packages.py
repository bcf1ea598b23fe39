"""Optional packages, imported when they are needed.

Python takes any folder of that name, `./av` with videos in it for instance, for a package without code: such a one is
as good as none.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from webdataset.errors import MissingPackageError


def imported(name: str) -> ModuleType:
    """Import a module; a folder that only has its name raises ImportError, as if there were nothing.

    >>> imported("json.decoder").__name__
    'json.decoder'
    """
    module = import_module(name)
    if hasattr(module, "__path__") and getattr(module, "__file__", None) is None:
        folders = ", ".join(module.__path__)
        raise ImportError(f"no module named {name!r}: the folder {folders} has that name, but no code", name=name)
    return module


def is_installed(name: str) -> bool:
    """Whether there is such a package, found out without importing it.

    >>> is_installed("json"), is_installed("no_such_package")
    (True, False)
    """
    from importlib.util import find_spec

    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def loaded(name: str) -> ModuleType | None:
    """A module that the program has imported; None as long as it has not, or another thread is still at it.

    >>> loaded("sys").__name__, loaded("no_such_package")
    ('sys', None)
    """
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def package(name: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, or say what to install.

    >>> package("no_such_package", extra="image", purpose="to decode images")
    Traceback (most recent call last):
    webdataset.errors.MissingPackageError: no_such_package is needed to decode images; pip install 'webdataset[image]'
    """
    try:
        return imported(name)
    except ImportError as exn:
        raise MissingPackageError(
            f"{name.partition('.')[0]} is needed {purpose}", hint=f"pip install 'webdataset[{extra}]'"
        ) from exn
