"""What the repository says about itself is true: snippets run, links lead somewhere, versions agree."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import webdataset
from tests_support import python

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
# pages whose programs need packages that warn on their own account: they are run in a process of their own
APART = {"docs/frameworks.md": ("lightning", "accelerate", "transformers", "keras")}
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def module_names() -> list[str]:
    found = pkgutil.walk_packages(webdataset.__path__, "webdataset.")
    return ["webdataset", *(module.name for module in found if not module.name.endswith("__main__"))]


def with_needs(page: Path) -> Any:
    """The page, with a mark for the frameworks that its programs need."""
    return pytest.param(page, marks=pytest.mark.framework(*APART.get(page_name(page), ())), id=page_name(page))


def headings(page: Path) -> set[str]:
    """The page's headings as link targets."""
    lines = [line.lstrip("#").strip() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this machine has cores
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata, of torch's names
@pytest.mark.parametrize("page", [with_needs(page) for page in PAGES])
def test_every_snippet_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of a page are one program; `pycon` blocks must print what they show."""
    if page_name(page) in APART:
        run_apart(page, tmp_path)
        return
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    for language, text in FENCE.findall(page.read_text()):
        if language == "python":
            exec(compile(text, page_name(page), "exec"), names)
        elif language == "pycon":
            run_session(text, names, page_name(page))


def run_apart(page: Path, folder: Path) -> None:
    """Run the `python` blocks of a page as a program."""
    program = "\n".join(text for language, text in FENCE.findall(page.read_text()) if language == "python")
    (folder / "page.py").write_text(program)
    done = python("page.py", cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_no_python_is_shown_that_is_not_run(page: Path) -> None:
    """`python-session` blocks are the examples of docstrings, which are run there."""
    shown = {language for language, _ in FENCE.findall(page.read_text())} & {"py", "python3", "Python", "pytb"}
    assert shown == set()
    assert "python-session" not in page.read_text() or page.name == "filters.md"


def run_session(text: str, names: dict[str, object], page: str) -> None:
    test = doctest.DocTestParser().get_doctest(text, names, page, page, 0)
    told: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append, clear_globs=False)
    names.update(test.globs)
    assert result.failed == 0, "".join(told)


@pytest.mark.parametrize("name", module_names())
def test_the_examples_in_docstrings_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    assert isinstance(module, ModuleType)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(test, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert webdataset.__version__ == version == newest.group(1)


def test_the_type_checker_passes_over_every_package_that_need_not_be_there() -> None:
    """Else `./run check`, which installs none of them, fails on a fresh machine only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    passed_over = {name.removesuffix(".*") for each in project["tool"]["mypy"]["overrides"] for name in each["module"]}
    known = {*sys.stdlib_module_names, "webdataset", "wids", "numpy", "yaml"}  # types-PyYAML is installed for the check
    known |= {"typing_extensions", "_typeshed"}  # type checkers bring them
    imported = {name.partition(".")[0] for path in (ROOT / "src").rglob("*.py") for name in imports_of(path)}
    assert imported - known - passed_over == set()


def imports_of(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, other than relatively."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


def test_the_readme_leads_to_every_page() -> None:
    linked = set(LINK.findall((ROOT / "README.md").read_text()))
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked


def test_the_guides_lead_to_every_guide() -> None:
    linked = set(LINK.findall((ROOT / "docs/guides/index.md").read_text()))
    assert {page.name for page in (ROOT / "docs/guides").glob("*.md")} - {"index.md"} <= linked


def test_every_hop_of_a_sample_is_in_the_code() -> None:
    _, _, way = (ROOT / "docs/design.md").read_text().partition("## The way of a sample")
    names = re.findall(r"`((?:\w+\.)+\w+)`", way.partition("## Running a pipeline")[0])
    assert len(names) > 30
    assert [name for name in names if not is_in_the_code(name)] == []


def is_in_the_code(name: str) -> bool:
    """Whether this is a module below `webdataset`, or a name in one: `tar.reader.read_members`."""
    parts = ["webdataset", *name.split(".")]
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part, None)
        return found is not None
    return False


def test_the_environment_is_read_in_one_module() -> None:
    readers = [path for path in (ROOT / "src").rglob("*.py") if re.search(r"os\.(environ|getenv)", path.read_text())]
    writers = {"multi.py"}  # hands a worker its number
    assert {path.name for path in readers} - writers == {"settings.py"}


def test_importing_is_light() -> None:
    program = "import sys, webdataset; print([m for m in ('torch', 'PIL', 'numpy', 'yaml') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
