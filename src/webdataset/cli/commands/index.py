"""Make indices of shards: where each sample and each of its fields is.

With an index a dataset has a length, samples can be read by number or key, and epochs are exact. An index that exists
and matches its shard is left alone. The last line says where the indices are: beside the shards, in files and in
stores, so that every machine finds them; where that is refused, in the cache folder of this machine.
"""

from __future__ import annotations

from argparse import Namespace

from webdataset.base.units import counted
from webdataset.cli import grammar, terminal

EXAMPLES = (
    ("wl index train-{000000..000009}.tar", "train-000000.tar.wdx, ... next to the shards"),
    ("wl index -o train.json s3://bucket/train-{000000..000999}.tar", "one list of all shards, in the format of wids"),
    ("wl index --format dali train.tar", "train.idx, for DALI"),
    ("wl index --check train.tar", "check whether the index matches the shard"),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument(
        "--format",
        metavar="NAMES",
        default="wdx",
        help="wdx (NAME.tar.wdx, our own), dali (NAME.idx), energon (NAME.tar.idx), or several with commas (wdx)",
    )
    parser.add_argument(
        "--where",
        metavar="PLACE",
        help="`beside` the shards, in the `cache` folder of this machine, or the path of a folder "
        "(beside; cache where that is refused)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="also write a list of all shards, as JSON for wids; a file or a url"
    )
    parser.switch("--force", help="remake all indices")
    parser.switch("--check", help="compare existing indices with their shards; exit 1 if one differs")
    parser.number("-j", "--jobs", help="number of shards to read at once")
    grammar.add_errors(parser)
    grammar.add_progress(parser, json=False)


def run(options: Namespace) -> int:
    from webdataset.cli.flow import urls_of
    from webdataset.tools.make.indexing import FORMATS

    formats = [name for name in options.format.replace(",", " ").split() if name]
    if unknown := [name for name in formats if name not in FORMATS]:
        raise ValueError(f"--format must be of {', '.join(FORMATS)}, got {', '.join(unknown)}")
    urls = urls_of(options.inputs)
    return _check(urls, formats, options) if options.check else _make(urls, formats, options)


def _make(urls: list[str], formats: list[str], options: Namespace) -> int:
    from webdataset.cli.flow import handler_of
    from webdataset.indices.making import PlacesOfIndices
    from webdataset.tools.make.indexing import write_indices

    errors: list[Exception] = []
    decide = handler_of(options)

    def report(error: Exception) -> bool:
        go_on = bool(decide(error))
        errors.append(error)
        terminal.err(f"wl index: {error}\n")
        return go_on

    shown, places = _Counter(options), PlacesOfIndices()
    catalogue = write_indices(
        urls,
        formats,
        where=options.where,
        jobs=options.jobs,
        force=options.force,
        progress=shown,
        handler=report,
        concatenated=options.concatenated,
        places=places,
    )
    shown.clear()
    if options.output:
        catalogue.save(options.output)
    if not options.quiet:
        where = f"; {places}" if "wdx" in formats and places.counts else ""
        terminal.err(f"{counted(len(catalogue), 'shard')}, {counted(catalogue.total, 'sample')}{where}\n")
    return 1 if errors else 0


def _check(urls: list[str], formats: list[str], options: Namespace) -> int:
    from webdataset.base.reports import current_report
    from webdataset.cli.flow import handler_of
    from webdataset.handlers import ask
    from webdataset.tools.make.indexing import index_problem

    report, failed = current_report(), 0
    for url in urls:
        for format in formats:
            try:
                problem = index_problem(url, format, options.where, concatenated=options.concatenated)
            except Exception as error:
                if not ask(handler_of(options), error, report, "shards_skipped"):
                    return 1
                problem = str(error)
            if problem is not None:
                failed = 1
                terminal.out(f"{url}: {problem}; `wl index --force {url}` remakes it\n")
    return failed


class _Counter:
    """Shows how many shards are done, with the line that all commands have."""

    def __init__(self, options: Namespace) -> None:
        from webdataset.cli.progress import ProgressDisplay

        self._display = ProgressDisplay.of(options, noun="shard", urls=())
        self._done = 0

    def __call__(self, done: int, shards: int, url: str) -> None:  # noqa: ARG002 - as write_indices tells it
        self._display.total = shards
        self._display.add(done - self._done, 0)
        self._done = done

    def clear(self) -> None:
        """Erase the line."""
        self._display.clear()
