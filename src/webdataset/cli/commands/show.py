"""Show samples in the terminal, with pictures if it can, or as a page with pictures, sound, text and arrays."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    ("wl show -c 2 train.tar", "two samples, a line a field, and their pictures if the terminal shows any"),
    ("wl show -c 100 --html page.html s3://bucket/train.tar", "a page for a browser, in one file"),
)
PROTOCOLS = ("auto", "kitty", "iterm", "sixel", "blocks", "text")


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser, 'fields to show, "jpg;png cls" (all)')
    parser.add_argument("--html", metavar="FILE", help="write a page instead; - is stdout")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="auto", help="how to draw pictures (auto)")
    parser.add_argument("--width", metavar="N", type=grammar.count, help="columns for a picture (60)")
    parser.set_defaults(count=10)


def run(options: argparse.Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, reading

    dataset = reading(options)
    progress = _progress(options)
    report = Report()
    with report.in_force():
        samples = _with_fields(progress(dataset), options)
    if options.html:
        _write_page(samples, options)
    else:
        _print(samples, options, progress)
    report.add(dataset.stats())
    return finished(options, progress, report.as_dict())


def _progress(options: argparse.Namespace) -> Any:
    from webdataset.cli.progress import Progress

    return Progress(options, options.urls, options.count)


def _with_fields(samples: Iterator[Any], options: argparse.Namespace) -> Iterator[Any]:
    from webdataset.cli.flow import handler_of
    from webdataset.filters.fields import parse_field_spec
    from webdataset.handlers import handled
    from webdataset.tools.alternatives import field_named

    if getattr(options, "each", 1) > 1:
        samples = islice(samples, 0, None, options.each)
    if not options.fields:
        return samples
    specs = parse_field_spec(options.fields)

    def chosen(sample: Any) -> Any:
        names = [field_named(sample, alternatives) for alternatives in specs]
        return {name: sample[name] for name in ("__key__", *names)}

    return handled(samples, chosen, handler_of(options))


def _print(samples: Iterator[Any], options: argparse.Namespace, progress: Any) -> None:
    from webdataset.cli import terminal
    from webdataset.tools.inspect.showing import terminal_lines

    protocol = terminal.protocol() if options.protocol == "auto" else options.protocol
    width = options.width or min(60, terminal.columns())
    text, normalized = not getattr(options, "silent", False), getattr(options, "normalize", False)
    for sample in samples:
        progress.clear()
        for line in terminal_lines(sample, protocol, columns=width, text=text, normalized=normalized):
            sys.stdout.write(line + "\n")
        sys.stdout.write("\n")
        _pause(options)


def _pause(options: argparse.Namespace) -> None:
    """What tarshow's --delay and --use-keyboard ask for."""
    if getattr(options, "delay", 0.0) or getattr(options, "use_keyboard", False):
        sys.stdout.flush()
    if getattr(options, "delay", 0.0):
        time.sleep(options.delay)
    if getattr(options, "use_keyboard", False) and sys.stdin.isatty():
        sys.stdin.readline()


def _write_page(samples: Iterator[Any], options: argparse.Namespace) -> None:
    from webdataset.base.redact import redacted
    from webdataset.cli.outputs import writing
    from webdataset.tools.inspect.pages import page

    title = redacted(" ".join(options.urls[:3]) + (" ..." if len(options.urls) > 3 else ""))
    with writing(options.html) as out:
        for piece in page(samples, title=title):
            out.write(piece)


def _tarshow(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--count", metavar="N", type=grammar.count, default=None, help="stop after N samples")
    parser.add_argument("-f", "--field", dest="picture", metavar="FIELD", help="show this field as a picture")
    parser.add_argument("-N", "--normalize", action="store_true", help="pictures from black to white")
    parser.add_argument("-C", "--cmap", choices=("gray",), help="pictures with one channel are grey")
    parser.add_argument("-d", "--delay", metavar="S", type=float, default=0.0, help="wait S seconds after each picture")
    parser.add_argument("--silent", action="store_true", help="pictures only, no text")
    parser.add_argument("--verbatim-keys", action="store_true", help="-f names a field exactly, JPG is not jpg")
    parser.add_argument("--use-keyboard", action="store_true", help="wait for the Enter key after each sample")


def _wl_show(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    grammar.add_selection(parser)
    grammar.add_fields(parser, "fields to show")
    parser.add_argument("-e", "--each", metavar="N", type=grammar.count, default=1, help="show each Nth sample only")
    grammar.add_shuffle_first(parser, "--shuffle")
    parser.set_defaults(count=10)


OLD = {"tarshow": _tarshow, "wl-show": _wl_show}


def _run_tarshow(options: argparse.Namespace) -> int:
    """Lines of text; pictures only for a field that was asked for."""
    if options.picture is None:
        options.protocol = "text"
    else:
        options.fields = options.picture if options.verbatim_keys else options.picture.lower()
    return run(options)


OLD_RUN = {"tarshow": _run_tarshow}
