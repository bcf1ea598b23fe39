"""Shuffle all samples of a dataset, even if larger than memory.

There are two passes: the samples are distributed over files by random numbers, then one file after the other is put in
order in memory. The order depends on the seed alone, not on the memory or the number of processes (-P), which share the
work of both passes. Two samples with the same key, which would be read as one, are kept apart.
"""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar

if TYPE_CHECKING:
    from webdataset.pipeline import DataPipeline

EXAMPLES = (
    ("wl shuffle train-{000000..000146}.tar -o shuffled-%06d.tar --maxcount 10000", "a whole dataset, into new shards"),
    ("wl shuffle --seed 1 -P 4 a.tar b.tar -o ab.tar", "the same order every time, using four processes"),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser)
    grammar.add_seed(parser)
    grammar.add_rekey(parser)
    grammar.add_memory(parser, "200M")
    grammar.add_processes(parser, unordered=False)
    grammar.add_shards(parser)


def run(options: Namespace) -> int:
    from webdataset.cli.flow import drain, handler_of
    from webdataset.filters import slice as sliced
    from webdataset.tools.transform.choosing import fields

    samples = shuffled(options)
    if options.fields:
        samples = samples.compose(fields(options.fields, handler=handler_of(options)))
    if getattr(options, "limit", None) is not None:
        samples = samples.compose(sliced(options.limit))
    return drain(options, samples, apart=True)


def shuffled(options: Namespace) -> DataPipeline:
    """Shuffle shard by shard, so that several processes can read; as one stream if samples are left out."""
    from webdataset.cli.flow import packer, reading, urls_of
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.pipeline import DataPipeline
    from webdataset.tools.transform.shuffling import shuffle_samples, shuffle_shards

    options.urls = urls_of(options.inputs)
    display = ProgressDisplay.of(options, passes=("reading", "writing"))
    seed = options.seed if options.seed is not None else random.SystemRandom().getrandbits(31)
    if options.skip or options.count is not None or options.on_error == "stop":
        stage = shuffle_samples(seed=seed, memory=options.memory, tmpdir=options.tmpdir)
        return reading(options, options.urls).compose(stage)
    reading(options, options.urls)  # errors in the condition show now
    later = options.fields or options.rekey or getattr(options, "limit", None) is not None
    source = partial(
        shuffle_shards,
        options.urls,
        partial(read_shard, options, watched=True),
        seed=seed,
        memory=options.memory,
        processes=options.processes,
        tmpdir=options.tmpdir,
        pack=None if later else packer(options),
        tick=display.tick,
    )
    return DataPipeline(source)


def read_shard(
    options: Namespace, url: str, *, watched: bool = False
) -> tuple[Iterable[dict[str, Any]], Callable[[], dict[str, Any]]]:
    """Return the samples of one shard, and a function that returns the counts of its pass."""
    from webdataset.cli.flow import reading

    samples = reading(Namespace(**vars(options)), [url], watched=watched)
    return samples, samples.stats
