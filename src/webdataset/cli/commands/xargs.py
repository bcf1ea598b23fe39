"""Run a shell command on each sample, in a folder of its own.

The folder holds a file `sample.EXT` for each field, and the key in `sample.__key__`. The files `sample.EXT` that are
there when the command ends are the new sample; if there are none, the sample is dropped. Subfolders with such files, or
files `sample-000001.EXT`, become several samples in its place, with keys `KEY/NAME`. The command's output goes to
stderr.
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from webdataset.cli import grammar, terminal

from .map import split_count_and_code

if TYPE_CHECKING:
    from webdataset.base.stages import Stage

EXAMPLES = (
    ("wl xargs -P 4 -e 'mogrify -edge 5 sample.jpeg' in.tar -o out.tar", "edge detection, using four processes"),
    ("wl xargs -e 'convert sample.png sample.jpeg && rm sample.png' in.tar -o out.tar", "PNG to JPEG"),
)
SAME = ("base", "shell", "separator", "add", "subfolders", "ignore_status", "keep")
"""Options that `run_commands` has under the same names."""


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser, short_count=False)
    add = parser.add_argument
    with parser.section("which samples"):
        add(
            "-c",
            dest="count_or_code",
            metavar="N",
            help="as --count; anything but a number is --command, as it was once",
        )
    add("-e", "--command", metavar="CMD", help="the shell command")
    add("--script", metavar="FILE", help="a file with the commands")
    add("--base", default="sample", metavar="NAME", help="base name of the files (sample)")
    add("--shell", default="bash", metavar="PROGRAM", help="program that runs the command (bash)")
    add("--separator", default="/", metavar="TEXT", help="between a key and the names of its new samples (/)")
    parser.switch("--add", help="add the new samples to the original one instead of replacing it")
    parser.switch("--subfolders", help="make samples of subfolders only")
    parser.switch("--ignore-status", help="use the files of a command even if it failed")
    add("--include", metavar="REGEX", help="use only files whose name matches, in any part")
    add("--exclude", metavar="REGEX", help="do not use files whose name matches, in any part")
    add("--add-log", metavar="FIELD", help="store the command's output in this field")
    add("--tmpdir", metavar="DIR", help="where to make the folders")
    parser.switch("--keep", help="do not delete the folders")
    grammar.add_fields(parser, 'fields to write to files: "jpg;png cls"; the others are dropped')
    grammar.add_processes(parser)
    grammar.add_rekey(parser)
    grammar.add_shards(parser)


def run(options: Namespace) -> int:
    from webdataset.cli.flow import drain, reading

    split_count_and_code(options, "command")
    return drain(options, reading(options).compose(command_stage(options)))


def command_stage(options: Namespace, output: Callable[[bytes], object] | None = None) -> Stage:
    """Return the stage that runs the command; its output goes to `output`, by default stderr."""
    from webdataset.cli.flow import handler_of
    from webdataset.tools.transform.choosing import field_chooser
    from webdataset.tools.transform.shell import run_commands

    missing_ok = getattr(options, "fieldmode", "error") == "ignore"
    return run_commands(
        _command(options),
        processes=options.processes,
        ordered=not options.unordered,
        handler=handler_of(options),
        output=output or (None if options.quiet else write_stderr),
        only=field_chooser(options.fields, missing_ok=missing_ok) if options.fields else None,
        include=_regex(options.include, "--include") or "",
        exclude=_regex(options.exclude, "--exclude"),
        log=options.add_log,
        workdir=options.tmpdir,
        **{name: getattr(options, name) for name in SAME},
    )


def _regex(text: str | None, flag: str) -> str | None:
    try:
        re.compile(text or "")
    except re.error as error:
        raise grammar.UsageError(f"{flag} {text!r} is not a regular expression: {error}") from None
    return text


def _command(options: Namespace) -> str:
    if bool(options.command) == bool(options.script):
        raise grammar.UsageError("one command is needed: with -c, or in a file with --script")
    if options.command:
        return str(options.command)
    try:
        with open(options.script, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise grammar.UsageError(f"cannot read the script {options.script!r}: {error.strerror}") from None


def write_stderr(data: bytes) -> None:
    """Write bytes to stderr."""
    buffer: BinaryIO | None = getattr(sys.stderr, "buffer", None)
    if buffer is None:
        terminal.err(data.decode("utf-8", "replace"))
    else:
        buffer.write(data)
        buffer.flush()
