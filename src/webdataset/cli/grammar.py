"""Options that mean the same in every command, and the types of their values.

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
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from webdataset.base.units import number_of_bytes


class UsageError(Exception):
    """The command line is wrong; the message ends with what to do. Exit code 2."""


SECTIONS = ("input", "which samples", "output", "speed and memory", "errors and progress")
"""The sections of a command's help, after its own options."""


class Parser(argparse.ArgumentParser):
    """A parser whose help begins with examples and whose errors are raised, not printed."""

    examples: Iterable[tuple[str, str]] = ()
    with_files: frozenset[str] = frozenset()
    """Flags that may be followed by a file."""
    _section: Any = None

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Show the arguments that are added inside this block together, under a title."""
        found = next((group for group in self._action_groups if group.title == title), None)
        outer, self._section = self._section, found or self.add_argument_group(title)
        try:
            yield
        finally:
            self._section = outer

    def add_argument(self, *flags: Any, **more: Any) -> Any:
        """Add an argument, to the section that is open, if one is."""
        if self._section is not None:
            return self._section.add_argument(*flags, **more)
        return super().add_argument(*flags, **more)

    def switch(self, *flags: str, help: str, **more: object) -> None:
        """Add a flag without a value."""
        self.add_argument(*flags, action="store_true", help=help, **more)

    def number(self, *flags: str, help: str, **more: object) -> None:
        """Add a flag whose value is a count: `N`, at least 0, None by default."""
        self.add_argument(*flags, help=help, **{"metavar": "N", "type": count, **more})

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super().parse_intermixed_args(attach_files(args or (), self.with_files), namespace)

    def format_help(self) -> str:
        self._action_groups.sort(key=lambda group: SECTIONS.index(group.title) if group.title in SECTIONS else -1)
        shown = [f"  # {text}\n  {line}\n" for line, text in self.examples]
        return ("examples:\n" + "\n".join(shown) + "\n" if shown else "") + super().format_help()

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")


def command_parser(name: str, description: str, examples: Iterable[tuple[str, str]], prog: str = "") -> Parser:
    """Return the parser of a command, without options."""
    parser = Parser(
        prog=prog or f"wl {name}",
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.examples = examples
    return parser


# -- the common options ------------------------------------------------------------------------------


def add_inputs(parser: Parser) -> None:
    """Add the URLs to read, and --concatenated."""
    with parser.section("input"):
        parser.add_argument(
            "inputs", nargs="*", metavar="URL", help="shards to read: files, URLs, braces, globs; - or none for stdin"
        )
        add_concatenated(parser)


def add_concatenated(parser: Parser) -> None:
    """Add --concatenated."""
    with parser.section("input"):
        parser.switch("--concatenated", help="shards may be several archives joined with `cat`: read past end markers")


MANIFEST = "yaml"
"""The format in which what would be submitted is printed."""


def add_output(parser: Parser, *, help: str = "where to write; %%06d or {shard:06d} in it makes shards") -> None:
    """Add -o."""
    with parser.section("output"):
        parser.add_argument("-o", "--output", metavar="URL", action=_Output, default="-", help=help)


class _Output(argparse.Action):
    """Stores where to write; of two, the one that is `yaml` is the format of a manifest, as kubectl has it."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: object, flag: str | None = None) -> None:  # noqa: ARG002
        both = {namespace.output, value} - {self.default}
        if hasattr(namespace, "manifest") and MANIFEST in both and len(both) == 2:
            namespace.manifest = MANIFEST
            value = (both - {MANIFEST}).pop()
        namespace.output = value


def add_shards(parser: Parser) -> None:
    """Add -o, and --maxcount, --maxsize and --force for a set of numbered shards."""
    add_output(parser)
    add_shard_size(parser)


def add_shard_size(parser: Parser) -> None:
    """Add --maxcount, --maxsize and --force."""
    with parser.section("output"):
        parser.number("--maxcount", default=100_000, help="maximum number of samples per shard (100000)")
        parser.add_argument(
            "--maxsize",
            metavar="BYTES",
            type=size,
            default=3_000_000_000,
            help="approximate maximum size of a shard (3G)",
        )
        parser.switch(
            "--force", dest="overwrite", help="replace existing shards of this pattern; delete leftover ones at the end"
        )


def add_rekey(parser: Parser) -> None:
    """Add --rekey."""
    with parser.section("output"):
        parser.add_argument(
            "--rekey",
            metavar="PATTERN",
            help="new keys: {index:09d} or %%09d is a counter, {key} the old key; # is short for %%09d",
        )


def add_selection(parser: Parser, *, short_count: bool = True, count_help: str = "stop after N samples") -> None:
    """Add -S, -s and -c. Skipping and counting come after the condition."""
    with parser.section("which samples"):
        parser.add_argument(
            "-S", "--select", metavar="EXPR", help="only samples for which this Python expression is true"
        )
        parser.number("-s", "--skip", default=0, help="skip the first N samples")
        parser.number(*(["-c"] if short_count else []), "--count", help=count_help)
        parser.switch("--allow-empty", help="it is no error if no sample is selected")


def add_fields(parser: Parser, help: str = 'fields to keep: "jpg;png cls"; new:old1,old2 renames') -> None:
    """Add -f."""
    parser.add_argument("-f", "--fields", metavar="SPEC", help=help)


def add_seed(parser: Parser) -> None:
    """Add --seed."""
    parser.add_argument("--seed", metavar="N", type=int, help="random seed, for the same order every time")


def add_processes(parser: Parser, *, unordered: bool = True) -> None:
    """Add -P (and -p), and --unordered."""
    with parser.section("speed and memory"):
        parser.number("-P", "-p", "--processes", default=0, help="use N processes; order is preserved")
        if unordered:
            parser.switch("--unordered", help="with -P, write samples as they are finished, in any order")


def add_memory(parser: Parser, default: str) -> None:
    """Add --memory and --tmpdir, for commands that use temporary files."""
    with parser.section("speed and memory"):
        parser.add_argument(
            "--memory",
            metavar="BYTES",
            type=size,
            default=size(default),
            help=f"memory for samples; the rest goes to temporary files ({default})",
        )
        parser.add_argument("--tmpdir", metavar="DIR", help="folder for temporary files")


def add_errors(parser: Parser) -> None:
    """Add --on-error."""
    with parser.section("errors and progress"):
        parser.add_argument(
            "--on-error",
            choices=("skip", "stop", "raise"),
            default="raise",
            help="for a bad sample or shard: skip it, stop there, or fail (raise)",
        )


def add_progress(parser: Parser, *, json: bool = True) -> None:
    """Add --progress, -q and -v; and --json unless the command has its own."""
    with parser.section("errors and progress"):
        parser.switch("--progress", help="show progress even if stderr is not a terminal")
        parser.switch("-q", "--quiet", help="no progress and no summary")
        parser.switch("-v", "--verbose", help="more messages; tracebacks for errors")
        if json:
            parser.switch("--json", help="progress and summary as JSON Lines on stderr")


def add_storage(parser: Parser) -> None:
    """Add --storage KEY=VALUE."""
    with parser.section("input"):
        parser.add_argument(
            "--storage",
            metavar="KEY=VALUE",
            type=storage_option,
            action="append",
            help="storage option: endpoint, profile, anonymous, patience, ...; may be repeated",
        )


def add_producers(parser: Parser) -> None:
    """Add the addresses of producers, or of a stream, and what lets this program in."""
    text = "producers, tcp://host:port with braces; or a stream, zsub://host:port"
    parser.add_argument("inputs", nargs="+", metavar="URL", help=text)
    parser.add_argument("--keys", metavar="FILE", help="a trainer's keys")
    parser.switch("--insecure", help="no keys, although the address is another machine's")


def add_common(parser: Parser, *, short_count: bool = True) -> None:
    """Add what every command that reads samples takes: inputs, -S -s -c, --on-error, progress."""
    add_inputs(parser)
    add_selection(parser, short_count=short_count)
    add_errors(parser)
    add_progress(parser)


def add_flag_with_file(parser: Parser, flag: str, *, help: str) -> None:
    """Add a flag that may be followed by a file. A folder after it is an input, as after any other flag."""
    parser.with_files |= {flag}
    parser.add_argument(flag, nargs="?", const=True, default=False, metavar="FILE", help=help)


def attach_files(words: Iterable[str], flags: Collection[str]) -> list[str]:
    """Join each of these flags with the file after it; flags without a file go to the end, where nothing follows them.

    >>> attach_files(["--classes", "list.txt", "/", "-v"], ["--classes"])
    ['--classes=list.txt', '/', '-v']
    >>> attach_files(["--classes", "/", "-v"], ["--classes"])
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
    """Parse a number of things; 1e6 is fine.

    >>> count("1e3"), count("7")
    (1000, 7)
    """
    try:
        value = int(text)
    except ValueError:
        number = _number(text)
        if not math.isfinite(number) or number != int(number):
            raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None
        value = int(number)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value


def positive(text: str) -> int:
    """Parse a number of things, at least one.

    >>> positive("8")
    8
    """
    value = count(text)
    if not value:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return value


def size(text: str) -> int:
    """Parse a number of bytes; 1e9, 1G and 1Gi are fine.

    >>> size("1e9"), size("2k"), size("1.5KiB")
    (1000000000, 2000, 1536)
    """
    try:
        value = number_of_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not value:
        raise argparse.ArgumentTypeError(f"expected a size of at least 1, got {text!r}")
    return value


def storage_option(text: str) -> tuple[str, str]:
    """Parse and check one storage option.

    >>> storage_option("endpoint=http://localhost:9000")
    ('endpoint', 'http://localhost:9000')
    """
    from webdataset.storage.options import StorageOptions

    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected an option and its value, such as patience=10, got {text!r}")
    try:
        StorageOptions.parsed([(name, value)])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name, value


def seconds(text: str) -> float:
    """Parse a time above 0.

    >>> seconds("0.5")
    0.5
    """
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def defaults(parser: Parser) -> dict[str, Any]:
    """Return the default of each option, and what `set_defaults` set for options that have no flag here."""
    return {
        action.dest: action.default if action.nargs != "*" else []
        for action in parser._actions
        if action.default is not argparse.SUPPRESS
    } | parser._defaults
