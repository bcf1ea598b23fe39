"""Concatenate shards: all samples, one after the other, into one archive or new shards.

Select samples with -S, -s, -c and --slice, fields with -f; rename fields, give samples new keys, shuffle a little.

Without any of these, plain files are copied into a plain file byte for byte, with the members' times and owners, and
checked on the way. Otherwise all members are rewritten, with the same time and owner for all.

Two neighbouring samples with the same key would be read as one, so that is an error: --rekey '{key}-{index}' makes keys
unique. With --shuffle and --mix such samples are kept apart.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing

from webdataset.cli import grammar

EXAMPLES = (
    ("wl concat -c 10 train-{000000..000009}.tar -o small.tar", "the first ten samples"),
    (
        "cat a.tar | wl concat -f 'jpg:jpeg,jpg cls' - | tar -tf -",
        "two fields, one of them renamed, from stdin to stdout",
    ),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser)
    parser.add_argument("--slice", metavar="LO:HI:STEP", help="only these samples, numbered from 0")
    parser.number("--shuffle", default=0, help="shuffle the shards, and the samples in a buffer of N")
    grammar.add_seed(parser)
    parser.number("--mix", default=0, help="read N shards at a time, one sample of each in turn")
    grammar.add_rekey(parser)
    parser.add_argument("--list", metavar="FILE", help="a file with URLs to read, one per line")
    parser.add_argument(
        "--noeof", dest="eof", action="store_false", help="zpush:// and the like: do not signal the end of the stream"
    )
    grammar.add_shards(parser)


def run(options: Namespace) -> int:
    options.inputs = read_list(options.list) + options.inputs
    if needs_samples(options) or not join(options):
        return repack(options)
    return 0


def needs_samples(options: Namespace) -> bool:
    """Whether any option concerns single samples."""
    asked = ("select", "skip", "slice", "shuffle", "mix", "fields", "rekey", "nodata", "handler", "every")
    numbered = "%" in options.output or "{" in options.output
    return numbered or options.count is not None or any(getattr(options, name, None) for name in asked)


def join(options: Namespace) -> bool:
    """Copy the shards byte for byte, if they and the output are plain local files; return whether that was possible."""
    from webdataset.base.redact import redacted
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.storage.patterns import expanded
    from webdataset.tools.transform.joining import NotPlain, join_shards

    urls = [url for text in options.inputs for url in expanded(text)]
    options.urls = urls
    progress = ProgressDisplay.of(options)
    try:
        with closing(join_shards(urls, options.output)) as shards:
            for shard in shards:
                progress.add(shard.samples, shard.size, shards=1)
    except NotPlain:
        options.display = None
        return False
    finally:
        progress.clear()
    progress.summary({"shards_read": progress.shards}, redacted(options.output))
    return True


def repack(options: Namespace) -> int:
    """Read all samples and write the selected ones."""
    from webdataset.cli.flow import drain, handler_of, reading
    from webdataset.filters import shuffle
    from webdataset.filters import slice as sliced
    from webdataset.tools.transform.choosing import NOT_IN_MEMORY, emptied, fields, in_pieces, parsed_slice

    without_data = getattr(options, "nodata", False)
    large = NOT_IN_MEMORY if without_data else in_pieces(None if options.select else options.fields)
    samples = reading(options, mix=options.mix, shuffled=bool(options.shuffle), seed=options.seed, large=large)
    if options.slice:
        cut = parsed_slice(options.slice)
        samples = samples.compose(sliced(cut.start, cut.stop, cut.step))
    if options.fields:
        samples = samples.compose(fields(options.fields, handler=handler_of(options)))
    if options.shuffle:
        samples = samples.compose(shuffle(options.shuffle, initial=options.shuffle, seed=options.seed))
    if without_data:
        samples = samples.compose(emptied())
    return drain(options, samples, apart=bool(options.shuffle or options.mix))


def read_list(path: str | None) -> list[str]:
    """Read the URLs in a file, one per line."""
    if path is None:
        return []
    try:
        with open(path, encoding="utf-8") as file:
            return [line.strip() for line in file if line.strip()]
    except OSError as error:
        raise grammar.UsageError(f"cannot read the list {path!r}: {error.strerror}") from None
