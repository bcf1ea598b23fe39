"""Say what is in a dataset: its fields, and their types, dtypes, shapes, value ranges and sizes."""

from __future__ import annotations

import argparse
import json
import sys

from webdataset.cli import grammar

EXAMPLES = (
    ("wl info train-{000000..000009}.tar", "what the first 1000 samples hold"),
    ("wl info -c 0 --json --plot histograms.png train.tar > info.json", "all of them, for programs and as a picture"),
)
DEFAULT_COUNT = 1000


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    grammar.add_selection(parser)
    grammar.add_errors(parser)
    grammar.add_progress(parser, json=False)
    parser.add_argument("--json", action="store_true", help="all of it as JSON")
    parser.add_argument("--plot", metavar="FILE", help="histograms as a picture (needs matplotlib)")
    parser.add_argument(
        "-d", "--decode", metavar="SPEC", default="rgb8", help="how to see images: rgb8, pixels...; raw = do not"
    )
    parser.add_argument("--nohist", action="store_true", help="no histograms in the text")
    parser.set_defaults(count=DEFAULT_COUNT)
    for action in parser._actions:
        if action.dest == "count":
            action.help = "look at N samples, 0 = all (1000)"


def run(options: argparse.Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, reading
    from webdataset.cli.outputs import writing
    from webdataset.cli.progress import Progress
    from webdataset.tools.inspect.describing import describe
    from webdataset.tools.inspect.histograms import drawing_package, lines, plot
    from webdataset.tools.transform.choosing import NOT_IN_MEMORY

    if options.plot:  # what cannot be drawn is said before everything is read
        _picture_format(options.plot)
        drawing_package()
    options.count = options.count or None
    dataset = reading(options, large=NOT_IN_MEMORY)
    as_json, options.json = options.json, False  # here it is the result, not the progress
    progress = Progress(options, options.urls, options.count)
    decode = None if options.decode in ("raw", "none") else options.decode
    report = Report()
    with report.in_force():
        description = describe(progress(dataset), decode=decode, handler=handler_of(options))
    report.add(dataset.stats())
    if options.plot:
        with writing(options.plot) as out:
            plot(description, out, format=_picture_format(options.plot))
    if as_json:
        sys.stdout.write(json.dumps(_finite(description.as_dict()), indent=1) + "\n")
    else:
        for line in lines(description, histograms=not options.nohist):
            sys.stdout.write(line + "\n")
        if options.count and description.samples == options.count:
            sys.stdout.write(f"\nonly the first {options.count} samples; -c 0 looks at all\n")
    return finished(options, progress, report.as_dict())


def _picture_format(name: str) -> str:
    ending = name.rpartition(".")[2].lower()
    if ending not in ("png", "pdf", "svg"):
        raise grammar.UsageError(f"--plot {name!r} is no picture; its name must end in .png, .pdf or .svg")
    return ending


def _finite(facts: object) -> object:
    from webdataset.tools.inspect.tables import plain_value

    return plain_value(facts)


def _wl_info(parser: argparse.ArgumentParser) -> None:
    configure(parser)
    grammar.add_without_effect(parser, "--size", why=grammar.NO_SIZE, metavar="N")


OLD = {"wl-info": _wl_info}
