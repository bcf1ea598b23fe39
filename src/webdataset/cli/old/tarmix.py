"""tarmix, an old program: samples of several datasets, mixed as a YAML file says, into one archive or channel."""

from __future__ import annotations

import argparse

from webdataset.cli import grammar


def configure_tarmix(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument(
        "spec", metavar="SPEC", help="a YAML file; `sources` lists shards, weight, nstreams, shuffle..."
    )
    grammar.add_concatenated(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.add_argument(
        "-c", "--count", type=grammar.count, metavar="N", help="stop after N samples, the skipped included"
    )
    parser.add_argument("-o", "--output", default="-", metavar="URL", help="where to write")
    parser.add_argument("--skip", type=grammar.count, default=0, metavar="N", help="leave out the first N samples")
    parser.add_argument("--shuffle", type=grammar.count, default=0, metavar="N", help="through a buffer of N samples")
    parser.add_argument("--seed", type=int, metavar="N", help="the same mixture every time")
    add_channels(parser)


def add_channels(parser: argparse.ArgumentParser) -> None:
    """What tarcat and tarmix say about ZeroMQ."""
    parser.add_argument("--output-mode", choices=("random",), help="several channels: a sample goes to one of them")
    parser.add_argument("--eof", action="store_true", help="channels: say at the end that this was all")


def count_without_skipped(options: argparse.Namespace) -> None:
    """Their count includes the skipped."""
    if options.count is not None:
        options.count = max(options.count - options.skip, 0)


def run_tarmix(options: argparse.Namespace) -> int:
    """Mix."""
    from webdataset.cli.flow import chosen, drain, handler_of
    from webdataset.filters import shuffle
    from webdataset.tools.transform.mixtures import mixed, read_mixture

    sources = read_mixture(options.spec)
    options.urls = [url for source in sources for url in source.shards * source.repeats]
    count_without_skipped(options)
    samples = mixed(sources, seed=options.seed, handler=handler_of(options), concatenated=options.concatenated)
    buffer, options.shuffle = options.shuffle, 0
    samples = chosen(samples, options)
    if buffer:
        samples = samples.compose(shuffle(buffer, initial=buffer, seed=options.seed))
    return drain(options, samples, apart=True)
