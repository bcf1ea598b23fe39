"""Run an old program: the console scripts `tarcat`, `wl-map`, `tarp` and the others call `main`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from webdataset.cli import terminal
from webdataset.cli.grammar import UsageError, add_storage, command_parser, defaults
from webdataset.cli.running import command_module, description, parser_of, run_parser, say_error
from webdataset.cli.streams import occupy_closed_streams
from webdataset.cli.table import COMMANDS

from . import inspecting, making, transforming
from .examples import EXAMPLES

PROGRAMS = {**transforming.PROGRAMS, **inspecting.PROGRAMS, **making.PROGRAMS}


Run = Callable[[Namespace], int | None]

SAME = {"tarcats": "tarcat", "tarscat": "tarcat"}


def examples(name: str) -> list[tuple[str, str]]:
    """Return the command lines at the top of a program's help, and what they do.

    >>> examples("tarscat")[0]
    ('tarscat in-{0..3}.tar > all.tar', 'four archives into one')
    """
    known = SAME.get(name, name)
    return [(line.replace(known, name), text) for line, text in EXAMPLES[known].items()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run an old program; the first argument is its name, as in sys.argv."""
    occupy_closed_streams()
    words = list(sys.argv if argv is None else argv)
    name = os.path.basename(words[0]).removesuffix(".exe")
    rest = words[1:]
    if name == "tarp":
        rest = [*rest[1:2], "-v", *rest[2:]] if rest[:1] == ["-v"] else rest
        subcommands = [name.removeprefix("tarp ") for name in PROGRAMS if name.startswith("tarp ")]
        if rest[:1] in (["-h"], ["--help"]):
            lines = [example for name in subcommands for example in examples(f"tarp {name}")]
            terminal.out("".join(f"  # {text}\n  {line}\n" for line, text in lines))
            return 0
        if not rest or rest[0] not in subcommands:
            return say_error("tarp", UsageError(f"usage: tarp {'|'.join(subcommands)} [options]"))
        name, rest = f"tarp {rest[0]}", rest[1:]
    return run_old(name, rest)


def run_old(name: str, argv: Sequence[str], observing: Callable[[Run], Run] = lambda run: run) -> int:
    """Run a program of the table; `observing` may put something around it."""
    program = PROGRAMS[name]
    module = command_module(program.command)
    text = f"{name} is an old name of `wl {program.command}`: {COMMANDS[program.command].help}."
    parser = command_parser(program.command, f"{description(module)}\n\n{text}", examples(name), prog=name)
    program.configure(parser)
    add_storage(parser)
    argv, more = module.split_words(argv) if hasattr(module, "split_words") else (argv, {})
    # they have always replaced existing shards; the leftover ones are named at the end
    given = defaults(parser_of(program.command, module)) | {"overwrite": "warn"} | more
    run = observing(program.run or module.run)
    return run_parser(parser, argv, _warning(name, run), given)


def _warning(name: str, run: Run) -> Run:
    """Return a function that warns of flags without effect, then runs the program."""

    def warn_and_run(options: Namespace) -> int | None:
        for text in getattr(options, "without_effect", ()) if not options.quiet else ():
            terminal.err(f"{name}: warning: {text}\n")
        return run(options)

    return warn_and_run
