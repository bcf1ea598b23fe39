"""What an old program is, and the flags that several of them have."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable
from typing import Any, NamedTuple

from webdataset.cli import grammar
from webdataset.cli.grammar import Parser


class Program(NamedTuple):
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

    def __call__(self, _: Any, namespace: Any, __: Any, flag: str | None = None) -> None:
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


def inputs(parser: Parser, name: str, help: str) -> None:
    """Add inputs other than shards."""
    parser.add_argument("inputs", nargs="*", metavar=name, help=f"{help}; - for stdin")


def output(parser: Parser, *more: str) -> None:
    """Add -o and --output, and other names for it."""
    parser.add_argument("-o", *more, "--output", dest="output", default="-", metavar="URL", help="where to write")


def verbose(parser: Parser) -> None:
    """Add -v."""
    parser.switch("-v", "--verbose", help="more messages")


def progress_every(parser: Parser, *flags: str) -> None:
    """Add a flag that shows progress every N samples."""
    parser.number(*flags, dest="every", help="show progress every N samples")


def shuffle(parser: Parser, *flags: str, **more: Any) -> None:
    """Add a flag for a shuffle buffer."""
    parser.number(*flags, default=0, help="shuffle in a buffer of N samples", **more)


def field_spec(parser: Parser, *flags: str) -> None:
    """Add a flag that chooses fields."""
    parser.add_argument(*flags, dest="fields", metavar="SPEC", help='fields to keep: "jpg;png cls"; new:old renames')


def file_list(parser: Parser, *flags: str) -> None:
    """Add a flag for a file that lists inputs."""
    parser.add_argument(*flags, dest="list", metavar="FILE", help="a file with URLs to read, one per line")


def sample_slice(parser: Parser) -> None:
    """Add --slice."""
    parser.add_argument("--slice", metavar="LO:HI:STEP", help="only these samples, numbered from 0")


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


def braceexpand(parser: Parser) -> None:
    """Add -b of tarcat and tarpcat."""
    parser.switch("-b", "--braceexpand", help="one input, with braces (they are always expanded)")


def check_braceexpand(options: Namespace) -> None:
    """Check that -b has exactly one input."""
    if options.braceexpand and len(options.inputs) != 1:
        raise grammar.UsageError("-b takes exactly one input; without -b, braces are expanded in any number of inputs")
