"""Split a stream of samples into shards.

A shard is full when it has --maxcount samples or --maxsize bytes. Each appears under its name when it is complete;
--post runs a command for it then. --start N numbers on behind shards that are there; those before N are left alone.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable

from webdataset.base.redact import redacted
from webdataset.cli import grammar

from .xargs import sliced_to_count

EXAMPLES = (
    ("tar -cf - --sort=name -C data train | wl split --maxsize 1e9 -o train-%06d.tar", "a folder into shards of 1 GB"),
    (
        "wl split --maxcount 1000 big.tar -o part-{shard:04d}.tar --post 'gsutil cp {} gs://bucket/'",
        "upload each shard",
    ),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    grammar.add_common(parser)
    parser.add_argument(
        "-o", "--output", metavar="PATTERN", default="split-%06d.tar", help="shards' names, with %%06d or {shard:06d}"
    )
    grammar.add_shard_size(parser)
    grammar.add_rekey(parser)
    parser.add_argument("--maxshards", metavar="N", type=grammar.count, help="stop when N shards are full")
    parser.add_argument("--start", metavar="N", type=grammar.count, default=0, help="the first shard's number (0)")
    parser.add_argument("--post", metavar="CMD", help="a command for each complete shard; {} is its name")
    parser.add_argument("--delete", action="store_true", help="remove each shard after --post")


def run(options: argparse.Namespace) -> int:
    """Split."""
    from webdataset.cli.flow import Sink, finished, reading, rekeyed
    from webdataset.cli.progress import Progress
    from webdataset.handlers import close
    from webdataset.tools.make.splitting import split_samples
    from webdataset.tools.transform.choosing import in_pieces
    from webdataset.writer import ShardWriter
    from webdataset.writing.shardsets import is_numbered

    if not is_numbered(options.output):
        hint = "write for example train-%06d.tar or train-{shard:06d}.tar"
        raise grammar.UsageError(f"the name {options.output!r} has no number for the shards; {hint}")
    dataset = rekeyed(reading(options, large=in_pieces()), options)
    with Sink(options, _post(options)) as sink:
        assert isinstance(sink.writer, ShardWriter)
        progress = Progress(options, options.urls, options.count)
        samples = iter(dataset)
        try:
            split_samples(progress(samples), sink.writer, maxshards=options.maxshards, write=sink.write)
        finally:
            progress.clear()
            close(samples)
    return finished(options, progress, dataset.stats())


def _post(options: argparse.Namespace) -> Callable[[str], None]:
    from webdataset.tools.make.splitting import post_command

    from .xargs import tell

    command = post_command(options.post, delete=options.delete, output=tell) if options.post else None

    def post(name: str) -> None:
        if options.verbose:
            sys.stderr.write(f"# wrote {redacted(name)}\n")
        if command is not None:
            command(name)

    return post


# -- old names ---------------------------------------------------------------------------------------


def configure_tarsplit(parser: argparse.ArgumentParser) -> None:
    """tarsplit."""
    grammar.add_inputs(parser)
    parser.add_argument("-n", "--num-samples", dest="maxcount", type=grammar.count, default=100_000, metavar="N")
    parser.add_argument("-s", "--max-size", dest="maxsize", type=grammar.size, default=10**9, metavar="BYTES")
    parser.add_argument(
        "-o", "--output", default="temp", metavar="NAME", help="NAME-000000.tar, or a pattern with {shard}"
    )
    parser.add_argument("-C", "--command", dest="post", metavar="CMD", help="run for each shard, which is removed then")
    parser.add_argument("-z", "--compress", action="store_true")
    parser.add_argument("-O", "--open", metavar="CMD", help="write each shard into a command; {} in it is its name")
    parser.add_argument("--start", type=grammar.count, default=0, metavar="N")
    parser.add_argument("--maxshards", type=grammar.count, metavar="N")
    parser.add_argument("--nodelete", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")


def run_tarsplit(options: argparse.Namespace) -> int:
    """Their names, and no shard is left after its command."""
    options.output = _tarsplit_name(options)
    piped = options.output.startswith("pipe:")
    if piped and options.post:
        raise grammar.UsageError(
            "-C is for shards that are files; a command that writes the shard does the rest itself"
        )
    options.compress = options.compress or (False if piped else None)  # a command gets what -z says, whatever its words
    options.delete = bool(options.post) and not options.nodelete
    options.verbose = True
    return run(options)


def _tarsplit_name(options: argparse.Namespace) -> str:
    """NAME-000000.tar, or a command that gets the shard."""
    name = str(options.output)
    if name.startswith("|"):
        if options.open:
            raise grammar.UsageError("-o '|CMD' and -O both name a command; give one")
        return f"pipe:{name[1:].strip()}"
    if "{" not in name and "%" not in name:
        name = f"{name}-%06d.{'tgz' if options.compress else 'tar'}"
    if not options.open:
        return name
    command, name = str(options.open), shlex.quote(name)
    named = command.replace("{}", name).replace("%s", name)
    return f"pipe:{command} {name}" if named == command else f"pipe:{named}"


def configure_tarp_split(parser: argparse.ArgumentParser) -> None:
    """tarp split."""
    grammar.add_inputs(parser)
    parser.add_argument("-c", "--count", dest="maxcount", type=grammar.count, default=1_000_000, metavar="N")
    parser.add_argument("-s", "--size", dest="maxsize", type=grammar.size, default=10**9, metavar="BYTES")
    parser.add_argument("-o", "--output", default="split-%06d.tar", metavar="PATTERN")
    parser.add_argument("-p", "--post", metavar="CMD", help="%%s in it is the shard's name")
    parser.add_argument("--slice", metavar="LO:HI:STEP")
    parser.add_argument("-v", "--verbose", action="store_true")


def run_tarp_split(options: argparse.Namespace) -> int:
    """A slice instead of a count."""
    options.count = None
    sliced_to_count(options)
    return run(options)


OLD = {"tarsplit": configure_tarsplit, "tarp split": configure_tarp_split}
OLD_RUN = {"tarsplit": run_tarsplit, "tarp split": run_tarp_split}
