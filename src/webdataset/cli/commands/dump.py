"""Write fields into files, one each, and print their names.

Files stay in the folder that -o names, whatever the keys say, and never replace others without --force.
"""

from __future__ import annotations

import argparse
import sys

from webdataset.cli import grammar

EXAMPLES = (
    ("wl dump -f jpg -o 'pictures/{key}' train.tar", "pictures under their keys: pictures/n01440764_10026.jpg"),
    ("wl dump -c 3 http://server/train.tar", "all fields of three samples: out-000000.jpg, out-000000.cls, ..."),
)


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser, 'fields to write, "jpg;png cls" (all)')
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATTERN",
        default="out-{index:06d}",
        help="file names: {index:06d}, {key}, {field}; without {field} it is added as the extension",
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def run(options: argparse.Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, reading
    from webdataset.cli.progress import Progress
    from webdataset.tools.inspect.dumping import dump
    from webdataset.tools.inspect.listing import shown
    from webdataset.tools.transform.choosing import in_pieces

    dataset = reading(options, large=in_pieces(None if options.select else options.fields))
    progress = Progress(options, options.urls, options.count)
    report = Report()
    try:
        with report.in_force():
            paths = dump(
                progress(dataset),
                options.output,
                fields=options.fields,
                force=options.force,
                handler=handler_of(options),
            )
    except ValueError as error:
        if type(error) is ValueError:  # the pattern; errors of the data are of other types
            raise grammar.UsageError(str(error)) from None
        raise
    for path in paths:
        if not options.quiet:
            sys.stdout.write(shown(path) + "\n")
    report.add(dataset.stats())
    return finished(options, progress, report.as_dict())


def _wl_dump(parser: argparse.ArgumentParser) -> None:
    configure(parser)
    why = "fields are written as they are stored"
    grammar.add_without_effect(parser, "-d", "--decode", why=why, metavar="SPEC")
    grammar.add_without_effect(parser, "--batch-size", why="there are no batches", metavar="N")
    grammar.add_shuffle_first(parser, "--shuffle")
    parser.set_defaults(count=1, fields="png;jpg;ppm;jpeg")


OLD = {"wl-dump": _wl_dump}
