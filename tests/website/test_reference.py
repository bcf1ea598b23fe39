"""Every public name has a docstring, and every argument is described in it."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import webdataset

# what a stage gets from the one before it; filters.md and the docstring of FluidInterface say so for all
STREAM = {"self", "cls", "data", "src"}
OTHERS = ("webdataset.images", "wids")


def things() -> Iterator[tuple[str, Any]]:
    """Everything that programs call: functions, classes, and the classes' methods."""
    for name in webdataset.__all__:
        yield from with_methods(name, getattr(webdataset, name))
    for package in OTHERS:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            # an operation on images is made, and called by the pipeline alone
            yield from with_methods(f"{package}.{name}", value) if package == "wids" else [(f"{package}.{name}", value)]


def with_methods(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield name, value
    if inspect.isclass(value):
        for method, function in vars(value).items():
            function = getattr(function, "__func__", function)
            if not method.startswith("_") and inspect.isfunction(function):
                # getdoc knows an inherited docstring only through the class
                yield f"{name}.{method}", function if function.__doc__ else getattr(value, method)


def signature_and_text(value: Any) -> tuple[list[str], str]:
    """The arguments of a function or constructor, and where they are described."""
    text = inspect.getdoc(value) or ""
    function = getattr(value, "function", value)
    if inspect.isclass(value):
        owner = next(each for each in value.__mro__ if "__init__" in vars(each))
        if owner.__module__.partition(".")[0] not in ("webdataset", "wids"):
            return [], text
        text += inspect.getdoc(owner) or ""
        function = owner.__init__
    names = [name for name in inspect.signature(function).parameters if name not in STREAM and name[0] != "_"]
    return names, text


def is_described(name: str, text: str) -> bool:
    """Whether the text has the name in backquotes, or at the beginning of a line of `Args:`.

    >>> is_described("n", "Every `n`-th."), is_described("n", "Every n-th.")
    (True, False)
    """
    return re.search(rf"`[^`]*\b{name}\b[^`]*`|^ +\*{{0,2}}{name}: ", text, re.MULTILINE) is not None


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name, value in things() if callable(value) and not inspect.getdoc(value)] == []


def test_every_argument_is_described() -> None:
    missing = []
    for name, value in things():
        if callable(value):
            names, text = signature_and_text(value)
            missing += [f"{name}({each})" for each in names if not is_described(each, text)]
    assert missing == []


@pytest.mark.parametrize(
    ("text", "described"), [("`n=3` of them", True), ("    n: how many", True), ("n of them", False)]
)
def test_the_check_tells_what_is_described(text: str, described: bool) -> None:
    assert is_described("n", text) is described


def test_every_name_stands_on_one_page(website: Callable[[str], ModuleType]) -> None:
    reference = website("reference")
    listed = [name for _, names in reference.names_by_page().values() for name in names]
    assert sorted(listed) == sorted(reference.public_names())


def test_examples_become_blocks_of_code(website: Callable[[str], ModuleType]) -> None:
    pytest.importorskip("griffe")
    fenced = website("docstrings").fenced
    assert fenced("A sum.\n\n>>> 1 + 1\n2\n\nMore.") == "A sum.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore."
