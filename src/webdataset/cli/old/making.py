"""Old programs that make archives: tarcat, tarmix, tarcreate, lines2tar, tarsplit and tarp's cat, create and split."""

from __future__ import annotations

import shlex
from argparse import Namespace

from webdataset.cli import grammar
from webdataset.cli.commands import concat, split
from webdataset.cli.grammar import Parser

from . import program as old
from .program import OldProgram

# -- concat ------------------------------------------------------------------------------------------


def configure_tarcat(parser: Parser) -> None:
    grammar.add_inputs(parser)
    old.same(parser, "concat", output="-o --output", skip="-s --skip", shuffle="--shuffle", list="-T --filelist")
    _count_with_skipped(parser)
    old.same(parser, "concat", verbose="-v --verbose")
    old.braceexpand(parser)
    parser.switch("--nodata", help="write the members' names without their contents")
    _channels(parser)


def run_tarcat(options: Namespace) -> int:
    old.check_braceexpand(options)
    _subtract_skipped(options)
    return concat.run(options)


def configure_tarmix(parser: Parser) -> None:
    parser.add_argument(
        "spec", metavar="SPEC", help="a YAML file whose `sources` list shards, weight, nstreams, shuffle, ..."
    )
    grammar.add_concatenated(parser)
    _count_with_skipped(parser)
    old.same(parser, "concat", output="-o --output", skip="--skip", seed="--seed", verbose="-v --verbose")
    parser.number("--shuffle", default=0, help="shuffle in a buffer of N samples")
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
    grammar.add_inputs(parser)
    old.same(parser, "concat", fields="-f --field", output="-o --outputs --output", shuffle="-s --shuffle")
    old.same(parser, "concat", mix="-m --mix", list="-l --load", rekey="-R --rekey", slice="--slice")
    parser.add_argument("--shardslice", metavar="LO:HI:STEP", help="only these shards, numbered from 0")
    parser.number("--maxerr", default=0, help="skip up to N bad shards")
    old.progress_every(parser, "-L --logging")
    old.same(parser, "concat", eof="-E --noeof", verbose="-v --verbose")


def run_tarp_cat(options: Namespace) -> int:
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


def _create(parser: Parser, kind: str, **flags: str) -> None:
    parser.add_argument("inputs", nargs="*", metavar=kind.upper(), help=f"{SOURCES[kind]}; - for stdin")
    old.same(parser, "create", **flags, output="-o --output", verbose="-v --verbose")
    parser.set_defaults(kind=kind, allow_outside=True)


SOURCES = {"recipe": 'lines "NAME SOURCE"', "plan": "a CSV or TSV table", "lines": "lines of text"}


def configure_tarp_create(parser: Parser) -> None:
    _create(parser, "recipe", count="-c --count")
    parser.set_defaults(key="first-dot")  # the names are those of the recipe


def configure_tarcreate(parser: Parser) -> None:
    _create(parser, "plan", separator="-f --delim", key="-k --key", directory="-C --dir --directory")


def configure_lines2tar(parser: Parser) -> None:
    _create(parser, "lines", fields="-k --keys", separator="-s --separator", key="--keyformat")


# -- split -------------------------------------------------------------------------------------------


def configure_tarsplit(parser: Parser) -> None:
    grammar.add_inputs(parser)
    old.same(parser, "split", maxcount="-n --num-samples", maxsize="-s --max-size")
    add = parser.add_argument
    add("-o", "--output", default="temp", metavar="NAME", help="NAME-000000.tar, or a pattern with {shard}")
    add("-C", "--command", dest="post", metavar="CMD", help="shell command for each shard, which is then deleted")
    parser.switch("-z", "--compress", help="compress with gzip")
    add("-O", "--open", metavar="CMD", help="pipe each shard into a command; {} in it is its name")
    parser.switch("--nodelete", help="keep the shards after -C")
    old.same(parser, "split", start="--start", maxshards="--maxshards", verbose="-v --verbose")
    parser.set_defaults(maxsize=10**9)


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
    grammar.add_inputs(parser)
    old.same(parser, "split", maxcount="-c --count", maxsize="-s --size", output="-o --output", post="-p --post")
    old.same(parser, "concat", slice="--slice")
    old.same(parser, "split", verbose="-v --verbose")
    parser.set_defaults(maxcount=1_000_000, maxsize=10**9)


def run_tarp_split(options: Namespace) -> int:
    old.slice_to_count(options)
    return split.run(options)


# -- the table ---------------------------------------------------------------------------------------

PROGRAMS = {
    "tarcat": OldProgram("concat", configure_tarcat, run_tarcat),
    "tarcats": OldProgram("concat", configure_tarcat, run_tarcat),
    "tarscat": OldProgram("concat", configure_tarcat, run_tarcat),
    "tarmix": OldProgram("concat", configure_tarmix, run_tarmix),
    "tarcreate": OldProgram("create", configure_tarcreate),
    "lines2tar": OldProgram("create", configure_lines2tar),
    "tarsplit": OldProgram("split", configure_tarsplit, run_tarsplit),
    "tarp create": OldProgram("create", configure_tarp_create),
    "tarp cat": OldProgram("concat", configure_tarp_cat, run_tarp_cat),
    "tarp split": OldProgram("split", configure_tarp_split, run_tarp_split),
}
