"""Sort samples by their key or by any field, also when they are larger than memory.

Equal ones stay in their order, and all of them stay. Two samples with one key, which come next to each other when
sorted by it, would be read as one, so that is an error; --rekey '{key}-{index}' gives them keys of their own.
"""

from __future__ import annotations

import argparse
import os

from webdataset.cli import grammar

from .xargs import sliced_to_count

EXAMPLES = (
    ("wl sort in.tar -o sorted.tar", "by key"),
    ("wl sort -k cls --as int -r train-{000..009}.tar -o sorted-%06d.tar", "by class, the highest first, into shards"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    grammar.add_common(parser)
    grammar.add_fields(parser)
    parser.add_argument("-k", "--by", metavar="FIELD", default="__key__", help="what to sort by (__key__)")
    parser.add_argument(
        "--as", dest="kind", choices=("text", "int", "float"), default="text", help="how to compare (text)"
    )
    parser.add_argument("-r", "--reverse", action="store_true", help="the highest first")
    grammar.add_rekey(parser)
    grammar.add_memory(parser, "100M")
    grammar.add_output(parser)


def run(options: argparse.Namespace) -> int:
    """Sort."""
    from webdataset.cli.flow import drain, handler_of, reading
    from webdataset.tools.transform.choosing import fields, last_of_equal
    from webdataset.tools.transform.sorting import sort_samples, sort_value

    stage = sort_samples(
        options.by,
        options.kind,
        reverse=options.reverse,
        memory=options.memory,
        tmpdir=options.tmpdir,
        handler=handler_of(options),
    )
    samples = reading(options).compose(stage)
    if getattr(options, "update", False):
        samples = samples.compose(last_of_equal(sort_value(options.by, options.kind)))
    if options.fields:
        samples = samples.compose(fields(options.fields, handler=handler_of(options)))
    return drain(options, samples)


# -- old names ---------------------------------------------------------------------------------------

TYPES = {"none": "text", "int": "int", "float": "float"}


def configure_tarsort(parser: argparse.ArgumentParser) -> None:
    """tarsort."""
    grammar.add_inputs(parser)
    parser.add_argument("-k", "--key", choices=("__key__",), default="__key__", help="what names a sample: its key")
    parser.add_argument("-s", "--sortkey", dest="by", metavar="FIELD", default="__key__")
    parser.add_argument("-S", "--sorttype", choices=(*TYPES, "shuffle"), default="none")
    parser.add_argument("-o", "--output", default="-", metavar="URL")
    parser.add_argument(
        "-r", "--report", dest="every", type=grammar.count, metavar="N", help="progress every N samples"
    )
    parser.add_argument("-t", "--tempfile", metavar="FILE", help="temporary files are made in the folder of this one")
    parser.add_argument("--update", action="store_true", help="of samples with equal sort keys keep the last")
    why = "there is no database"
    grammar.add_without_effect(parser, "--keep", why=why)
    grammar.add_without_effect(parser, "--commit", why=why, metavar="N")
    parser.add_argument("-v", "--verbose", action="store_true")


def run_tarsort(options: argparse.Namespace) -> int:
    """A sort of the type shuffle is a shuffle."""
    if options.tempfile:
        options.tmpdir = os.path.dirname(os.path.abspath(options.tempfile))
    if options.sorttype == "shuffle":
        return _shuffled(options)
    options.kind = TYPES[options.sorttype]
    return run(options)


def configure_tarp_sort(parser: argparse.ArgumentParser) -> None:
    """tarp sort."""
    grammar.add_inputs(parser)
    parser.add_argument("-s", "--sortfield", dest="by", metavar="FIELD", default="__key__")
    parser.add_argument("-f", "--field", dest="fields", metavar="SPEC")
    parser.add_argument("-o", "--outputs", "--output", dest="output", default="-", metavar="URL")
    parser.add_argument("--slice", metavar="LO:HI:STEP")
    parser.add_argument("--rekey", metavar="PATTERN")
    parser.add_argument("--tmpdir", metavar="DIR")
    grammar.add_without_effect(parser, "--keepdb", why="there is no database")
    parser.add_argument("-v", "--verbose", action="store_true")


def run_tarp_sort(options: argparse.Namespace) -> int:
    """By __random__ is a shuffle."""
    sliced_to_count(options)
    return _shuffled(options) if options.by == "__random__" else run(options)


def _shuffled(options: argparse.Namespace) -> int:
    from webdataset.cli.grammar import defaults
    from webdataset.cli.running import parser_of

    from . import shuffle

    given = vars(options)
    return shuffle.run(argparse.Namespace(**{**defaults(parser_of("shuffle", shuffle)), **given}))


OLD = {"tarsort": configure_tarsort, "tarp sort": configure_tarp_sort}
OLD_RUN = {"tarsort": run_tarsort, "tarp sort": run_tarp_sort}
