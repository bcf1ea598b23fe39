"""Split a stream of samples into shards.

A shard is full when it has --maxcount samples or --maxsize bytes. It appears under its name when it is complete; then
--post runs a command for it. --start N continues a numbered set: existing shards before N are left alone.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from webdataset.base.redact import redacted
from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("tar -cf - --sort=name -C data train | wl split --maxsize 1e9 -o train-%06d.tar", "a folder into shards of 1 GB"),
    (
        "wl split --maxcount 1000 big.tar -o part-{shard:04d}.tar --post 'gsutil cp {} gs://bucket/'",
        "upload each shard",
    ),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser)
    parser.add_argument(
        "-o", "--output", metavar="PATTERN", default="split-%06d.tar", help="names of shards: %%06d or {shard:06d}"
    )
    grammar.add_shard_size(parser)
    grammar.add_rekey(parser)
    parser.number("--maxshards", help="stop when N shards are full")
    parser.number("--start", default=0, help="number of the first shard (0)")
    parser.add_argument("--post", metavar="CMD", help="shell command to run for each complete shard; {} is its name")
    parser.switch("--delete", help="delete each shard after --post")


def run(options: Namespace) -> int:
    from webdataset.cli.flow import Sink, finished, reading, rekeyed
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.handlers import close
    from webdataset.tools.make.splitting import split_samples
    from webdataset.tools.transform.choosing import in_pieces
    from webdataset.writer import ShardWriter
    from webdataset.writing.shardsets import is_numbered

    if not is_numbered(options.output):
        hint = "use for example train-%06d.tar or train-{shard:06d}.tar"
        raise grammar.UsageError(f"the name {options.output!r} has no number for the shards; {hint}")
    dataset = rekeyed(reading(options, large=in_pieces()), options)
    with Sink(options, _post(options)) as sink:
        assert isinstance(sink.writer, ShardWriter)
        progress = ProgressDisplay.of(options)
        progress.stats = dataset.stats
        samples = iter(dataset)
        try:
            split_samples(progress(samples), sink.writer, maxshards=options.maxshards, write=sink.write)
        finally:
            progress.clear()
            close(samples)
    return finished(options, progress, dataset.stats(), sink.written())


def _post(options: Namespace) -> Callable[[str], None]:
    from webdataset.tools.make.splitting import post_command

    from .xargs import write_stderr

    command = post_command(options.post, delete=options.delete, output=write_stderr) if options.post else None

    def post(name: str) -> None:
        if options.verbose:
            terminal.err(f"# wrote {redacted(name)}\n")
        if command is not None:
            command(name)

    return post
