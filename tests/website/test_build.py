"""The site: all pages are in it, with everything that they must have."""

from __future__ import annotations

import html
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import webdataset
from webdataset.cli.table import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
Website = Callable[[str], ModuleType]

pytestmark = pytest.mark.xdist_group("site")


def shown(page: Path) -> str:
    """The text of a page, without its tags."""
    text = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
    return html.unescape(text)


def test_every_page_of_the_docs_is_in_the_site(site: Path) -> None:
    pages = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")]
    pages += [page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.ipynb")]
    assert [str(page) for page in pages if not (site / page).exists()] == []


def test_every_page_has_its_place_in_the_navigation(website: Website, tmp_path: Path) -> None:
    """The site has other pages under "More": they wait for a line in website/mkdocs.yml."""
    build = website("build")
    config = yaml.unsafe_load((ROOT / "website/mkdocs.yml").read_text())
    build.assemble(tmp_path / "pages", tmp_path / "site")
    _, others = build.navigation(config["nav"], tmp_path / "pages" / "docs")
    assert [section["More"] for section in others if "More" in section] == []


def test_a_page_that_nobody_listed_is_in_the_navigation_all_the_same(website: Website, tmp_path: Path) -> None:
    for name in ("index.md", "new.md"):
        (tmp_path / name).write_text("# A page\n")
    known, others = website("build").navigation([{"Home": "index.md"}, "gone.md"], tmp_path)
    assert known == [{"Home": "index.md"}]
    assert others == [{"More": ["new.md"]}]


def test_every_command_has_a_page_with_its_help(site: Path) -> None:
    for name in COMMANDS:
        text = shown(site / "commands" / f"wl-{name}.html")
        assert f"usage: wl {name}" in text
        assert "--help" in text


def test_the_site_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = [entry["location"] for entry in index["docs"] if "rename_files" in entry["text"]]
    assert any(location.startswith("reference/") for location in found)


def test_the_site_asks_nobody_for_anything(site: Path) -> None:
    """Neither fonts nor scripts come from elsewhere."""
    for page in (site / "index.html", site / "reference" / "dataset.html"):
        sources = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text(encoding="utf-8")
        )
        assert sources == []


def test_the_diagrams_are_shown(site: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in site.glob("*.html"))
    for name in ("shard", "way", "window", "epoch", "speed"):
        assert f"pictures/{name}.svg" in text
        assert (site / "pictures" / f"{name}.svg").exists()


def test_the_reference_has_every_public_name_and_every_argument(site: Path, website: Website) -> None:
    missing = []
    reference = website("reference")
    for page, (_, names) in reference.names_by_page().items():
        text = (site / "reference" / f"{page}.html").read_text(encoding="utf-8")
        for name in names:
            start = text.find(f'id="webdataset.{name}"')
            if start < 0:
                missing.append(name)
                continue
            if name in reference.aliases():
                continue
            words = html.unescape(re.sub(r"<[^>]+>", "", text[start:]))
            missing += [
                f"{name}({argument})" for argument in arguments(name) if not re.search(rf"\b{argument}\b", words)
            ]
    assert missing == []


def arguments(name: str) -> list[str]:
    value = getattr(webdataset, name)
    if not callable(value) or value is webdataset.ShardWarning:  # whose arguments are those of any exception
        return []
    function = value.__init__ if inspect.isclass(value) else getattr(value, "function", value)
    if function is object.__init__:
        return []
    return [each for each in inspect.signature(function).parameters if each != "self"]


def test_no_reference_to_a_name_is_left_open(site: Path) -> None:
    for page in (site / "reference").glob("*.html"):
        assert "][webdataset" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["select_files", "rename_files", "empty_check", "detshuffle", "keys", "workersplitter"]
)
def test_the_reference_describes(site: Path, name: str) -> None:
    assert shown(site / "reference" / "dataset.html").count(name) > 1
