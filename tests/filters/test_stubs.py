"""What type checkers and readers see of the filters is what the modules of `filters/` declare.

`python tests/filters/test_stubs.py` writes the stubs and the page again.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from pathlib import Path

import pytest

from webdataset import filters

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCE = ROOT / "src" / "webdataset"
PRELUDE = """# The names of this package for type checkers: written by tests/filters/test_stubs.py, which compares it.

from collections.abc import Callable
from typing import Any, Self

"""
PAGE = """# Filters

What a pipeline does with samples. Each is a function, `wds.map(f)`, whose result is a stage of a `DataPipeline`, and a
method of every dataset, `dataset.map(f)`, which returns a new one. `data` is what the stage before yields. This page is
made of the functions' own descriptions, by `python tests/filters/test_stubs.py`.
"""


def stub_of_filters() -> str:
    """`filters/__init__.pyi`: what the package imports, the filters, and a class with all of them as methods."""
    package = ast.parse((SOURCE / "filters/__init__.py").read_text(encoding="utf-8"))
    lines = []
    methods = []
    needed: dict[str, set[str]] = {}
    for node in package.body:
        if isinstance(node, ast.ImportFrom) and node.module not in {"importlib", "pkgutil", "types"}:
            place = "." * node.level + (node.module or "")
            lines += [f"from {place} import {alias.name} as {alias.name}" for alias in node.names]
    for name, filter in filters.declared().items():
        module = filter.__module__.rpartition(".")[2]
        lines.append(f"from .{module} import {name} as {name}")
        method, names = method_of(name)
        methods.append(method)
        needed.setdefault(module, set()).update(names)
    for module, names in needed.items():
        lines += [line_for(one, module) for one in names - {"Any", "Callable"}]
    plain = [f"_{name}: Callable[..., Any]" for name in filters.declared()]
    body = ["class FilterMethods:", *methods, "", "def declared() -> dict[str, Filter[...]]: ..."]
    return PRELUDE + "\n".join([*sorted(set(lines), key=str.lower), "", *plain, "", *body]) + "\n"


def line_for(name: str, module: str) -> str:
    """The import of a name that a module has: from where the module has it, if it is not its own."""
    for node in ast.parse((SOURCE / f"filters/{module}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return f"from {'.' * node.level}{node.module} import {name} as {name}"
    return f"from .{module} import {name} as {name}"


def method_of(name: str) -> tuple[str, set[str]]:
    """A filter's signature as that of a method, and the names that its annotations need."""
    source = textwrap.dedent(inspect.getsource(filters.declared()[name].function))
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    (node.args.posonlyargs or node.args.args)[0] = ast.arg("self")
    node.args.defaults = [ast.Constant(...) for _ in node.args.defaults]
    node.args.kw_defaults = [default and ast.Constant(...) for default in node.args.kw_defaults]
    annotations = [each.annotation for each in ast.walk(node.args) if isinstance(each, ast.arg) and each.annotation]
    used = {each.id for one in annotations for each in ast.walk(one) if isinstance(each, ast.Name)}
    return f"    def {name}({ast.unparse(node.args)}) -> Self: ...", used - vars(builtins).keys()


def stub_of_package() -> str:
    """The package's own stub, with the filters among its names."""
    lines = (SOURCE / "__init__.pyi").read_text(encoding="utf-8").splitlines()
    marked = "from .filters import {0} as {0}"
    first = next(n for n, line in enumerate(lines) if line.startswith("from .filters import"))
    there = [line for line in lines if line.startswith("from .filters import")]
    wanted = sorted({*there, *(marked.format(name) for name in filters.declared())})
    rest = [line for line in lines if line not in there]
    return "\n".join([*rest[:first], *wanted, *rest[first:]]) + "\n"


def page() -> str:
    """docs/filters.md."""
    parts = [PAGE]
    for name, filter in filters.declared().items():
        text, _, example = inspect.cleandoc(filter.__doc__ or "").partition(">>> ")
        text, _, arguments = text.partition("Args:\n")
        parts.append(f"## {name}\n\n`{name}{signature(filter.function)}`\n\n{text.strip()}\n")
        if arguments:
            parts.append(listed(arguments))
        if example:
            parts.append(f"```python-session\n>>> {example.strip()}\n```\n")
    return "\n".join(parts)


def listed(arguments: str) -> str:
    """The arguments of a docstring as a list."""
    lines = textwrap.dedent(arguments).strip().splitlines()
    items = [f"  {line.strip()}" if line[0] == " " else "- `{}`:{}".format(*line.split(":", 1)) for line in lines]
    return "\n".join(items) + "\n"


def signature(function: object) -> str:
    """The options of a filter with their defaults, without types."""
    source = textwrap.dedent(inspect.getsource(function))  # type: ignore[arg-type]
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    return f"({ast.unparse(node.args)})"


FILES = {
    "src/webdataset/filters/__init__.pyi": stub_of_filters,
    "src/webdataset/__init__.pyi": stub_of_package,
    "docs/filters.md": page,
}


@pytest.mark.parametrize("path", FILES)
def test_it_says_what_is_declared(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == FILES[path](), "python tests/filters/test_stubs.py writes it"


def test_every_filter_is_a_stage_a_plain_function_and_a_method() -> None:
    import webdataset

    for name, filter in filters.declared().items():
        assert getattr(webdataset, name) is getattr(filters, name) is filter
        assert getattr(filters, f"_{name}") is filter.function
        assert name in dir(webdataset.WebDataset)
        assert {name, f"_{name}"} <= {*filters.__all__}


if __name__ == "__main__":
    for path, text in FILES.items():
        (ROOT / path).write_text(text(), encoding="utf-8")
