"""Old programs that make archives: tarcat, tarmix, tarcreate, lines2tar, tarsplit and tarp's cat, create and split."""

from __future__ import annotations

import shlex
from argparse import Namespace

from webdataset.cli import grammar
from webdataset.cli.commands import concat, split
from webdataset.cli.grammar import Parser

from . import program as old
from .program import Program

# -- concat ------------------------------------------------------------------------------------------


def configure_tarcat(parser: Parser) -> None:
    """Add the flags of tarcat, tarcats and tarscat."""
    grammar.add_inputs(parser)
    old.output(parser)
    _count_with_skipped(parser)
    parser.number("-s", "--skip", default=0, help="skip the first N samples")
    old.shuffle(parser, "--shuffle")
    old.file_list(parser, "-T", "--filelist")
    old.verbose(parser)
    old.braceexpand(parser)
    parser.switch("--nodata", help="write the members' names without their contents")
    _channels(parser)


def run_tarcat(options: Namespace) -> int:
    """Run tarcat."""
    old.check_braceexpand(options)
    _subtract_skipped(options)
    return concat.run(options)


def configure_tarmix(parser: Parser) -> None:
    """Add the flags of tarmix."""
    parser.add_argument(
        "spec", metavar="SPEC", help="a YAML file whose `sources` list shards, weight, nstreams, shuffle, ..."
    )
    grammar.add_concatenated(parser)
    old.verbose(parser)
    _count_with_skipped(parser)
    old.output(parser)
    parser.number("--skip", default=0, help="skip the first N samples")
    old.shuffle(parser, "--shuffle")
    grammar.add_seed(parser)
    _channels(parser)


def run_tarmix(options: Namespace) -> int:
    """Mix samples of several datasets, as a YAML file says, into one archive or channel."""
    from webdataset.cli.flow import chosen, drain, handler_of
    from webdataset.filters import shuffle
    from webdataset.tools.transform.mixtures import mixed, read_mixture

    sources = read_mixture(options.spec)
    options.urls = [url for source in sources for url in source.shards * source.repeats]
    _subtract_skipped(options)
    samples = mixed(sources, seed=options.seed, handler=handler_of(options), concatenated=options.concatenated)
    samples = chosen(samples, options)
    if options.shuffle:
        samples = samples.compose(shuffle(options.shuffle, initial=options.shuffle, seed=options.seed))
    return drain(options, samples, apart=True)


def configure_tarp_cat(parser: Parser) -> None:
    """Add the flags of tarp cat."""
    grammar.add_inputs(parser)
    old.field_spec(parser, "-f", "--field")
    old.output(parser, "--outputs")
    old.shuffle(parser, "-s", "--shuffle")
    parser.number("-m", "--mix", default=0, help="read N shards at a time, one sample of each in turn")
    old.file_list(parser, "-l", "--load")
    parser.add_argument("-R", "--rekey", metavar="PATTERN", help="new keys: %%09d is a counter, # is short for it")
    old.sample_slice(parser)
    parser.add_argument("--shardslice", metavar="LO:HI:STEP", help="only these shards, numbered from 0")
    parser.number("--maxerr", default=0, help="skip up to N bad shards")
    old.progress_every(parser, "-L", "--logging")
    parser.add_argument(
        "-E", "--noeof", dest="eof", action="store_false", help="channels: do not signal the end of the stream"
    )
    old.verbose(parser)


def run_tarp_cat(options: Namespace) -> int:
    """Run tarp cat."""
    if options.maxerr:
        from webdataset.handlers import CountingHandler

        options.handler = CountingHandler(max_errors=options.maxerr)
    if options.shardslice:
        from webdataset.cli.flow import urls_of
        from webdataset.tools.transform.choosing import parsed_slice

        options.inputs = urls_of(options.inputs)[parsed_slice(options.shardslice)]
    return concat.run(options)


def _count_with_skipped(parser: Parser) -> None:
    parser.number("-c", "--count", help="stop after N samples, including skipped ones")


def _subtract_skipped(options: Namespace) -> None:
    if options.count is not None:
        options.count = max(options.count - options.skip, 0)


def _channels(parser: Parser) -> None:
    parser.add_argument("--output-mode", choices=("random",), help="several channels: send each sample to one of them")
    parser.switch("--eof", help="channels: signal the end of the stream")


# -- create ------------------------------------------------------------------------------------------


def configure_tarp_create(parser: Parser) -> None:
    """Add the flags of tarp create."""
    old.inputs(parser, "RECIPE", 'lines "NAME SOURCE"')
    old.output(parser)
    parser.number("-c", "--count", help="stop after N samples")
    old.verbose(parser)
    parser.set_defaults(kind="recipe")


def configure_tarcreate(parser: Parser) -> None:
    """Add the flags of tarcreate."""
    old.inputs(parser, "PLAN", "a CSV or TSV table")
    add = parser.add_argument
    add("-f", "--delim", dest="separator", metavar="TEXT", help="column separator (comma for .csv, else tab)")
    add("-k", "--key", metavar="FORMAT", help="keys of rows without __key__ ({record:09d})")
    add("-C", "--dir", "--directory", dest="directory", metavar="DIR", default="", help="folder of the files")
    old.output(parser)
    parser.set_defaults(kind="plan")


def configure_lines2tar(parser: Parser) -> None:
    """Add the flags of lines2tar."""
    old.inputs(parser, "TEXT", "lines of text")
    parser.add_argument("-k", "--keys", dest="fields", metavar="FIELDS", default="txt", help='fields: "txt cls"')
    parser.add_argument("-s", "--separator", metavar="TEXT", help="field separator (tab)")
    parser.add_argument("--keyformat", dest="key", metavar="FORMAT", help="keys ({:09d})")
    old.output(parser)
    old.verbose(parser)
    parser.set_defaults(kind="lines")


# -- split -------------------------------------------------------------------------------------------


def configure_tarsplit(parser: Parser) -> None:
    """Add the flags of tarsplit."""
    grammar.add_inputs(parser)
    _shard_size(parser, ("-n", "--num-samples"), 100_000, ("-s", "--max-size"))
    add = parser.add_argument
    add("-o", "--output", default="temp", metavar="NAME", help="NAME-000000.tar, or a pattern with {shard}")
    add("-C", "--command", dest="post", metavar="CMD", help="shell command for each shard, which is then deleted")
    parser.switch("-z", "--compress", help="compress with gzip")
    add("-O", "--open", metavar="CMD", help="pipe each shard into a command; {} in it is its name")
    parser.number("--start", default=0, help="number of the first shard (0)")
    parser.number("--maxshards", help="stop when N shards are full")
    parser.switch("--nodelete", help="keep the shards after -C")
    old.verbose(parser)


def run_tarsplit(options: Namespace) -> int:
    """Run tarsplit; shards are deleted after their command."""
    options.output = _tarsplit_output(options)
    piped = options.output.startswith("pipe:")
    if piped and options.post:
        raise grammar.UsageError("-C is for shards that are files; a command that a shard is piped into does the rest")
    options.compress = options.compress or (False if piped else None)  # for a command, -z alone decides
    options.delete = bool(options.post) and not options.nodelete
    options.verbose = True
    return split.run(options)


def _tarsplit_output(options: Namespace) -> str:
    """Return the pattern of the shards' names, or the command that they are piped into."""
    name = str(options.output)
    if name.startswith("|"):
        if options.open:
            raise grammar.UsageError("-o '|CMD' and -O both name a command; use one of them")
        return f"pipe:{name[1:].strip()}"
    if "{" not in name and "%" not in name:
        name = f"{name}-%06d.{'tgz' if options.compress else 'tar'}"
    if not options.open:
        return name
    command, name = str(options.open), shlex.quote(name)
    named = command.replace("{}", name).replace("%s", name)
    return f"pipe:{command} {name}" if named == command else f"pipe:{named}"


def configure_tarp_split(parser: Parser) -> None:
    """Add the flags of tarp split."""
    grammar.add_inputs(parser)
    _shard_size(parser, ("-c", "--count"), 1_000_000, ("-s", "--size"))
    parser.add_argument("-o", "--output", default="split-%06d.tar", metavar="PATTERN", help="names of shards")
    parser.add_argument("-p", "--post", metavar="CMD", help="shell command for each shard; %%s in it is its name")
    old.sample_slice(parser)
    old.verbose(parser)


def run_tarp_split(options: Namespace) -> int:
    """Run tarp split."""
    old.slice_to_count(options)
    return split.run(options)


def _shard_size(parser: Parser, counts: tuple[str, ...], most: int, sizes: tuple[str, ...]) -> None:
    parser.number(*counts, dest="maxcount", default=most, help=f"maximum number of samples per shard ({most})")
    text = "approximate maximum size of a shard (1G)"
    parser.add_argument(*sizes, dest="maxsize", type=grammar.size, default=10**9, metavar="BYTES", help=text)


# -- the table ---------------------------------------------------------------------------------------

PROGRAMS = {
    "tarcat": Program("concat", configure_tarcat, run_tarcat),
    "tarcats": Program("concat", configure_tarcat, run_tarcat),
    "tarscat": Program("concat", configure_tarcat, run_tarcat),
    "tarmix": Program("concat", configure_tarmix, run_tarmix),
    "tarcreate": Program("create", configure_tarcreate),
    "lines2tar": Program("create", configure_lines2tar),
    "tarsplit": Program("split", configure_tarsplit, run_tarsplit),
    "tarp create": Program("create", configure_tarp_create),
    "tarp cat": Program("concat", configure_tarp_cat, run_tarp_cat),
    "tarp split": Program("split", configure_tarp_split, run_tarp_split),
}
