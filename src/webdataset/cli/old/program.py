"""What an old program is, and the flags that several of them have."""

from __future__ import annotations

import argparse
import copy
from argparse import Namespace
from collections.abc import Callable
from typing import NamedTuple

from webdataset.cli import grammar
from webdataset.cli.grammar import Parser
from webdataset.cli.running import parser_of


class OldProgram(NamedTuple):
    """A command under an old name.

    `configure` adds the old flags, with the same `dest` as the new ones; options it does not add have the command's
    defaults. `run` may change the options before it runs the command; by default it is the command's.
    """

    command: str
    configure: Callable[[Parser], None]
    run: Callable[[Namespace], int | None] | None = None


NO_SIZE = "the size of a dataset need not be known"


class _WithoutEffect(argparse.Action):
    """A flag that is accepted but does nothing; `programs` warns when it is used."""

    def __call__(self, _: object, namespace: Namespace, __: object, flag: str | None = None) -> None:
        earlier = getattr(namespace, "without_effect", [])
        namespace.without_effect = [*earlier, f"{flag} has no effect: {self.const}"]


def without_effect(parser: Parser, *flags: str, why: str, metavar: str | None = None) -> None:
    """Add a flag that does nothing; with a `metavar` it takes a value."""
    parser.add_argument(
        *flags,
        action=_WithoutEffect,
        dest="without_effect",
        default=argparse.SUPPRESS,
        const=why,
        nargs=None if metavar else 0,
        metavar=metavar,
        help=f"no effect: {why}",
    )


def same(parser: Parser, command: str, /, **flags: str) -> None:
    """Add options of a command under old flags: `same(parser, "sort", by="-s --sortkey")`."""
    options = {action.dest: action for action in parser_of(command)._actions}
    for dest, words in flags.items():
        action = copy.copy(options[dest])
        action.option_strings = words.split()
        parser._add_action(action)


def progress_every(parser: Parser, flags: str) -> None:
    """Add a flag that shows progress every N samples."""
    parser.number(*flags.split(), dest="every", help="show progress every N samples")


def slice_to_count(options: Namespace) -> None:
    """Translate --slice LO:HI to skip and count."""
    options.count = None
    if not options.slice:
        return
    from webdataset.tools.transform.choosing import parsed_slice

    cut = parsed_slice(options.slice)
    if cut.step not in (None, 1):
        raise grammar.UsageError("a slice with a step is for `tarp cat --slice`")
    options.skip = cut.start or 0
    options.count = None if cut.stop is None else max(cut.stop - options.skip, 0)


def shuffle_first(parser: Parser) -> None:
    """Add --shuffle of programs that show a few samples."""
    parser.number("--shuffle", dest="shuffle_first", default=0, help="shuffle in a buffer of N samples")


def braceexpand(parser: Parser) -> None:
    """Add -b of tarcat and tarpcat."""
    parser.switch("-b", "--braceexpand", help="one input, with braces (they are always expanded)")


def check_braceexpand(options: Namespace) -> None:
    """Check that -b has exactly one input."""
    if options.braceexpand and len(options.inputs) != 1:
        raise grammar.UsageError("-b takes exactly one input; without -b, braces are expanded in any number of inputs")
