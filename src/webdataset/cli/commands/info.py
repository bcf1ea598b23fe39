"""Summarize a dataset: its fields, and their types, dtypes, shapes, value ranges and sizes."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from webdataset.base.units import counted
from webdataset.cli import grammar, terminal

if TYPE_CHECKING:
    from webdataset.display.describing import Description

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
    from webdataset.cli.outputs import image_format, writing
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.display.describing import describe
    from webdataset.tools.inspect.histograms import drawing_package, plot
    from webdataset.tools.inspect.tables import plain_value
    from webdataset.tools.transform.choosing import NOT_IN_MEMORY

    if options.plot:  # fail before everything is read
        image_format(options.plot)
        drawing_package()
    options.count = options.count or None
    progress = ProgressDisplay.of(options, as_json=False)
    dataset = reading(options, large=NOT_IN_MEMORY)
    decode = None if options.decode in ("raw", "none") else options.decode
    report = Report()
    with report.in_force():
        description = describe(progress(dataset), decode=decode, handler=handler_of(options))
    report.add(dataset.stats())
    if options.plot:
        with writing(options.plot) as out:
            plot(description, out, format=image_format(options.plot))
    if options.json:
        terminal.out(json.dumps(plain_value(description.as_dict()), indent=1) + "\n")
    else:
        _print(description, options)
    return finished(options, progress, report.as_dict())


def _print(description: Description, options: Namespace) -> None:
    from webdataset.cli.tables import Table, can_draw
    from webdataset.tools.inspect.histograms import all_histograms, fields_table, heading, lines

    seen = _seen(options, description)
    if not can_draw():
        for line in lines(description, histograms=not options.nohist, seen=seen):
            terminal.out(line + "\n")
        return
    terminal.out("\n".join([*heading(description, seen=seen), "", ""]))
    with Table(("field", "", ""), line="  ".join, cells=list) as table:
        for row in fields_table(description):
            table.add(row)
    if not options.nohist:
        for line in all_histograms(description):
            terminal.out(line + "\n")


def _seen(options: Namespace, description: Description) -> str:
    """How much of the dataset was looked at."""
    shards = counted(len(options.urls), "shard")
    if options.count and description.samples >= options.count:
        return f"the first {options.count:,} samples of {shards}; -c 0 looks at all"
    return f"all samples that {options.select!r} selects" if options.select else ""
