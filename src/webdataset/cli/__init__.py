"""The commands: `wl COMMAND`, and the table of them.

A command is one module of this package, named in COMMANDS. It has

- a docstring, whose first line says what the command does;
- `EXAMPLES`, at least two pairs of a command line and what it does, shown at the top of its help;
- `configure(parser)`, which adds its options, the common ones with the functions of `grammar`;
- `run(options) -> int | None`, which builds a pipeline and drains it, mostly with `flow`; None means 0.

`run` raises: `grammar.UsageError` for what the user got wrong (exit 2), the library's errors for what is wrong with the
data (exit 1). It prints results on stdout and nothing else; progress and summaries are `progress`'s. A module may
also have `OLD`, the flags it takes under its old names: see `old`.

Heavy modules are imported in `run`, so that help and completion are quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .streams import occupy_closed_streams
from .table import COMMANDS


def main(argv: Sequence[str] | None = None) -> int:
    """Run `wl` with these arguments, or the process's; the result is the exit code."""
    occupy_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        if words[1:2] and words[1] in COMMANDS:
            return main([words[1], "--help"])
        return _printed(family())
    if words[0] in ("-V", "--version"):
        from webdataset import __version__

        return _printed(f"wl (webdataset) {__version__}\n")
    from .running import run_command

    return run_command(words[0], words[1:])


def _printed(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        from .running import say_lost_stream

        return say_lost_stream("wl", error)
    return 0


def family() -> str:
    """All commands on one screen."""
    lines = ["usage: wl COMMAND [options] [URL...]"]
    group = ""
    for name, command in COMMANDS.items():
        lines.append(f"{command.group if command.group != group else '':<11}{name:<12}{command.help}")
        group = command.group
    lines.append("`wl COMMAND --help` shows examples and options. URLs: files, braces, globs, -")
    lines.append("and whatever the library reads; -o takes whatever it writes.")
    return "\n".join(lines) + "\n"
