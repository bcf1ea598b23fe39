"""Show samples in the terminal, with pictures if it can, or as a page with pictures, sound, text and arrays."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from . import grammar

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
    from webdataset.reports import Report

    from .flow import finished, reading

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
    from .progress import Progress

    return Progress(options, options.urls, options.count)


def _with_fields(samples: Iterator[Any], options: argparse.Namespace) -> Iterator[Any]:
    from webdataset.filters.fields import parse_field_spec
    from webdataset.handlers import handled
    from webdataset.tools.alternatives import field_named

    from .flow import handler_of

    if not options.fields:
        return samples
    specs = parse_field_spec(options.fields)

    def chosen(sample: Any) -> Any:
        names = [field_named(sample, alternatives) for alternatives in specs]
        return {name: sample[name] for name in ("__key__", *names)}

    return handled(samples, chosen, handler_of(options))


def _print(samples: Iterator[Any], options: argparse.Namespace, progress: Any) -> None:
    from webdataset.tools.showing import terminal_lines

    from . import terminal

    protocol = terminal.protocol() if options.protocol == "auto" else options.protocol
    width = options.width or min(60, terminal.columns())
    for sample in samples:
        progress.clear()
        for line in terminal_lines(sample, protocol, columns=width):
            sys.stdout.write(line + "\n")
        sys.stdout.write("\n")


def _write_page(samples: Iterator[Any], options: argparse.Namespace) -> None:
    from webdataset.redact import redacted
    from webdataset.tools.pages import page

    from .outputs import writing

    title = redacted(" ".join(options.urls[:3]) + (" ..." if len(options.urls) > 3 else ""))
    with writing(options.html) as out:
        for piece in page(samples, title=title):
            out.write(piece)


def _tarshow(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--count", metavar="N", type=grammar.count, default=None, help="stop after N samples")
    parser.add_argument("-f", "--field", dest="picture", metavar="FIELD", help="show this field as a picture")
    parser.add_argument("--silent", dest="quiet", action="store_true", help="no progress")
    for flag in ("--verbatim-keys", "--use-keyboard", "-N"):
        parser.add_argument(flag, action="store_true", dest="ignored", help=argparse.SUPPRESS)
    for option in ("-C", "-d"):
        parser.add_argument(option, dest="ignored_value", help=argparse.SUPPRESS)


def _wl_show(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    grammar.add_selection(parser)
    grammar.add_fields(parser, "fields to show")
    parser.add_argument("-e", "--shuffle", dest="ignored_value", help=argparse.SUPPRESS)
    parser.set_defaults(count=10)


OLD = {"tarshow": _tarshow, "wl-show": _wl_show}


def _run_tarshow(options: argparse.Namespace) -> int:
    """Lines of text; pictures only for a field that was asked for."""
    if options.picture is None:
        options.protocol = "text"
    else:
        options.fields = options.picture
    return run(options)


OLD_RUN = {"tarshow": _run_tarshow}
