"""Copy shards from anywhere to anywhere, verified.

An interrupted copy, even a killed one, is taken up by running it again: shards whose copy is there already are passed
over, and a part of a large shard that has come to this machine (.NAME.*.part) is not fetched again.
"""

from __future__ import annotations

import argparse
import sys

from webdataset.cli import grammar

EXAMPLES = (
    ("wl cp -P 4 'http://server/train-{000000..000146}.tar' data/", "147 shards into a folder, four at a time"),
    ("wl cp --checksum data/*.tar s3://bucket/data/", "upload, and compare every byte that is there"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="URL",
        help="shards to copy: files, URLs, braces, globs; - is stdin. Without -o the last one is the target",
    )
    parser.add_argument(
        "-o", "--output", metavar="TARGET", help="a folder or prefix ending in /, or a name for one shard"
    )
    parser.add_argument("--force", action="store_true", help="copy also what is there already")
    parser.add_argument("--checksum", action="store_true", help="compare contents, not only sizes")
    grammar.add_processes(parser, unordered=False)
    grammar.add_errors(parser)
    grammar.add_progress(parser)


def run(options: argparse.Namespace) -> int:
    from webdataset.base.redact import redacted
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, urls_of
    from webdataset.cli.progress import Progress
    from webdataset.tools.inspect.histograms import size_text
    from webdataset.tools.make.copying import copy_shards

    if options.output is None:
        options.output = options.inputs.pop()
    if not options.inputs:
        raise grammar.UsageError("the target is missing: wl cp URL... TARGET, or wl cp URL... -o TARGET")
    if options.output == "-" and sys.stdout.isatty():
        raise grammar.UsageError("not writing bytes to a terminal: name a file or folder, or pipe the output on")
    urls = urls_of(options.inputs)
    progress = Progress(options, urls, len(urls))
    report = Report()
    with report.in_force():
        copies = copy_shards(
            urls,
            options.output,
            parallel=options.processes,
            force=options.force,
            checksum=options.checksum,
            handler=handler_of(options),
        )
    for copied in progress(copies):
        progress.clear()
        if not options.quiet:
            done = "is there already" if copied.skipped else size_text(copied.size)
            sys.stderr.write(f"{redacted(copied.target)}: {done}\n")
    return finished(options, progress, report.as_dict())
