"""docs/commands.md."""

from __future__ import annotations

from pathlib import Path

from webdataset.cli.pages import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_the_commands_is_current() -> None:
    hint = "run: python -m webdataset.cli.pages docs/commands.md"
    assert (ROOT / "docs/commands.md").read_text() == page(), hint
