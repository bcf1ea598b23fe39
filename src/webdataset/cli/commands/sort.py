"""Sort samples by their key or by any field, even if larger than memory.

The sort is stable; nothing is dropped. Two samples with the same key are neighbours when sorted by it and would be
read as one, so that is an error; --rekey '{key}-{index}' makes keys unique.
"""

from __future__ import annotations

from argparse import Namespace

from webdataset.cli import grammar

EXAMPLES = (
    ("wl sort in.tar -o sorted.tar", "by key"),
    ("wl sort -e 'len(txt)' in.tar -o sorted.tar", "by the length of a text: any Python expression"),
    ("wl sort -k cls --as int -r train-{000..009}.tar -o sorted-%06d.tar", "by class, highest first, into shards"),
)


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser)
    parser.add_argument(
        "-k", "--by", metavar="FIELD", default="__key__", help="what to sort by: a field, or json.score (__key__)"
    )
    parser.add_argument("-e", "--expression", metavar="EXPR", help="sort by the value of this Python expression")
    parser.add_argument(
        "--as", dest="kind", choices=("text", "int", "float"), default="text", help="how to compare values (text)"
    )
    parser.switch("-r", "--reverse", help="highest first")
    grammar.add_rekey(parser)
    grammar.add_memory(parser, "100M")
    grammar.add_shards(parser)


def run(options: Namespace) -> int:
    from webdataset.cli.expressions import compiled
    from webdataset.cli.flow import drain, handler_of, reading, urls_of
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.tools.transform.choosing import fields, last_of_equal
    from webdataset.tools.transform.sorting import sort_samples, sort_value

    stage = sort_samples(
        compiled(options.expression) if getattr(options, "expression", None) else options.by,
        options.kind,
        reverse=options.reverse,
        memory=options.memory,
        tmpdir=options.tmpdir,
        handler=handler_of(options),
    )
    options.urls = urls_of(options.inputs)
    ProgressDisplay.of(options, passes=("reading", "writing"))
    samples = reading(options, options.urls).compose(stage)
    if getattr(options, "update", False):
        samples = samples.compose(last_of_equal(sort_value(options.by, options.kind)))
    if options.fields:
        samples = samples.compose(fields(options.fields, handler=handler_of(options)))
    return drain(options, samples)
