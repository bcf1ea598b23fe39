"""Pages and pictures that are made of the code are up to date, and links are mended."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
Website = Callable[[str], ModuleType]
NOT_OURS = {"REQUEST_METHOD", "HOME"}  # tells a CGI program; where ~ is


def test_the_page_of_the_environment_is_current(website: Website) -> None:
    page = (ROOT / "docs/environment.md").read_text()
    assert page == website("environment").page(), "run: python website/environment.py"


def test_every_variable_of_the_page_has_a_description(website: Website) -> None:
    rows = [row for rows in website("environment").sections().values() for row in rows]
    assert [row for row in rows if row.rstrip().endswith("|  |")] == []


def test_a_variable_that_settings_reads_is_on_the_page(website: Website, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked of the environment itself, not of the source."""
    from webdataset.base.settings import Environment

    asked: set[str] = set()

    class Recorder(dict[str, str]):
        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            asked.add(name)
            return default

    environment = Environment()
    monkeypatch.setattr(os, "environ", Recorder(os.environ))
    for name, value in vars(Environment).items():
        if isinstance(value, property):
            getattr(environment, name)
    monkeypatch.undo()
    page = website("environment").page()
    assert [name for name in sorted(asked) if f"`{name}`" not in page and name not in NOT_OURS] == []


@pytest.mark.parametrize("name", ["shard", "way", "window", "epoch"])
def test_a_diagram_is_current_and_can_be_drawn(website: Website, name: str) -> None:
    text = (ROOT / f"docs/pictures/{name}.svg").read_text()
    assert text == str(website("diagrams").PICTURES[name]()), "run: python website/diagrams.py"
    assert ElementTree.fromstring(text).tag.endswith("svg")


def test_speeds_are_drawn_as_long_as_they_are(website: Website) -> None:
    table = "| what | old | new |\n|---|--:|--:|\n| read A | 1,000/s | 4,000/s |\n| import | 2 s | 1 s |\n"
    picture = website("plots").speed(f"<!-- speed -->\n{table}<!-- /speed -->\n")
    bars = [box.get("width") for box in ElementTree.fromstring(str(picture)).iter() if box.get("height") == "16"]
    assert bars == ["110", "440"]
    assert website("plots").speed("no table") is None


def test_links_lead_to_where_the_site_has_the_file(website: Website, tmp_path: Path) -> None:
    page = tmp_path / "guides" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "[changes](../../CHANGELOG.md), [run](../../run), [the web](https://example.org), "
        "[a page](../exact.md#workers)\n"
        "```md\n[changes](../../CHANGELOG.md)\n```\n"
    )
    origins = {page: ROOT / "docs/guides/page.md", tmp_path / "changelog.md": ROOT / "CHANGELOG.md"}
    (tmp_path / "changelog.md").write_text("# Changes\n")
    website("links").mend(origins, tmp_path)
    assert page.read_text() == (
        "[changes](../changelog.md), [run](../source/run.md), [the web](https://example.org), "
        "[a page](../exact.md#workers)\n```md\n[changes](../../CHANGELOG.md)\n```\n"
    )
    assert "def main(arguments)" in (tmp_path / "source/run.md").read_text()
