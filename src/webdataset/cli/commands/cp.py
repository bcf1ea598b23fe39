"""Copy shards from anywhere to anywhere, and verify the copies.

To resume an interrupted copy, even a killed one, run the same command again: shards that are already there are
skipped, and the part of a large shard that has already been downloaded (.NAME.*.part) is not fetched again.
"""

from __future__ import annotations

import sys
from argparse import Namespace

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl cp -P 4 'http://server/train-{000000..000146}.tar' data/", "147 shards into a folder, four at a time"),
    ("wl cp --checksum data/*.tar s3://bucket/data/", "upload, and compare the contents afterwards"),
)


def configure(parser: grammar.Parser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="URL",
        help="shards to copy: files, URLs, braces, globs; - for stdin. Without -o the last one is the target",
    )
    parser.add_argument(
        "-o", "--output", metavar="TARGET", help="a folder or prefix ending in /, or a name for a single shard"
    )
    parser.switch("--force", help="copy even what is already there")
    parser.switch("--checksum", help="compare contents, not only sizes")
    parser.number("-P", "-p", "--processes", default=0, help="copy N shards at a time")
    grammar.add_errors(parser)
    grammar.add_progress(parser)


def run(options: Namespace) -> int:
    from webdataset.base.redact import redacted
    from webdataset.base.reports import Report
    from webdataset.base.units import counted, size_text
    from webdataset.cli.flow import finished, handler_of, urls_of
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.tools.make.copying import copy_shards

    if options.output is None:
        options.output = options.inputs.pop()
    if not options.inputs:
        raise grammar.UsageError("the target is missing: wl cp URL... TARGET, or wl cp URL... -o TARGET")
    if options.output == "-" and sys.stdout.isatty():
        raise grammar.UsageError("not writing bytes to a terminal: name a file or folder, or use a pipe")
    urls = urls_of(options.inputs)
    options.urls = urls
    progress = ProgressDisplay.of(options, noun="shard")
    report = Report()
    with report.in_force():
        copies = copy_shards(
            urls,
            options.output,
            parallel=options.processes,
            force=options.force,
            checksum=options.checksum,
            handler=handler_of(options),
            progress=lambda size: progress.add(0, size),
        )
    skipped = 0
    for shard in copies:
        skipped += shard.skipped
        progress.add(not shard.skipped, 0, shards=1)
        progress.clear()
        if not options.quiet:
            terminal.err(
                f"{redacted(shard.target)}: {'is there already' if shard.skipped else size_text(shard.size)}\n"
            )
    progress.clear()
    there = f"; {counted(skipped, 'shard')} there already" if skipped else ""
    return finished(options, progress, report.as_dict(), redacted(options.output) + there)
