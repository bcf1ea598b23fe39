"""A page for each command, made from its help."""

from __future__ import annotations

from pathlib import Path

from webdataset.cli.pages import section
from webdataset.cli.running import command_module, parser_of
from webdataset.cli.table import COMMANDS


def write_pages(folder: Path) -> None:
    """Write `wl-NAME.md` for each command, and an index."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Commands",
        "",
        "`wl COMMAND`, or `python -m webdataset COMMAND`. [All on one page](../commands.md).",
        "",
    ]
    lines += ["| command | does |", "|---|---|"]
    for name, command in COMMANDS.items():
        (folder / f"wl-{name}.md").write_text(page(name))  # one of them is called index
        lines.append(f"| [`wl {name}`](wl-{name}.md) | {command.help} |")
    (folder / "index.md").write_text("\n".join(lines) + "\n")


def page(name: str) -> str:
    """The section of docs/commands.md as a page, and the help as the terminal shows it."""
    heading, *rest = section(name)
    help = parser_of(name, command_module(name)).format_help().rstrip()
    lines = [heading.removeprefix("#"), *rest, "", f"## As `wl {name} --help` prints it", "", "```text", help, "```"]
    return "\n".join(lines) + "\n"
