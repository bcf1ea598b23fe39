"""The notebooks: executed, and as pages of the site.

`python website/notebooks.py [NAME...]` executes them again and stores what they print and draw.
"""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "notebooks"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def all_notebooks() -> list[Path]:
    """All of them, in the order of their names."""
    return sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path, folder: Path) -> Any:
    """Run a notebook in a folder, with a kernel of its own, and give it with its outputs."""
    from nbclient import NotebookClient
    from traitlets.config import Config

    notebook = nbformat.read(path, as_version=4)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # for `wl` in cells of the shell
    with tempfile.TemporaryDirectory(prefix="wl") as sockets:  # the kernel is talked to through files, not ports
        client = NotebookClient(
            notebook,
            timeout=240,
            startup_timeout=240,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
            coalesce_streams=True,
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
        )
        client.execute(env={**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1"})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of this run
        cell.metadata.pop("collapsed", None)
    return notebook


def write_page(path: Path, folder: Path) -> Path:
    """Write a notebook as Markdown, its pictures beside it, and give the page."""
    folder.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(path, as_version=4)
    parts = []
    pictures = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                name = f"{path.stem}-{pictures}.png"
                (folder / name).write_bytes(base64.b64decode(data["image/png"]))
                parts.append(f"![what the cell draws]({name})")
            else:
                text = COLOURS.sub(
                    "", output.get("text") or data.get("text/plain") or "\n".join(output.get("traceback", []))
                )
                parts.append(f"```text\n{text.rstrip()}\n```")
    note = f"*This page is the notebook `docs/notebooks/{path.name}`; `./run notebook` opens it.*"
    page = folder / f"{path.stem}.md"
    page.write_text("\n\n".join([parts[0], note, *parts[1:]]) + "\n")
    return page


def text_of(output: Any) -> str:
    """What a cell has printed, what its last line is, or the error that it shows."""
    text = output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output.get("traceback", []))
    return COLOURS.sub("", text)


def main(names: list[str]) -> None:
    """Execute the notebooks of these names, or all, and store them with their outputs."""
    for path in all_notebooks():
        if names and path.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(execute(path, Path(folder)), path)
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
