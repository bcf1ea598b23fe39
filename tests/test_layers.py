"""The house: imports point down only, rooms are small, and a name means one thing."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

from webdataset.pipeline import DataPipeline

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "webdataset"
MOST_JOINED = 12
MOST_METHODS = 30
MOST_ANY = 589
"""Parameters, results and variables whose type is `Any`: it may only become smaller."""


def contracts() -> list[dict[str, object]]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        found: list[dict[str, object]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return found


def test_imports_point_down_only() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    checked = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"Contracts: {len(contracts())} kept, 0 broken." in checked.stdout


def test_no_large_group_of_modules_may_import_each_other_freely() -> None:
    layers = [layer for contract in contracts() for layer in contract.get("layers", [])]  # type: ignore[attr-defined]
    assert all(len(layer.split(":")) <= MOST_JOINED for layer in layers)
    assert "exact | resume | writing" in layers  # neither way of running knows the other


def test_no_module_needs_itself() -> None:
    """Not even through an import inside a function."""
    graph = {module: imports_of(module) for module in modules()}
    reached = {module: reachable(module, graph) for module in graph}
    assert [module for module in graph if module in reached[module]] == []


def test_a_pipeline_has_few_methods() -> None:
    kinds = [kind for kind in DataPipeline.__mro__ if kind is not object]
    methods = {
        name for kind in kinds for name, value in vars(kind).items() if callable(value) or hasattr(value, "__get__")
    }
    shown_by = {"__dir__", "__repr__", "_repr_html_"}
    assert len(methods - {"__dict__", "__weakref__", "__class__"} - shown_by) <= MOST_METHODS


def test_a_loader_knows_of_no_way_to_run_a_dataset() -> None:
    rooms = {name.split(".")[1] for name in imports_of("webdataset.loader")}
    assert rooms.isdisjoint({"exact", "resume"})


def test_no_public_class_has_the_name_of_another() -> None:
    names = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_few_things_are_of_any_type() -> None:
    """What is decoded from users' data may be anything; a program's own values are not."""
    found = Counter(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "src").rglob("*.py")
        for annotation in annotations(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(annotation, ast.Name) and annotation.id == "Any"
    )
    assert found.total() <= MOST_ANY, found.most_common(20)


def annotations(tree: ast.Module) -> list[ast.expr | None]:
    found: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.returns)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            found.append(node.annotation)
    return found


# -- the graph of imports ------------------------------------------------------------------------------


@cache
def modules() -> dict[str, Path]:
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(module: str) -> set[str]:
    known = modules()
    package = module.split(".") if known[module].name == "__init__.py" else module.split(".")[:-1]
    tree = ast.parse(known[module].read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = {f"{origin}.{alias.name}" for alias in node.names}
            found |= (names & known.keys()) or {origin}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return (found & known.keys()) - {"webdataset", module}


def reachable(module: str, graph: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    pending = [module]
    while pending:
        new = graph[pending.pop()] - seen
        seen |= new
        pending += new
    return seen
