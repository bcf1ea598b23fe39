"""Run a shell command for each sample, in a folder of its own.

The folder holds a file `sample.EXT` for each field, and the key in `sample.__key__`. The files `sample.EXT` that are
there afterwards are the new sample; none drops it. Folders with such files, or files `sample-000001.EXT`, become
several samples in its place, with keys `KEY/NAME`. What the command prints goes to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from webdataset.cli import grammar

from .map import split_count_and_code

EXAMPLES = (
    ("wl xargs -P 4 -c 'mogrify -edge 5 sample.jpeg' in.tar -o out.tar", "edge detection on four cores"),
    ("wl xargs -c 'convert sample.png sample.jpeg && rm sample.png' in.tar -o out.tar", "PNG to JPEG"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    grammar.add_common(parser, short_count=False)
    parser.add_argument(
        "-c", dest="count_or_code", metavar="N|CMD", help="a number is --count, anything else is --command"
    )
    parser.add_argument("--command", metavar="CMD", help="the shell command")
    parser.add_argument("--script", metavar="FILE", help="a file with the commands")
    parser.add_argument("--base", default="sample", metavar="NAME", help="what the files are called (sample)")
    parser.add_argument("--shell", default="bash", metavar="PROGRAM", help="what runs the command (bash)")
    parser.add_argument(
        "--separator", default="/", metavar="TEXT", help="between a key and the names of its samples (/)"
    )
    parser.add_argument("--add", action="store_true", help="new samples come beside the original, not in its place")
    parser.add_argument("--subfolders", action="store_true", help="only folders are samples")
    parser.add_argument("--ignore-status", action="store_true", help="take the files of a command that failed")
    parser.add_argument("--include", metavar="REGEX", help="only files whose name has a part that matches come back")
    parser.add_argument("--exclude", metavar="REGEX", help="files whose name has a part that matches do not come back")
    parser.add_argument("--add-log", metavar="FIELD", help="what the command prints becomes this field")
    parser.add_argument("--tmpdir", metavar="DIR", help="where the folders are made")
    parser.add_argument("--keep", action="store_true", help="leave the folders where they are")
    grammar.add_fields(parser, 'fields to write into files, "jpg;png cls"; the others are dropped')
    grammar.add_processes(parser)
    grammar.add_rekey(parser)
    grammar.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Run the command for every sample."""
    from webdataset.cli.flow import drain, reading

    split_count_and_code(options, "command")
    return drain(options, reading(options).compose(commands(options)))


def commands(options: argparse.Namespace, say: Callable[[bytes], object] | None = None) -> Any:
    """The stage that runs the command; what it prints goes to `say`, or to stderr."""
    from webdataset.cli.flow import handler_of
    from webdataset.tools.transform.choosing import field_chooser
    from webdataset.tools.transform.shell import run_commands

    missing_ok = getattr(options, "fieldmode", "error") == "ignore"
    return run_commands(
        _command(options),
        processes=options.processes,
        ordered=not options.unordered,
        handler=handler_of(options),
        tell=say or (None if options.quiet else tell),
        base=options.base,
        shell=options.shell,
        separator=options.separator,
        add=options.add,
        subfolders=options.subfolders,
        ignore_status=options.ignore_status,
        only=field_chooser(options.fields, missing_ok=missing_ok) if options.fields else None,
        include=_regex(options.include, "--include") or "",
        exclude=_regex(options.exclude, "--exclude"),
        log=options.add_log,
        workdir=options.tmpdir,
        keep=options.keep,
    )


def _regex(text: str | None, flag: str) -> str | None:
    import re

    try:
        re.compile(text or "")
    except re.error as error:
        raise grammar.UsageError(f"{flag} {text!r} is no regular expression: {error}") from None
    return text


def _command(options: argparse.Namespace) -> str:
    if bool(options.command) == bool(options.script):
        raise grammar.UsageError("give one command: with -c, or in a file with --script")
    if options.command:
        return str(options.command)
    try:
        with open(options.script, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise grammar.UsageError(f"cannot read the script {options.script!r}: {error.strerror}") from None


def tell(data: bytes) -> None:
    """Pass on what a command says."""
    buffer: Any = getattr(sys.stderr, "buffer", None)
    if buffer is None:
        sys.stderr.write(data.decode("utf-8", "replace"))
    else:
        buffer.write(data)
        buffer.flush()


# -- old names ---------------------------------------------------------------------------------------

ERRORS = {"skip": "skip", "ignore": "raise", "abort": "raise"}


def _configure_old(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--command", metavar="CMD")
    parser.add_argument("-b", "--base", default="sample", metavar="NAME")
    parser.add_argument("-w", "--working_dir", metavar="DIR", help="where the folders are made; {pid} is our number")
    parser.add_argument("-P", "-p", "--parallel", dest="processes", type=grammar.count, default=0, metavar="N")
    parser.add_argument("-o", "--output", default="-", metavar="URL")
    parser.add_argument("-e", "--error-handling", choices=tuple(ERRORS), default="skip")
    parser.add_argument("--interpreter", dest="shell", default="bash", metavar="PROGRAM")
    parser.add_argument("--count", metavar="N|LO,HI", help="stop after N samples, or take those from LO to before HI")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-q", "--silent", "--quiet", dest="quiet", action="store_true")


def configure_wl_xargs(parser: argparse.ArgumentParser) -> None:
    """wl-xargs."""
    _configure_old(parser)
    parser.add_argument("-S", "--script", metavar="FILE")
    parser.add_argument("-f", "--fields", metavar="SPEC")
    parser.add_argument("-F", "--fieldmode", choices=("ignore", "error"), default="error", help="a missing field of -f")
    parser.add_argument("-E", "--exclude", metavar="REGEX", help="files that match do not come back")
    parser.add_argument("-I", "--include", metavar="REGEX", help="only files that match come back")
    parser.add_argument("-s", "--separator", default="/", metavar="TEXT")


def configure_tarproc(parser: argparse.ArgumentParser) -> None:
    """tarproc."""
    _configure_old(parser)
    parser.add_argument("-s", "--script", metavar="FILE")
    parser.add_argument("-S", "--subdirs", dest="subfolders", action="store_true")
    parser.add_argument("-O", "--command-output", metavar="FILE", help="where what commands print goes (stderr)")
    parser.add_argument("--add-log", metavar="FIELD", help="what the command prints becomes this field")
    parser.add_argument("--mode", choices=("tar", "lines", "pages", "keys"), default="tar", help=MODES)
    parser.add_argument("--debug", action="store_true", help="say more, and keep the folders")
    parser.add_argument("--keepdir", dest="keep", action="store_true", help="leave the folders where they are")
    parser.add_argument("--direct-output", action="store_true", help="what commands print is never held back anyway")


def run_old(options: argparse.Namespace) -> int:
    """Their words for errors; commas between fields; a folder with our number in its name."""
    options.on_error = ERRORS[options.error_handling]
    options.ignore_status = options.error_handling == "ignore"
    if options.fields:
        options.fields = options.fields.replace(",", " ")
    _set_range(options)
    if not options.working_dir:
        return _run_by_mode(options)
    options.tmpdir = options.working_dir.replace("{pid}", str(os.getpid()))
    there = os.path.isdir(options.tmpdir)
    os.makedirs(options.tmpdir, exist_ok=True)
    try:
        return _run_by_mode(options)
    finally:
        if not there:
            with contextlib.suppress(OSError):  # --keepdir: it is not empty
                os.rmdir(options.tmpdir)


MODES = "what comes out: an archive; what each command printed, as lines or as pages; or the keys"


def _run_by_mode(options: argparse.Namespace) -> int:
    """An archive, or text about each sample."""
    if getattr(options, "debug", False):
        options.verbose = options.keep = True
    with contextlib.ExitStack() as opened:
        say = _said_to(opened, getattr(options, "command_output", None))
        if getattr(options, "mode", "tar") != "tar":
            return _print_by_mode(options, say)
        from webdataset.cli.flow import drain, reading

        return drain(options, reading(options).compose(commands(options, say)))


def _said_to(opened: contextlib.ExitStack, path: str | None) -> Callable[[bytes], object] | None:
    if path is None:
        return None
    try:
        return opened.enter_context(open(path, "ab", buffering=0)).write
    except OSError as error:
        raise grammar.UsageError(f"cannot write what commands print to {path!r}: {error.strerror}") from None


PAGE = b"\f"


def _print_by_mode(options: argparse.Namespace, say: Callable[[bytes], object] | None) -> int:
    from webdataset.cli.flow import finished, reading
    from webdataset.cli.outputs import writing
    from webdataset.cli.progress import Progress
    from webdataset.handlers import close

    log = options.add_log = options.add_log or "log"
    dataset = reading(options).compose(commands(options, say or _nowhere))
    progress = Progress(options, options.urls, options.count)
    samples = iter(dataset)
    try:
        with writing(options.output) as out:
            for sample in progress(samples):
                key = os.fsencode(sample["__key__"])
                said = b"" if options.mode == "keys" else sample[log]
                out.write({"keys": key + b"\n", "lines": _line(key, said), "pages": said + PAGE}[options.mode])
    finally:
        close(samples)
    return finished(options, progress, dataset.stats())


def _line(key: bytes, said: bytes) -> bytes:
    return key + b"\t" + b" ".join(said.split()) + b"\n"


def _nowhere(data: bytes) -> None:
    """What is printed is the result already."""


def _set_range(options: argparse.Namespace) -> None:
    """--count N, or --count LO,HI."""
    text = (options.count or "").strip("()")
    first, comma, last = text.partition(",")
    try:
        options.skip = grammar.count(first.strip()) if comma else 0
        stop = grammar.count((last if comma else text).strip()) if text else None
    except argparse.ArgumentTypeError as error:
        raise grammar.UsageError(f"--count: {error}") from None
    options.count = None if stop is None else max(stop - options.skip, 0)


def run_wl_xargs(options: argparse.Namespace) -> int:
    """wl-xargs kept the sample beside those made from it."""
    options.add = True
    return run_old(options)


def configure_tarp_proc(parser: argparse.ArgumentParser) -> None:
    """tarp proc."""
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--command", metavar="CMD")
    parser.add_argument("-m", "--multicommand", metavar="CMD", help="its files sample-000001.EXT become samples")
    parser.add_argument("-f", "--field", dest="fields", metavar="SPEC")
    parser.add_argument("-o", "--outputs", "--output", dest="output", default="-", metavar="URL")
    parser.add_argument("--slice", metavar="LO:HI:STEP")
    parser.add_argument("--shell", default="bash", metavar="PROGRAM")
    parser.add_argument("-v", "--verbose", action="store_true")


def run_tarp_proc(options: argparse.Namespace) -> int:
    """Two names for the command, and a slice instead of a count."""
    options.command = options.command or options.multicommand
    sliced_to_count(options)
    return run(options)


def sliced_to_count(options: argparse.Namespace) -> None:
    """--slice LO:HI of the old programs as skip and count."""
    if not options.slice:
        return
    from webdataset.tools.transform.choosing import parsed_slice

    cut = parsed_slice(options.slice)
    if cut.step not in (None, 1):
        raise grammar.UsageError("a slice with a step is for `tarp cat --slice`")
    options.skip = cut.start or 0
    options.count = None if cut.stop is None else max(cut.stop - options.skip, 0)


OLD = {"wl-xargs": configure_wl_xargs, "tarproc": configure_tarproc, "tarp proc": configure_tarp_proc}
OLD_RUN = {"wl-xargs": run_wl_xargs, "tarproc": run_old, "tarp proc": run_tarp_proc}
