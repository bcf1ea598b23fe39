"""The programs' old names: other names, and where the old flags differ other flags, for the same commands.

An old program runs the `run` of its command. Its flags are the command's, unless the command's module has

    OLD = {"tarsort": configure_tarsort}

where `configure_tarsort(parser)` declares the old flags under the same `dest` as the new ones; options it does not
declare have the command's defaults. `OLD_RUN = {"tarsort": run_tarsort}` may prepare the options first.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from . import COMMANDS
from .grammar import UsageError, command_parser, defaults
from .running import about, command_module, parser_of, run_parser, say_error

PROGRAMS = {
    "wl-map": "map",
    "wl-xargs": "xargs",
    "wl-cat": "cat",
    "wl-extract": "extract",
    "wl-dump": "dump",
    "wl-info": "info",
    "wl-test": "test",
    "wl-show": "show",
    "tar2tsv": "extract",
    "tar2json": "extract",
    "tarcat": "concat",
    "tarcats": "concat",
    "tarscat": "concat",
    "tarmix": "concat",
    "tarcreate": "create",
    "tarfirst": "cat",
    "tarpcat": "shuffle",
    "tarproc": "xargs",
    "tarshow": "show",
    "tarsort": "sort",
    "tarsplit": "split",
    "lines2tar": "create",
    "tarp create": "create",
    "tarp cat": "concat",
    "tarp proc": "xargs",
    "tarp sort": "sort",
    "tarp split": "split",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run an old program; the first argument is its name, as in sys.argv."""
    words = list(sys.argv if argv is None else argv)
    program = os.path.basename(words[0]).removesuffix(".exe")
    rest = words[1:]
    if program == "tarp":
        rest = [*rest[1:2], "-v", *rest[2:]] if rest[:1] == ["-v"] else rest
        commands = [name.removeprefix("tarp ") for name in PROGRAMS if name.startswith("tarp ")]
        if not rest or rest[0] not in commands:
            return say_error("tarp", UsageError(f"usage: tarp {'|'.join(commands)} [options]"))
        program, rest = f"tarp {rest[0]}", rest[1:]
    return run_old(program, rest)


def run_old(program: str, argv: Sequence[str]) -> int:
    """Run a program of the table."""
    name = PROGRAMS[program]
    module = command_module(name)
    new = parser_of(name, module)
    configure = getattr(module, "OLD", {}).get(program)
    run = getattr(module, "OLD_RUN", {}).get(program, module.run)
    if configure is None:
        new.prog = program
        return run_parser(new, argv, run)
    text = f"{about(module)}\n\n{program} is an old name of `wl {name}`: {COMMANDS[name].help}."
    parser = command_parser(name, text, [], prog=program)
    configure(parser)
    return run_parser(parser, argv, _telling(program, run), defaults(new))


def _telling(program: str, run: Callable[[Namespace], int | None]) -> Callable[[Namespace], int | None]:
    """The same, but flags that have no effect are named first."""

    def told(options: Namespace) -> int | None:
        for text in getattr(options, "without_effect", ()) if not options.quiet else ():
            sys.stderr.write(f"{program}: warning: {text}\n")
        return run(options)

    return told
