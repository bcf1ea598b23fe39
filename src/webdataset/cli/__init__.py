"""The command line, `wl COMMAND`.

To add a command, write a module `commands/NAME.py` and add a line to COMMANDS in `table`. Help, completion and
docs/commands.md are made from them. The module has

- a docstring, shown in its help, whose first line says what the command does;
- `EXAMPLES`, at least two pairs of a command line and what it does, shown at the top of its help;
- `configure(parser)`, which adds its options, the common ones with the functions of `grammar`;
- `run(options) -> int | None`, which builds a pipeline and drains it, mostly with `flow`; None means 0.

`run` raises `grammar.UsageError` for a wrong command line (exit 2) and the library's errors for bad data (exit 1). It
prints results on stdout and nothing else; progress and summaries are left to `progress`. Heavy modules are imported in
`run`, so that help and completion are quick. The programs of earlier packages are in `old`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import terminal
from .streams import occupy_closed_streams
from .table import COMMANDS


def main(argv: Sequence[str] | None = None) -> int:
    """Run `wl` with these arguments, by default the process's, and return the exit code."""
    try:
        return _run(argv)
    except KeyboardInterrupt as interrupt:  # while the command was being imported
        from .running import say_interrupted

        return say_interrupted("wl", interrupt)


def _run(argv: Sequence[str] | None) -> int:
    occupy_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        if words[1:2] and words[1] in COMMANDS:
            return _run([words[1], "--help"])
        return _print(overview())
    if words[0] in ("-V", "--version"):
        from webdataset import __version__

        return _print(f"wl (webdataset) {__version__}\n")
    from .running import run_command

    return run_command(words[0], words[1:])


def _print(text: str) -> int:
    try:
        terminal.out(text)
        sys.stdout.flush()
    except OSError as error:
        from .running import say_lost_stream

        return say_lost_stream("wl", error)
    return 0


def overview() -> str:
    """Return the list of all commands, which fits on one screen."""
    lines = ["usage: wl COMMAND [options] [URL...]"]
    group = ""
    for name, command in COMMANDS.items():
        lines.append(f"{command.group if command.group != group else '':<11}{name:<12}{command.help}")
        group = command.group
    lines.append("`wl COMMAND --help` shows examples and options. URLs: files, braces, globs,")
    lines.append("- for stdin, or anything the library opens; -o takes anything it can write to.")
    return "\n".join(lines) + "\n"
