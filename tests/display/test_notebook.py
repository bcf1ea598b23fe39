"""The notebook about looking at datasets: its cells run, and show what is stored with them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs/notebooks/looking.ipynb"


def shown(value: object) -> dict[str, int]:
    """How often each kind of thing is in what a cell shows: the bytes of pictures depend on Pillow's release."""
    html = value._repr_html_() if hasattr(value, "_repr_html_") else ""
    return {tag: html.count(f"<{tag}") for tag in ("img", "table", "tr", "script")}


def test_every_cell_shows_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    names: dict[str, object] = {}
    pictures = tables = 0
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, NOTEBOOK.name, "exec"), names)
        if last is None:
            assert cell["outputs"] == []
            continue
        value = eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)
        [stored] = cell["outputs"]
        html = "".join(stored["data"].get("text/html", []))
        assert shown(value) == {tag: html.count(f"<{tag}") for tag in ("img", "table", "tr", "script")}
        assert shown(value)["script"] == 0
        pictures += shown(value)["img"]
        tables += shown(value)["table"]
        if not html:
            assert "".join(stored["data"]["text/plain"]) == repr(value)
    assert pictures >= 5
    assert tables >= 5
