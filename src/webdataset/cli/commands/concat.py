"""Concatenate shards: all samples, one after the other, into one archive or new shards.

Choose samples with -S, -s, -c and --slice, fields with -f; rename fields, number samples anew, shuffle a little.

Without any such wish, plain files go into a plain file as they lie, with the members' times and owners, and are checked
on the way. In all other cases members are written anew, with the same time and owner for all.

Two samples in a row with one key would be read as one, so that is an error: --rekey '{key}-{index}' gives them keys of
their own. With --shuffle and --mix such samples are kept apart.
"""

from __future__ import annotations

import argparse
from contextlib import closing

from webdataset.cli import grammar
from webdataset.cli.old.tarmix import add_channels, configure_tarmix, count_without_skipped, run_tarmix

EXAMPLES = (
    ("wl concat -c 10 train-{000000..000009}.tar -o small.tar", "the first ten samples"),
    (
        "cat a.tar | wl concat -f 'jpg:jpeg,jpg cls' - | tar -tf -",
        "two fields, one of them renamed, from stdin to stdout",
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    grammar.add_common(parser)
    grammar.add_fields(parser)
    _add_own(parser)
    grammar.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Concatenate."""
    options.inputs = listed(options.list) + options.inputs
    if is_about_samples(options) or not joined(options):
        return repacked(options)
    return 0


def is_about_samples(options: argparse.Namespace) -> bool:
    """Whether anything is asked for that needs a look at single samples."""
    asked = ("select", "skip", "slice", "shuffle", "mix", "fields", "rekey", "nodata", "handler", "every")
    named_by_number = "%" in options.output or "{" in options.output
    return named_by_number or options.count is not None or any(getattr(options, name, None) for name in asked)


def joined(options: argparse.Namespace) -> bool:
    """Copy the shards as they lie, if they are plain files of this machine and the output is one too."""
    from webdataset.cli.progress import Progress
    from webdataset.storage.patterns import expanded
    from webdataset.tools.transform.joining import NotPlain, join_shards

    urls = [url for text in options.inputs for url in expanded(text)]
    progress = Progress(options, urls)
    try:
        with closing(join_shards(urls, options.output)) as shards:
            for shard in shards:
                progress.add(shard.samples, shard.size)
    except NotPlain:
        return False
    finally:
        progress.clear()
    progress.summary()
    return True


def repacked(options: argparse.Namespace) -> int:
    """Read all samples and write those that are asked for."""
    from webdataset.cli.flow import drain, handler_of, reading
    from webdataset.filters import shuffle
    from webdataset.filters import slice as sliced
    from webdataset.tools.transform.choosing import NOT_IN_MEMORY, emptied, fields, in_pieces, parsed_slice

    large = in_pieces(None if options.select else options.fields)
    if getattr(options, "nodata", False):
        large = NOT_IN_MEMORY
    samples = reading(options, mix=options.mix, shuffled=bool(options.shuffle), seed=options.seed, large=large)
    if options.slice:
        cut = parsed_slice(options.slice)
        samples = samples.compose(sliced(cut.start, cut.stop, cut.step))
    if options.fields:
        samples = samples.compose(fields(options.fields, handler=handler_of(options)))
    if options.shuffle:
        samples = samples.compose(shuffle(options.shuffle, initial=options.shuffle, seed=options.seed))
    if getattr(options, "nodata", False):
        samples = samples.compose(emptied())
    return drain(options, samples, apart=bool(options.shuffle or options.mix))


def _add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slice", metavar="LO:HI:STEP", help="only these samples, numbered from 0")
    parser.add_argument(
        "--shuffle",
        metavar="N",
        type=grammar.count,
        default=0,
        help="shards in random order, samples through a buffer of N",
    )
    parser.add_argument("--seed", metavar="N", type=int, help="the same order every time")
    parser.add_argument(
        "--mix", metavar="N", type=grammar.count, default=0, help="read N shards in turn, a sample of each"
    )
    grammar.add_rekey(parser)
    parser.add_argument("--list", metavar="FILE", help="a file with URLs to read, one a line")
    parser.add_argument(
        "--noeof", dest="eof", action="store_false", help="zpush:// and its like: do not say that this was all"
    )


def listed(path: str | None) -> list[str]:
    """The urls in a file, one a line."""
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            return [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise grammar.UsageError(f"cannot read the list {path!r}: {error.strerror}") from None


# -- old names ---------------------------------------------------------------------------------------


def configure_tarcat(parser: argparse.ArgumentParser) -> None:
    """tarcat, tarcats, tarscat."""
    grammar.add_inputs(parser)
    parser.add_argument("-o", "--output", default="-", metavar="URL")
    parser.add_argument(
        "-c", "--count", type=grammar.count, metavar="N", help="stop after N samples, the skipped included"
    )
    parser.add_argument("-s", "--skip", type=grammar.count, default=0, metavar="N")
    parser.add_argument("--shuffle", type=grammar.count, default=0, metavar="N")
    parser.add_argument("-T", "--filelist", dest="list", metavar="FILE")
    parser.add_argument("-v", "--verbose", action="store_true")
    add_braceexpand(parser)
    parser.add_argument("--nodata", action="store_true", help="the members' names without their contents")
    add_channels(parser)


def add_braceexpand(parser: argparse.ArgumentParser) -> None:
    """-b of tarcat and tarpcat."""
    parser.add_argument("-b", "--braceexpand", action="store_true", help="one input, with braces (they always expand)")


def check_braceexpand(options: argparse.Namespace) -> None:
    """-b was for exactly one input."""
    if options.braceexpand and len(options.inputs) != 1:
        raise grammar.UsageError("-b takes exactly one input; without -b braces expand too, in any number of inputs")


def run_tarcat(options: argparse.Namespace) -> int:
    """Their count includes the skipped."""
    check_braceexpand(options)
    count_without_skipped(options)
    return run(options)


def configure_tarp_cat(parser: argparse.ArgumentParser) -> None:
    """tarp cat."""
    grammar.add_inputs(parser)
    parser.add_argument("-f", "--field", dest="fields", metavar="SPEC")
    parser.add_argument("-o", "--outputs", "--output", dest="output", default="-", metavar="URL")
    parser.add_argument("-s", "--shuffle", type=grammar.count, default=0, metavar="N")
    parser.add_argument("-m", "--mix", type=grammar.count, default=0, metavar="N")
    parser.add_argument("-l", "--load", dest="list", metavar="FILE")
    parser.add_argument("-R", "--rekey", metavar="PATTERN")
    parser.add_argument("--slice", metavar="LO:HI:STEP")
    parser.add_argument("--shardslice", metavar="LO:HI:STEP")
    parser.add_argument("--maxerr", type=grammar.count, default=0, metavar="N", help="leave out so many bad shards")
    parser.add_argument(
        "-L", "--logging", dest="every", type=grammar.count, metavar="N", help="progress every N samples"
    )
    parser.add_argument("-E", "--noeof", dest="eof", action="store_false", help="do not say that this was all")
    parser.add_argument("-v", "--verbose", action="store_true")


def run_tarp_cat(options: argparse.Namespace) -> int:
    """A slice of the shards, and errors by number."""
    if options.maxerr:
        from webdataset.handlers import CountingHandler

        options.handler = CountingHandler(max_errors=options.maxerr)
    if options.shardslice:
        from webdataset.cli.flow import urls_of
        from webdataset.tools.transform.choosing import parsed_slice

        options.inputs = urls_of(options.inputs)[parsed_slice(options.shardslice)]
    return run(options)


OLD = {
    "tarcat": configure_tarcat,
    "tarcats": configure_tarcat,
    "tarscat": configure_tarcat,
    "tarmix": configure_tarmix,
    "tarp cat": configure_tarp_cat,
}
OLD_RUN = {
    "tarcat": run_tarcat,
    "tarcats": run_tarcat,
    "tarscat": run_tarcat,
    "tarmix": run_tarmix,
    "tarp cat": run_tarp_cat,
}
