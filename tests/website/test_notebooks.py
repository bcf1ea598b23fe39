"""Every notebook runs, and is stored with what it shows."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
ALIKE = 1.5
"""The mean difference of two pictures that look alike, of 255."""
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


VARIES = [
    (re.compile(r"\b0x[0-9a-f]+"), "an address"),
    (re.compile(r"\b\d+(\.\d+)? (m?s|seconds)\b"), "a time"),
    (re.compile(r"\b\d+(\.\d+)? ([kMG]?B|bytes?)\b"), "a size"),  # releases of Pillow compress differently
    (re.compile(r"data:image/\w+;base64,[\w+/=]+"), "a picture"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
]


def outputs(notebook: Any) -> list[list[Any]]:
    """What each cell of code shows: text, values, pictures. Warnings of a busy machine do not count."""
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    return [[shown(output) for output in cell if output.get("name") != "stderr"] for cell in cells]


def shown(output: Any) -> dict[str, Any]:
    """An output by kinds of data, without what is different on other machines and on other days."""
    data = dict(output.get("data", {}), **{"text": output.text} if "text" in output else {})
    return {kind: Picture(value) if kind == "image/png" else steady(value) for kind, value in data.items()}


def steady(text: str) -> str:
    """A text without what varies."""
    return reduce(lambda changed, one: one[0].sub(one[1], changed), VARIES, text)


class Picture:
    """Equal to one that looks alike: fonts and the last bits of a sum differ between machines."""

    def __init__(self, data: str) -> None:
        image = Image.open(io.BytesIO(base64.b64decode(data)))
        self.shape = image.size
        self.pixels = np.asarray(image.convert("L").resize((48, 48), Image.Resampling.BOX), dtype=float)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Picture):
            return NotImplemented
        near = np.allclose(self.shape, other.shape, rtol=0.1)
        return near and float(np.abs(self.pixels - other.pixels).mean()) < ALIKE

    __hash__ = None  # type: ignore[assignment]


def stored(path: Path) -> Any:
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(path, as_version=4)


def test_all_of_them_are_there() -> None:
    assert {path.stem for path in NOTEBOOKS} >= NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(
    path: Path, tmp_path: Path, website: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbclient")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))
    (tmp_path / "work").mkdir()
    executed = website("notebooks").execute(path, tmp_path / "work")
    assert outputs(executed) == outputs(stored(path)), "./run notebook --execute stores it again"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_notebook_is_stored_with_an_error_or_a_path_of_a_machine(path: Path) -> None:
    cells = [cell for cell in stored(path).cells if cell.cell_type == "code"]
    assert all(output.output_type != "error" for cell in cells for output in cell.outputs)
    assert "/home/" not in path.read_text()
    assert "/tmp/" not in path.read_text()


def test_a_notebook_is_a_page_with_its_pictures(website: Callable[[str], ModuleType], tmp_path: Path) -> None:
    page = website("notebooks").write_page(ROOT / "docs/notebooks/getting-started.ipynb", tmp_path)
    text = page.read_text()
    assert text.startswith("# Getting started")
    assert "![what the cell draws](getting-started-1.png)" in text
    assert (tmp_path / "getting-started-1.png").read_bytes().startswith(b"\x89PNG")
