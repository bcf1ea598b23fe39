"""The house: imports point down only, and no module needs itself."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "webdataset"


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


def test_no_module_needs_itself() -> None:
    """Not even through an import inside a function."""
    graph = {module: imports_of(module) for module in modules()}
    reached = {module: reachable(module, graph) for module in graph}
    assert [module for module in graph if module in reached[module]] == []


def test_a_loader_knows_of_no_way_to_run_a_dataset() -> None:
    rooms = {name.split(".")[1] for name in imports_of("webdataset.loader")}
    assert rooms.isdisjoint({"exact", "resume"})


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
