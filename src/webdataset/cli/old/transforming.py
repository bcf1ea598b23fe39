"""Old programs that change samples: wl-map, wl-xargs, tarproc, tarpcat, tarsort, tarp's proc and sort; and kujob."""

from __future__ import annotations

import contextlib
import os
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable

from webdataset.cli import grammar, terminal
from webdataset.cli.commands import concat, map, shuffle, sort, xargs
from webdataset.cli.commands.runs import jobs
from webdataset.cli.grammar import Parser

from . import program as old
from .program import OldProgram

# -- map ---------------------------------------------------------------------------------------------


def configure_wl_map(parser: Parser) -> None:
    grammar.add_inputs(parser)
    old.same(parser, "map", code="-c --code", precode="-C --precode", decode="-F --format", load="-l --load")
    add = parser.add_argument
    add("-L", "--inline", metavar="MODULE", help="the text of such a file, which defines transform(sample)")
    parser.switch("-H", "--function-help", help="show the help of the function of -l or -L")
    add("-P", dest="processes_or_pipeline", metavar="N|EXPR", help="a number means -p, anything else --pipeline")
    old.same(parser, "map", pipeline="--pipeline", processes="-p --parallel --processes", output="-o --output")
    parser.switch("-O", "--ordered", help="order is always preserved")
    old.progress_every(parser, "-e --every")
    why = "two neighbouring samples with the same key would be read as one"
    old.without_effect(parser, "--nokeycheck", why=why)
    old.same(parser, "map", count="--only --count", on_error="--on-error", verbose="-v --verbose")


def run_wl_map(options: Namespace) -> int:
    """Run wl-map, whose -P was a pipeline, and is a number in its documentation."""
    text = options.processes_or_pipeline
    if text is not None:
        try:
            options.processes = grammar.count(text)
        except ArgumentTypeError:
            if options.pipeline is not None:
                raise grammar.UsageError("there are two pipelines; use either -P or --pipeline") from None
            options.pipeline = text
    if not options.function_help:
        return map.run(options)
    if not (options.load or options.inline):
        raise grammar.UsageError("-H shows the help of a function: name it with -l or -L")
    import inspect

    function = map.function_maker(options)()
    text = inspect.getdoc(function) or "it has no documentation"
    terminal.out(f"{getattr(function, '__name__', 'transform')}{inspect.signature(function)}\n\n{text}\n")
    return 0


# -- xargs -------------------------------------------------------------------------------------------

ERRORS = {"skip": "skip", "ignore": "raise", "abort": "raise"}
MODES = "write an archive; the output of each command, as lines or as pages; or the keys"
FORM_FEED = b"\f"


def _configure(parser: Parser) -> None:
    """Add the flags that wl-xargs and tarproc share."""
    grammar.add_inputs(parser)
    add = parser.add_argument
    old.same(parser, "xargs", command="-c --command", base="-b --base", processes="-P -p --parallel")
    add("-w", "--working_dir", metavar="DIR", help="where to make the folders; {pid} is the process id")
    add("-e", "--error-handling", choices=tuple(ERRORS), default="skip", help="for a command that fails (skip)")
    add("--count", metavar="N|LO,HI", help="stop after N samples, or take those from LO up to but not including HI")
    old.same(parser, "xargs", output="-o --output", shell="--interpreter", verbose="-v --verbose")  # noqa: S604
    parser.switch("-q", "--silent", "--quiet", dest="quiet", help="discard the output of commands")


def configure_wl_xargs(parser: Parser) -> None:
    _configure(parser)
    old.same(parser, "xargs", script="-S --script", fields="-f --fields", separator="-s --separator")
    old.same(parser, "xargs", exclude="-E --exclude", include="-I --include")
    text = "for a missing field of -f (error)"
    parser.add_argument("-F", "--fieldmode", choices=("ignore", "error"), default="error", help=text)


def configure_tarproc(parser: Parser) -> None:
    _configure(parser)
    old.same(parser, "xargs", script="-s --script", subfolders="-S --subdirs", add_log="--add-log", keep="--keepdir")
    add = parser.add_argument
    add("-O", "--command-output", metavar="FILE", help="append the output of commands to this file (default: stderr)")
    add("--mode", choices=("tar", "lines", "pages", "keys"), default="tar", help=MODES)
    parser.switch("--debug", help="more messages, and keep the folders")
    parser.switch("--direct-output", help="the output of commands is never held back anyway")


def run_wl_xargs(options: Namespace) -> int:
    """Run wl-xargs, which keeps a sample beside those made from it."""
    options.add = True
    return run_tarproc(options)


def run_tarproc(options: Namespace) -> int:
    """Run tarproc in its own working folder, if it has one."""
    options.on_error = ERRORS[options.error_handling]
    options.ignore_status = options.error_handling == "ignore"
    if options.fields:
        options.fields = options.fields.replace(",", " ")
    _set_range(options)
    if not options.working_dir:
        return _run_by_mode(options)
    options.tmpdir = options.working_dir.replace("{pid}", str(os.getpid()))
    existed = os.path.isdir(options.tmpdir)
    os.makedirs(options.tmpdir, exist_ok=True)
    try:
        return _run_by_mode(options)
    finally:
        if not existed:
            with contextlib.suppress(OSError):  # --keepdir: it is not empty
                os.rmdir(options.tmpdir)


def _set_range(options: Namespace) -> None:
    """Parse --count N or --count LO,HI."""
    text = (options.count or "").strip("()")
    first, comma, last = text.partition(",")
    try:
        options.skip = grammar.count(first.strip()) if comma else 0
        stop = grammar.count((last if comma else text).strip()) if text else None
    except ArgumentTypeError as error:
        raise grammar.UsageError(f"--count: {error}") from None
    options.count = None if stop is None else max(stop - options.skip, 0)


def _run_by_mode(options: Namespace) -> int:
    """Write an archive, or text about each sample."""
    if getattr(options, "debug", False):
        options.verbose = options.keep = True
    with contextlib.ExitStack() as opened:
        output = _open_log(opened, getattr(options, "command_output", None))
        if getattr(options, "mode", "tar") != "tar":
            return _print_by_mode(options, output)
        from webdataset.cli.flow import drain, reading

        return drain(options, reading(options).compose(xargs.command_stage(options, output)))


def _open_log(opened: contextlib.ExitStack, path: str | None) -> Callable[[bytes], object] | None:
    if path is None:
        return None
    try:
        return opened.enter_context(open(path, "ab", buffering=0)).write
    except OSError as error:
        raise grammar.UsageError(f"cannot write the output of commands to {path!r}: {error.strerror}") from None


def _print_by_mode(options: Namespace, output: Callable[[bytes], object] | None) -> int:
    from webdataset.cli.flow import finished, reading
    from webdataset.cli.outputs import writing
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.handlers import close

    log = options.add_log = options.add_log or "log"
    dataset = reading(options).compose(xargs.command_stage(options, output or _discard))
    progress = ProgressDisplay(options)
    samples = iter(dataset)
    try:
        with writing(options.output) as out:
            for sample in progress(samples):
                key = os.fsencode(sample["__key__"])
                text = b"" if options.mode == "keys" else sample[log]
                line = key + b"\t" + b" ".join(text.split()) + b"\n"
                out.write({"keys": key + b"\n", "lines": line, "pages": text + FORM_FEED}[options.mode])
    finally:
        close(samples)
    return finished(options, progress, dataset.stats())


def _discard(data: bytes) -> None:
    """Drop output that is the result already."""


def configure_tarp_proc(parser: Parser) -> None:
    grammar.add_inputs(parser)
    old.same(parser, "xargs", command="-c --command", output="-o --outputs --output", shell="--shell")  # noqa: S604
    text = "a command whose files sample-000001.EXT become samples"
    parser.add_argument("-m", "--multicommand", metavar="CMD", help=text)
    old.same(parser, "concat", fields="-f --field", slice="--slice", verbose="-v --verbose")


def run_tarp_proc(options: Namespace) -> int:
    """Run tarp proc, which has two flags for the command."""
    options.command = options.command or options.multicommand
    old.slice_to_count(options)
    return xargs.run(options)


# -- shuffle and sort --------------------------------------------------------------------------------


def configure_tarpcat(parser: Parser) -> None:
    grammar.add_inputs(parser)
    parser.number("-c", "--count", dest="limit", help="stop after N samples")
    old.same(parser, "shuffle", output="-o --output", processes="-p -P --workers", verbose="-v --verbose")
    parser.number("-s", "--shuffle", help="all samples are shuffled, whatever the size of the buffer")
    old.same(parser, "concat", list="-T --filelist")
    parser.switch("--dummy", help="read and shuffle, but write nothing")
    old.braceexpand(parser)
    parser.set_defaults(processes=8)


def run_tarpcat(options: Namespace) -> int:
    old.check_braceexpand(options)
    options.output = os.devnull if options.dummy else options.output
    options.inputs = concat.read_list(options.list) + options.inputs
    return shuffle.run(options)


TYPES = {"none": "text", "int": "int", "float": "float"}


def configure_tarsort(parser: Parser) -> None:
    grammar.add_inputs(parser)
    add = parser.add_argument
    add("-k", "--key", choices=("__key__",), default="__key__", help="what identifies a sample: its key")
    old.same(parser, "sort", by="-s --sortkey", output="-o --output", verbose="-v --verbose")
    add("-S", "--sorttype", choices=(*TYPES, "shuffle"), default="none", help="how to compare values (none: as text)")
    old.progress_every(parser, "-r --report")
    add("-t", "--tempfile", metavar="FILE", help="make temporary files in the folder of this file")
    parser.switch("--update", help="keep only the last of samples with equal sort keys")
    why = "there is no database"
    old.without_effect(parser, "--keep", why=why)
    old.without_effect(parser, "--commit", why=why, metavar="N")


def run_tarsort(options: Namespace) -> int:
    if options.tempfile:
        options.tmpdir = os.path.dirname(os.path.abspath(options.tempfile))
    if options.sorttype == "shuffle":
        return _shuffle(options)
    options.kind = TYPES[options.sorttype]
    return sort.run(options)


def configure_tarp_sort(parser: Parser) -> None:
    grammar.add_inputs(parser)
    old.same(parser, "sort", by="-s --sortfield", fields="-f --field", output="-o --outputs --output")
    old.same(parser, "concat", slice="--slice")
    old.same(parser, "sort", rekey="--rekey", tmpdir="--tmpdir", verbose="-v --verbose")
    old.without_effect(parser, "--keepdb", why="there is no database")


def run_tarp_sort(options: Namespace) -> int:
    old.slice_to_count(options)
    return _shuffle(options) if options.by == "__random__" else sort.run(options)


def _shuffle(options: Namespace) -> int:
    from webdataset.cli.running import parser_of

    return shuffle.run(Namespace(**{**grammar.defaults(parser_of("shuffle")), **vars(options)}))


# -- jobs ----------------------------------------------------------------------------------------------


def configure_kujob(parser: Parser) -> None:
    old.same(parser, "jobs", shards="-s --shards", image="-I --image", config="-C --config", name="-n --name")
    old.same(parser, "jobs", cpus="--cpus", memory="-M --memory", gpus="-G --gpus", env="-e --env", state="--state")
    old.same(parser, "jobs", on="--on", workers="--maxrunning --workers", retries="--retries", dry_run="-P --dry-run")
    old.same(parser, "jobs", manifest="-o")
    old.same(parser, "jobs", shards_per_task="--shards-per-task", timeout="--timeout", redo="--redo", detach="--nowait")
    old.same(parser, "jobs", quiet="-q --quiet", verbose="-v --verbose", progress="--progress", json="--json")


def run_kujob(options: Namespace) -> int:
    """Run kujob, which knew Kubernetes only; without an image, for which there is no default, it runs here."""
    from webdataset.cli.engines import task_options_of

    if options.on is None:
        image = task_options_of(options).image
        options.on = "k8s" if image else "local"
        if not image and not options.quiet:
            terminal.err(
                "kujob: no container image is named, so this runs on this machine; --image is for Kubernetes\n"
            )
    return jobs.run_items(options)


# -- the table ---------------------------------------------------------------------------------------

PROGRAMS = {
    "wl-map": OldProgram("map", configure_wl_map, run_wl_map),
    "wl-xargs": OldProgram("xargs", configure_wl_xargs, run_wl_xargs),
    "tarproc": OldProgram("xargs", configure_tarproc, run_tarproc),
    "tarpcat": OldProgram("shuffle", configure_tarpcat, run_tarpcat),
    "tarsort": OldProgram("sort", configure_tarsort, run_tarsort),
    "tarp proc": OldProgram("xargs", configure_tarp_proc, run_tarp_proc),
    "tarp sort": OldProgram("sort", configure_tarp_sort, run_tarp_sort),
    "kujob": OldProgram("jobs", configure_kujob, run_kujob),
}
