"""Every notebook runs, and is stored with what it shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import warm

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PRELOADED = "torch._dynamo,ipykernel.kernelapp,matplotlib.pyplot"
NAMES = {
    "getting-started",
    "how-it-works",
    "decoding",
    "desktop",
    "creating",
    "writing",
    "multinode",
    "sources",
    "video-loading",
    "video-clips",
    "multi-camera",
}


def outputs(notebook: Any) -> list[list[str]]:
    """What each cell of code shows, by kind: text, values, pictures. Warnings of a busy machine do not count."""
    return [
        [
            f"{output.output_type} {' '.join(sorted(output.get('data', {})))}"
            for output in cell.outputs
            if output.get("name") != "stderr"
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def stored(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(path, as_version=4)


def test_all_of_them_are_there() -> None:
    assert {path.stem for path in NOTEBOOKS} >= NAMES


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A kernel that has imported what most notebooks do."""
    folder = tmp_path / "jupyter" / "kernels" / "warm"
    folder.mkdir(parents=True)
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as kernels set it for themselves
    words = [*warm.command(PRELOADED), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": words, "display_name": "warm", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    warm.install(tmp_path / "python", None, "torch._dynamo")
    monkeypatch.setenv("PYTHON_EXEC", str(tmp_path / "python"))  # what torchrun starts
    return "warm"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(
    path: Path, kernel: str, tmp_path: Path, website: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbclient")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    (tmp_path / "work").mkdir()
    executed = website("notebooks").execute(path, tmp_path / "work", kernel)
    assert outputs(executed) == outputs(stored(path)), "./run notebook --execute stores it again"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_notebook_is_stored_with_an_error_or_a_path_of_a_machine(path: Path) -> None:
    assert all("error" not in kind for cell in outputs(stored(path)) for kind in cell)
    assert "/home/" not in path.read_text()
    assert "/tmp/" not in path.read_text()


def test_a_notebook_is_a_page_with_its_pictures(website: Callable[[str], ModuleType], tmp_path: Path) -> None:
    page = website("notebooks").write_page(ROOT / "docs/notebooks/getting-started.ipynb", tmp_path)
    text = page.read_text()
    assert text.startswith("# Getting started")
    assert "![what the cell draws](getting-started-1.png)" in text
    assert (tmp_path / "getting-started-1.png").read_bytes().startswith(b"\x89PNG")
