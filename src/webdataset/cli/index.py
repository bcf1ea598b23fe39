"""Write indices of shards: where each field of each sample is, in DALI's format (version 1.2)."""

from __future__ import annotations

import argparse
import sys

from . import grammar

EXAMPLES = (
    ("wl index train-{000000..000009}.tar", "train-000000.idx ... beside the shards"),
    ("wl index --check train.tar", "is the index beside the shard the right one?"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument(
        "--check", action="store_true", help="compare the indices that are there; exit 1 if one differs"
    )
    grammar.add_errors(parser)
    grammar.add_progress(parser, json=False)


def run(options: argparse.Namespace) -> int:
    from webdataset.handlers import ask
    from webdataset.reports import current_report
    from webdataset.tools.indexing import index_differs, write_index

    from .flow import handler_of, urls_of

    report, failed = current_report(), 0
    for url in urls_of(options.inputs):
        try:
            if not options.check:
                samples = write_index(url)
                if not options.quiet:
                    sys.stderr.write(f"{url}: {samples} samples\n")
            elif index_differs(url):
                failed = 1
                sys.stdout.write(f"{url}: the index is not this shard's; `wl index {url}` makes it anew\n")
        except Exception as error:
            if not ask(handler_of(options), error, report, "shards_skipped"):
                break
            failed = 1
            sys.stderr.write(f"wl index: {error}\n")
    return failed
