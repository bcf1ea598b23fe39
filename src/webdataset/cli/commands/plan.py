"""Tell what an exact epoch will be: steps, repeats, bytes and memory of each rank, and how well it is shuffled.

It is what `WebDataset(urls, exact=True)` does with the same options. Shards without an index get one; of the data
nothing is read.
"""

from __future__ import annotations

import argparse
import json
import sys

from webdataset.cli import grammar

EXAMPLES = (
    ("wl plan --ranks 8 --batch 32 train-{000000..000009}.tar", "eight GPUs, batches of 32 on each"),
    ("wl plan --ranks 8 --shuffle-bytes 1G --json train.tar", "with another buffer, for a program"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    add = parser.add_argument
    add("--ranks", metavar="N", type=grammar.positive, default=1, help="processes that train together (1)")
    add("--workers", metavar="N", type=grammar.positive, default=1, help="workers of each (1)")
    add("--batch", metavar="N", type=grammar.positive, default=1, help="samples in a batch of one rank (1)")
    add("--whole", action="store_true", help="no batch with fewer samples: batched(n, partial=False)")
    add("--remainder", choices=("pad", "drop", "uneven"), default="pad", help="what to do with the last samples (pad)")
    add("--shuffle-bytes", metavar="BYTES", default="256MiB", help="memory to shuffle in, 0 for none (256MiB)")
    add("--block-bytes", metavar="BYTES", type=grammar.size, default="1MiB", help="what is read at once (1MiB)")
    add("--lanes", metavar="N", type=grammar.positive, default=64, help="places that are read from in turn (64)")
    add("--seed", metavar="N", type=int, default=0, help="as the dataset's (0)")
    add("--epoch", metavar="N", type=grammar.count, default=0, help="which one (0)")
    add("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> None:
    from webdataset.cli.flow import urls_of
    from webdataset.exact.plans import plan

    made = plan(
        urls_of(options.inputs),
        ranks=options.ranks,
        workers=options.workers,
        batch=options.batch,
        partial=not options.whole,
        remainder=options.remainder,
        seed=options.seed,
        epoch=options.epoch,
        shuffle_bytes=options.shuffle_bytes,
        block_bytes=options.block_bytes,
        lanes=options.lanes,
        concatenated=options.concatenated,
    )
    sys.stdout.write((json.dumps(made.as_dict()) if options.json else str(made)) + "\n")
