"""Describe an exact epoch: steps, repeats, bytes and memory of each rank, and how well it is shuffled.

This is what `WebDataset(urls, exact=True)` does with the same options. Shards without an index get one; the data is not
read.
"""

from __future__ import annotations

import json
from argparse import Namespace

from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl plan --ranks 8 --batch 32 train-{000000..000009}.tar", "eight GPUs with batches of 32 each"),
    ("wl plan --ranks 8 --shuffle-bytes 1G --json train.tar", "a larger shuffle buffer, output for programs"),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_inputs(parser)
    add, number = parser.add_argument, parser.number
    number("--ranks", type=grammar.positive, default=1, help="number of training processes, the world size (1)")
    number("--workers", type=grammar.positive, default=1, help="loader workers per rank (1)")
    number("--batch", type=grammar.positive, default=1, help="batch size per rank (1)")
    parser.switch("--whole", help="full batches only: batched(n, partial=False)")
    add(
        "--remainder",
        choices=("pad", "drop", "uneven"),
        help="the last samples (pad; drop with --whole)",
    )
    add("--shuffle-bytes", metavar="BYTES", default="256MiB", help="memory for shuffling, 0 for none (256MiB)")
    add("--block-bytes", metavar="BYTES", type=grammar.size, default="1MiB", help="bytes per read (1MiB)")
    number("--lanes", type=grammar.positive, default=64, help="positions in the dataset to read from in turn (64)")
    add("--seed", metavar="N", type=int, default=0, help="the dataset's seed (0)")
    number("--epoch", default=0, help="which epoch (0)")
    parser.switch("--json", help="print JSON")


def run(options: Namespace) -> None:
    from webdataset.cli.flow import urls_of
    from webdataset.exact.plans import plan

    names = ("ranks", "workers", "batch", "remainder", "seed", "epoch", "shuffle_bytes", "block_bytes", "lanes")
    same = {name: getattr(options, name) for name in (*names, "concatenated")}
    made = plan(urls_of(options.inputs), partial=not options.whole, **same)
    terminal.out((json.dumps(made.as_dict()) if options.json else str(made)) + "\n")
