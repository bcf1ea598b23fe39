"""The page of the commands, made from their parsers: `python -m webdataset.cli.pages docs/commands.md`."""

from __future__ import annotations

import argparse
import sys

from . import COMMANDS
from .grammar import Parser
from .old import PROGRAMS
from .running import about, command_module, parser_of


def page() -> str:
    """docs/commands.md."""
    lines = [
        "# Commands",
        "",
        "`wl COMMAND` (or `python -m webdataset COMMAND`) makes, inspects, transforms and tests datasets.",
        "This page is made by `python -m webdataset.cli.pages docs/commands.md`.",
        "",
        "| command | does | old names |",
        "|---|---|---|",
    ]
    for name, command in COMMANDS.items():
        old = ", ".join(f"`{program}`" for program, target in PROGRAMS.items() if target == name)
        lines.append(f"| [`wl {name}`](#wl-{name}) | {command.help} | {old} |")
    for name in COMMANDS:
        lines += ["", *_section(name)]
    return "\n".join(lines) + "\n"


def _section(name: str) -> list[str]:
    module = command_module(name)
    parser = parser_of(name, module)
    lines = [f"## wl {name}", "", about(module), "", "```sh"]
    for line, text in parser.examples:
        lines += [f"# {text}", line]
    lines += ["```", "", "| option | |", "|---|---|"]
    return lines + [_row(action) for action in _shown(parser)]


def _shown(parser: Parser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.dest != "help" and action.help is not argparse.SUPPRESS]


def _row(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
    flags = " ".join(f"`{flag}`" for flag in action.option_strings) or f"`{value or action.dest}`"
    value = f"[{value}]" if action.nargs == "?" else value
    takes = f" {value}" if action.option_strings and action.nargs != 0 and value else ""
    text = (action.help or "").replace("%%", "%")
    return f"| {_cell(flags + takes)} | {_cell(text)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as file:
            file.write(page())
    else:
        sys.stdout.write(page())
