"""Write fields to files, and print the names of the files.

Files stay in the folder that -o names, whatever the keys are, and never replace others without --force.
"""

from __future__ import annotations

from argparse import Namespace

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl dump -f jpg -o 'photos/{cls}/{key}' train.tar", "back to a folder for each class"),
    ("wl dump -f jpg -o 'images/{key}' train.tar", "images named after their keys: images/n01440764_10026.jpg"),
    ("wl dump -c 3 http://server/train.tar", "all fields of three samples: out-000000.jpg, out-000000.cls, ..."),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser, 'fields to write: "jpg;png cls" (default: all)')
    parser.add_argument(
        "-o",
        "--output",
        metavar="PATTERN",
        default="out-{index:06d}",
        help="file names: {index:06d}, {key}, {field}, {cls} or any other field; without {field}, it is the extension",
    )
    parser.switch("--force", help="replace existing files")


def run(options: Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, reading
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.tools.inspect.dumping import dump
    from webdataset.tools.inspect.listing import shown
    from webdataset.tools.transform.choosing import in_pieces

    dataset = reading(options, large=in_pieces(None if options.select else options.fields))
    progress = ProgressDisplay.of(options)
    report = Report()
    what = {"fields": options.fields, "force": options.force, "handler": handler_of(options)}
    try:
        with report.in_force():
            paths = dump(progress(dataset), options.output, **what)
    except ValueError as error:
        if type(error) is ValueError:  # the pattern; errors of the data are of other types
            raise grammar.UsageError(str(error)) from None
        raise
    for path in paths:
        if not options.quiet:
            terminal.out(shown(path) + "\n")
    report.add(dataset.stats())
    return finished(options, progress, report.as_dict(), options.output)
