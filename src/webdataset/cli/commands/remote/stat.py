"""Summarize the batches that producers serve, or that a stream brings: types, shapes, and the range of values.

A few batches are read as by a trainer of its own; trainers that read at the same time are not disturbed.
"""

from __future__ import annotations

import json
from argparse import Namespace

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl stat tcp://cpu-{0..3}:7880 --keys train.key", "20 batches of an epoch"),
    ("wl stat -c 2 --json tcp://cpu-{0..3}:7880 --keys train.key", "two batches, output for programs"),
)


def configure(parser: grammar.Parser) -> None:
    add = parser.add_argument
    grammar.add_producers(parser)
    parser.number("-c", "--count", type=grammar.positive, default=20, help="look at N batches (20)")
    add("--patience", metavar="SECONDS", type=grammar.seconds, default=30.0, help="wait for producers (30)")
    parser.switch("--json", help="print JSON")


def run(options: Namespace) -> None:
    from webdataset.tools.inspect.batches import remote_batches, statistics, statistics_lines

    how = {"keys": options.keys, "insecure": options.insecure, "patience": options.patience}
    found = statistics(remote_batches(options.inputs, options.count, **how))
    if options.json:
        terminal.out(json.dumps({name: field.as_dict() for name, field in found.items()}, indent=1) + "\n")
        return
    for line in statistics_lines(found):
        terminal.out(line + "\n")
