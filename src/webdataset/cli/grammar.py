"""The grammar: options that mean the same in every command.

>>> parser = command_parser("concat", "concatenate", [])
>>> add_inputs(parser)
>>> add_selection(parser)
>>> options = parser.parse_args(["a.tar", "-c", "1e1"])
>>> options.inputs, options.count
(['a.tar'], 10)
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

from webdataset.base.units import number_of_bytes


class UsageError(Exception):
    """What the user asked for cannot be done; the message ends with the cure. Exit code 2."""


class Parser(argparse.ArgumentParser):
    """A parser whose help begins with examples and whose errors are raised, not printed."""

    examples: Iterable[tuple[str, str]] = ()
    with_files: frozenset[str] = frozenset()
    """Flags that may be followed by a file."""

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super().parse_intermixed_args(files_attached(args or (), self.with_files), namespace)

    def format_help(self) -> str:
        shown = [f"  # {text}\n  {line}\n" for line, text in self.examples]
        return ("examples:\n" + "\n".join(shown) + "\n" if shown else "") + super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` shows the options")


def command_parser(name: str, about: str, examples: Iterable[tuple[str, str]], prog: str = "") -> Parser:
    """The parser of one command, without options yet."""
    parser = Parser(
        prog=prog or f"wl {name}",
        description=about,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.examples = examples
    return parser


# -- the common options ------------------------------------------------------------------------------


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """URLs to read: any number, with braces and globs, `-` or nothing is stdin; and how they are read."""
    parser.add_argument(
        "inputs", nargs="*", metavar="URL", help="shards to read: files, URLs, braces, globs; - or nothing is stdin"
    )
    add_concatenated(parser)


def add_concatenated(parser: argparse.ArgumentParser) -> None:
    """--concatenated: where a shard ends."""
    parser.add_argument(
        "--concatenated",
        action="store_true",
        help="shards may be several archives put together with `cat`: read on behind an end marker",
    )


def add_output(parser: argparse.ArgumentParser, *, sharded: bool = True) -> None:
    """-o URL, and how a pattern is split into shards."""
    parser.add_argument(
        "-o", "--output", metavar="URL", default="-", help="where to write; %%06d or {shard:06d} in it makes shards"
    )
    if sharded:
        add_shard_size(parser)


def add_shard_size(parser: argparse.ArgumentParser) -> None:
    """--maxcount and --maxsize of a shard, and --force."""
    parser.add_argument("--maxcount", metavar="N", type=count, default=100_000, help="most samples in a shard (100000)")
    parser.add_argument(
        "--maxsize", metavar="BYTES", type=size, default=3_000_000_000, help="about the most bytes in a shard (3G)"
    )
    parser.add_argument(
        "--force",
        dest="overwrite",
        action="store_const",
        const=True,
        default=False,
        help="replace the shards of the pattern that are there; what is left over of them goes in the end",
    )


def add_rekey(parser: argparse.ArgumentParser) -> None:
    """--rekey: new keys for what is written."""
    parser.add_argument(
        "--rekey", metavar="PATTERN", help="new keys: {index:09d} or %%09d counts, {key} is the old key, # is %%09d"
    )


def add_selection(parser: argparse.ArgumentParser, *, short_count: bool = True) -> None:
    """-S, -s and -c: which samples. Skipping and counting come after the condition."""
    parser.add_argument("-S", "--select", metavar="EXPR", help="only samples for which this Python expression is true")
    parser.add_argument("-s", "--skip", metavar="N", type=count, default=0, help="leave out the first N samples")
    names = ["-c", "--count"] if short_count else ["--count"]
    parser.add_argument(*names, metavar="N", type=count, default=None, help="stop after N samples")


def add_fields(parser: argparse.ArgumentParser, help: str = "") -> None:
    """-f: which fields."""
    text = help or 'fields to keep, "jpg;png cls"; new:old1,old2 renames'
    parser.add_argument("-f", "--fields", metavar="SPEC", help=text)


def add_decode(parser: argparse.ArgumentParser) -> None:
    """-d: what expressions see of images."""
    parser.add_argument(
        "-d",
        "--decode",
        metavar="SPEC",
        default="rgb",
        help="how code sees images: rgb, rgb8, l8, pil, pixels (as stored)...; raw = bytes",
    )


def add_processes(parser: argparse.ArgumentParser, *, unordered: bool = True) -> None:
    """-P N or -p N: how many cores."""
    parser.add_argument(
        "-P", "-p", "--processes", metavar="N", type=count, default=0, help="use N cores; the order stays"
    )
    if unordered:
        parser.add_argument("--unordered", action="store_true", help="give samples as they come, with -P")


def add_memory(parser: argparse.ArgumentParser, default: str) -> None:
    """What commands that go through the disk need."""
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=size,
        default=size(default),
        help=f"samples held at once ({default})",
    )
    parser.add_argument("--tmpdir", metavar="DIR", help="folder for temporary files")


def add_errors(parser: argparse.ArgumentParser) -> None:
    """--on-error: what a bad sample or shard means."""
    parser.add_argument(
        "--on-error",
        choices=("skip", "stop", "raise"),
        default="raise",
        help="a bad sample or shard: leave it out, end there, or fail (raise)",
    )


def add_progress(parser: argparse.ArgumentParser, *, json: bool = True) -> None:
    """--progress, -q, -v; and --json unless the command has its own."""
    parser.add_argument("--progress", action="store_true", help="show progress also when stderr is no terminal")
    parser.add_argument("-q", "--quiet", action="store_true", help="neither progress nor summary")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more; errors with their traceback")
    if json:
        parser.add_argument("--json", action="store_true", help="progress and summary as lines of JSON on stderr")


def add_storage(parser: argparse.ArgumentParser) -> None:
    """--storage KEY=VALUE: how servers and stores are reached."""
    parser.add_argument(
        "--storage",
        metavar="KEY=VALUE",
        type=storage_option,
        action="append",
        help="how stores are reached: endpoint, profile, anonymous, patience, ...; more than once",
    )


def add_common(parser: argparse.ArgumentParser, *, short_count: bool = True) -> None:
    """What every command that reads samples takes: inputs, -S -s -c, --on-error, progress."""
    add_inputs(parser)
    add_selection(parser, short_count=short_count)
    add_errors(parser)
    add_progress(parser)


class _WithoutEffect(argparse.Action):
    """An old flag that has nothing left to do; `old` says so when it is used."""

    def __call__(self, _: Any, namespace: Any, __: Any, flag: str | None = None) -> None:
        told = getattr(namespace, "without_effect", [])
        namespace.without_effect = [*told, f"{flag} has no effect: {self.const}"]


def add_without_effect(parser: argparse.ArgumentParser, *flags: str, why: str, metavar: str | None = None) -> None:
    """An old flag that is taken and told to have no effect; with a `metavar` it takes a value."""
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


def add_shuffle_first(parser: argparse.ArgumentParser, *flags: str) -> None:
    """--shuffle N of the old programs that show one or a few samples."""
    parser.add_argument(
        *flags, dest="shuffle_first", metavar="N", type=count, default=0, help="shuffle in a buffer of N samples"
    )


NO_SIZE = "a dataset need not be told how large it is"


def add_flag_with_file(parser: argparse.ArgumentParser, flag: str, *, help: str) -> None:
    """A flag that may be followed by a file. A folder behind it is an input, as it is behind any other flag."""
    assert isinstance(parser, Parser)
    parser.with_files |= {flag}
    parser.add_argument(flag, nargs="?", const=True, default=False, metavar="FILE", help=help)


def files_attached(words: Iterable[str], flags: Collection[str]) -> list[str]:
    """Words in which a flag and its file are one; flags without a file come last, where nothing follows them.

    >>> files_attached(["--classes", "list.txt", "/", "-v"], ["--classes"])
    ['--classes=list.txt', '/', '-v']
    >>> files_attached(["--classes", "/", "-v"], ["--classes"])
    ['/', '-v', '--classes']
    """
    attached: list[str] = []
    alone: list[str] = []
    flag = ""
    for word in words:
        if flag and word[:1] != "-" and not os.path.isdir(word):
            attached.append(f"{flag}={word}")
            flag = ""
            continue
        alone += [flag] if flag else []
        flag = word if word in flags else ""
        attached += [] if flag else [word]
    return attached + alone + ([flag] if flag else [])


# -- values ------------------------------------------------------------------------------------------


def count(text: str) -> int:
    """A number of things; 1e6 is fine.

    >>> count("1e3"), count("7")
    (1000, 7)
    """
    try:
        value = int(text)
    except ValueError:
        value = _whole(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"a number of at least 0 is needed, got {text!r}")
    return value


def positive(text: str) -> int:
    """A number of things, at least one.

    >>> positive("8")
    8
    """
    value = count(text)
    if not value:
        raise argparse.ArgumentTypeError(f"a number of at least 1 is needed, got {text!r}")
    return value


def size(text: str) -> int:
    """A number of bytes; 1e9, 1G and 1Gi are fine.

    >>> size("1e9"), size("2k"), size("1.5KiB")
    (1000000000, 2000, 1536)
    """
    try:
        value = number_of_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not value:
        raise argparse.ArgumentTypeError(f"a size of at least 1 is needed, got {text!r}")
    return value


def storage_option(text: str) -> tuple[str, str]:
    """An option for servers and stores, checked when all of them are known.

    >>> storage_option("endpoint=http://localhost:9000")
    ('endpoint', 'http://localhost:9000')
    """
    from webdataset.storage.options import StorageOptions

    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"write it as in patience=10, not {text!r}")
    try:
        StorageOptions.parsed([(name, value)])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name, value


def seconds(text: str) -> float:
    """A time above 0.

    >>> seconds("0.5")
    0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"a number of seconds above 0 is needed, got {text!r}")
    return value


def _whole(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value != int(value):
        raise argparse.ArgumentTypeError(f"a whole number is needed, got {text!r}")
    return int(value)


def defaults(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """What each option is when nothing is given."""
    return {
        action.dest: action.default if action.nargs != "*" else []
        for action in parser._actions
        if action.default is not argparse.SUPPRESS
    } | parser._defaults  # what set_defaults gave, also for options that have no flag here
