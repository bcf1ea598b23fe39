"""The page of the commands, made from their parsers: `python -m webdataset.cli.pages docs/commands.md`."""

from __future__ import annotations

import argparse
import sys

from .grammar import Parser
from .old.programs import PROGRAMS
from .running import about, command_module, parser_of
from .table import COMMANDS

SETS = """## Numbered shards

`-o train-%06d.tar`, or `{shard:06d}`, writes shards, each of which appears under its name when it is complete. If
shards of the pattern are there already, the command does not start (exit 2): a shorter new set would leave some of the
old one, which readers cannot tell from the new. `--force` replaces the set. Shards are replaced one by one; what is
left over of the old ones, and their indices, goes when the new set is complete, and stays if the command fails. Other
files are never touched, nor are numbers before `split --start N`. Inputs cannot be replaced while they are read.

A folder and an object store are listed, a web server is asked for one number after the other; commands (`pipe:`),
`ssh:` and schemes of your own are not looked at. The old programs (`tarsplit`, ...) replace as they always did, and
name what is left over. One archive, `-o train.tar`, is replaced when the new one is complete.

A command that fails or is interrupted says which complete shards it leaves; with `--force` also which of the old ones.

Two samples in a row with the same key would be read as one. That is an error, which names the key; `--rekey
'{key}-{index}'` gives new keys."""


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
    lines += ["", SETS]
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
