"""Summarize a dataset: its fields, and their types, dtypes, shapes, value ranges and sizes."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from webdataset.cli import grammar

EXAMPLES = (
    ("wl info train-{000000..000009}.tar", "summarize the first 1000 samples"),
    ("wl info -c 0 --json --plot histograms.png train.tar > info.json", "all samples, as JSON and as an image"),
)
DEFAULT_COUNT = 1000


def configure(parser: grammar.Parser) -> None:
    grammar.add_inputs(parser)
    grammar.add_selection(parser, count_help="look at N samples, 0 for all (1000)")
    grammar.add_errors(parser)
    grammar.add_progress(parser, json=False)
    parser.switch("--json", help="print JSON")
    parser.add_argument("--plot", metavar="FILE", help="write histograms as an image (needs matplotlib)")
    parser.add_argument(
        "-d", "--decode", metavar="SPEC", default="rgb8", help="how to decode images: rgb8, pixels, ...; raw for not"
    )
    parser.switch("--nohist", help="no histograms in the text")
    parser.set_defaults(count=DEFAULT_COUNT)


def run(options: Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, reading
    from webdataset.cli.outputs import writing
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.display.describing import describe
    from webdataset.tools.inspect.histograms import drawing_package, lines, plot
    from webdataset.tools.inspect.tables import plain_value
    from webdataset.tools.transform.choosing import NOT_IN_MEMORY

    if options.plot:  # fail before everything is read
        _image_format(options.plot)
        drawing_package()
    options.count = options.count or None
    dataset = reading(options, large=NOT_IN_MEMORY)
    as_json, options.json = options.json, False  # here it is the result, not the progress
    progress = ProgressDisplay(options)
    decode = None if options.decode in ("raw", "none") else options.decode
    report = Report()
    with report.in_force():
        description = describe(progress(dataset), decode=decode, handler=handler_of(options))
    report.add(dataset.stats())
    if options.plot:
        with writing(options.plot) as out:
            plot(description, out, format=_image_format(options.plot))
    if as_json:
        sys.stdout.write(json.dumps(plain_value(description.as_dict()), indent=1) + "\n")
    else:
        for line in lines(description, histograms=not options.nohist):
            sys.stdout.write(line + "\n")
        if options.count and description.samples == options.count:
            sys.stdout.write(f"\nonly the first {options.count} samples; -c 0 looks at all\n")
    return finished(options, progress, report.as_dict())


def _image_format(name: str) -> str:
    ending = name.rpartition(".")[2].lower()
    if ending not in ("png", "pdf", "svg"):
        raise grammar.UsageError(f"--plot {name!r} is not an image; its name must end in .png, .pdf or .svg")
    return ending
