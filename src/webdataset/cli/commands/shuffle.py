"""Put all samples of a dataset into random order, also when they are larger than memory.

Two passes: the samples are dealt into files by random numbers, then one file after the other is ordered in memory.
The order is a function of the seed alone: neither of the memory nor of the number of cores, among which -P shares
both passes. Two samples with one key, which would be read as one, do not come next to each other.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar

from .concat import add_braceexpand, check_braceexpand, listed

if TYPE_CHECKING:
    from webdataset.pipeline import DataPipeline

EXAMPLES = (
    ("wl shuffle train-{000000..000146}.tar -o shuffled-%06d.tar --maxcount 10000", "a whole dataset, into new shards"),
    ("wl shuffle --seed 1 -P 4 a.tar b.tar -o ab.tar", "the same order every time, with four cores"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    grammar.add_common(parser)
    grammar.add_fields(parser)
    parser.add_argument("--seed", metavar="N", type=int, help="the same order every time")
    grammar.add_rekey(parser)
    grammar.add_memory(parser, "200M")
    grammar.add_processes(parser, unordered=False)
    grammar.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Shuffle."""
    from webdataset.cli.flow import drain, handler_of
    from webdataset.filters import slice as sliced
    from webdataset.tools.transform.choosing import fields

    samples = shuffled(options)
    if options.fields:
        samples = samples.compose(fields(options.fields, handler=handler_of(options)))
    if getattr(options, "limit", None) is not None:
        samples = samples.compose(sliced(options.limit))
    return drain(options, samples, apart=True)


def shuffled(options: argparse.Namespace) -> DataPipeline:
    """Shard by shard if every sample is wanted, so that several processes can read; else as one stream."""
    import random

    from webdataset.cli.flow import packer, reading, urls_of
    from webdataset.pipeline import DataPipeline
    from webdataset.tools.transform.shuffling import shuffle_samples, shuffle_shards

    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(31)
    if options.skip or options.count is not None or options.on_error == "stop":
        stage = shuffle_samples(seed=seed, memory=options.memory, tmpdir=options.tmpdir)
        return reading(options).compose(stage)
    options.urls = urls_of(options.inputs)
    reading(options, options.urls)  # mistakes in the condition are told now
    later = options.fields or options.rekey or getattr(options, "limit", None) is not None
    source = partial(
        shuffle_shards,
        options.urls,
        partial(read_shard, options),
        seed=seed,
        memory=options.memory,
        processes=options.processes,
        tmpdir=options.tmpdir,
        pack=None if later else packer(options),
    )
    return DataPipeline(source)


def read_shard(options: argparse.Namespace, url: str) -> tuple[Iterable[dict[str, Any]], Callable[[], dict[str, Any]]]:
    """The samples of one shard, and the function that says what was left out."""
    from webdataset.cli.flow import reading

    samples = reading(argparse.Namespace(**vars(options)), [url])
    return samples, samples.stats


# -- old names ---------------------------------------------------------------------------------------


def configure_tarpcat(parser: argparse.ArgumentParser) -> None:
    """tarpcat."""
    grammar.add_inputs(parser)
    parser.add_argument("-o", "--output", default="-", metavar="URL")
    parser.add_argument("-c", "--count", dest="limit", type=grammar.count, metavar="N")
    parser.add_argument("-p", "-P", "--workers", dest="processes", type=grammar.count, default=8, metavar="N")
    parser.add_argument(
        "-s", "--shuffle", metavar="N", type=grammar.count, help="all samples are shuffled, whatever the buffer's size"
    )
    parser.add_argument("-T", "--filelist", metavar="FILE")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--dummy", action="store_true", help="read and shuffle, but write nothing")
    add_braceexpand(parser)


def run_tarpcat(options: argparse.Namespace) -> int:
    """Inputs may be listed in a file."""
    check_braceexpand(options)
    options.output = os.devnull if options.dummy else options.output
    options.inputs = listed(options.filelist) + options.inputs
    return run(options)


OLD = {"tarpcat": configure_tarpcat}
OLD_RUN = {"tarpcat": run_tarpcat}
