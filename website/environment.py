"""docs/environment.md, the environment variables of `base/settings.py`: `python website/environment.py` writes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from webdataset.base import settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "environment.md"
SETTINGS = ROOT / "src" / "webdataset" / "base" / "settings.py"
STORES = ROOT / "src" / "webdataset" / "storage" / "stores"
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+|NETRC|RANK|WORKER|TERM")
OF_A_STORE = re.compile(r"(AWS|AZURE|CLOUDSDK|GCE|GOOGLE|HF|HUGGING_FACE|STORAGE)_[A-Z0-9_]+")
TITLES = {
    "aws": "S3",
    "azure": "Azure",
    "gcs": "Google Cloud Storage",
    "google": "Google Cloud Storage",
    "hf": "Hugging Face",
}
TEXT = """# Environment variables

What the library takes from the environment, all of it. `src/webdataset/base/settings.py` is the only module that reads
it, whenever a value is needed, so a program can set a variable before it opens a dataset. This page is made of that
module by `python website/environment.py`.

A switch is on unless its value is empty, `0`, `false`, `no` or `off`. Sizes take units: `500M`, `20G`, `1TiB`.
"""
URLS = """
## In urls

`${NAME}` in a url stands for the value of the variable `WDS_NAME`: with `WDS_DATA=s3://bucket/train`,
`WebDataset("${DATA}/{000..099}.tar")` reads from that bucket.
"""
OF_STORES = """
## Of the stores' own tools

Credentials and addresses are found as the stores' own programs find them; [Storage](storage.md) says in which order.

| store | variables |
|---|---|
"""


def page() -> str:
    """The page."""
    parts = [TEXT]
    for title, rows in sections().items():
        parts.append(f"\n## {title}\n\n| variable | |\n|---|---|\n" + "".join(rows))
    parts += [URLS, OF_STORES.rstrip(" ")]
    parts += [f"| {store} | {', '.join(f'`{name}`' for name in names)} |\n" for store, names in of_stores().items()]
    return "".join(parts)


def sections() -> dict[str, list[str]]:
    """Title -> the rows of its table, in the order of the module."""
    text = SETTINGS.read_text()
    titles = {
        n: found[1] for n, line in enumerate(text.splitlines(), 1) if (found := re.match(r"    # -- (.*?) -+$", line))
    }
    tree = ast.parse(text)
    environment = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Environment")
    found: dict[str, list[str]] = {}
    for node in environment.body:
        if isinstance(node, ast.FunctionDef) and (names := variables(node)):
            title = titles[max(line for line in titles if line < node.lineno)]
            about = " ".join((ast.get_docstring(node) or "").split()).replace("|", "\\|")
            row = f"| {', '.join(f'`{name}`' for name in names)} | {about} |\n"
            found.setdefault(title[0].upper() + title[1:], []).append(row)
    return found


def variables(node: ast.FunctionDef) -> list[str]:
    """The variables that a property reads."""
    names = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    names = [name for name in names if VARIABLE.fullmatch(name)]
    if any(isinstance(each, ast.Name) and each.id == "_PROXIES" for each in ast.walk(node)):
        names += [
            name for name in settings._PROXIES if name != "REQUEST_METHOD"
        ]  # which says that this is a CGI program
    return list(dict.fromkeys(names))


def of_stores() -> dict[str, list[str]]:
    """Store -> the variables of its own tools that are read."""
    found: dict[str, list[str]] = {}
    for path in sorted(STORES.glob("*.py")):
        strings = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        names = [name for name in strings if isinstance(name, str) and OF_A_STORE.fullmatch(name)]
        if names:
            store = next((title for start, title in TITLES.items() if path.stem.startswith(start)), "S3")
            found[store] = sorted({*found.get(store, []), *names})
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
