"""Write fields of all samples as a table: TSV, CSV, JSON lines or Parquet.

TSV writes tab, newline and backslash inside a value as \\t, \\n and \\\\; bytes that are no text become base64:...
"""

from __future__ import annotations

import argparse
from typing import Any

from webdataset.cli import grammar

EXAMPLES = (
    ("wl extract -f cls train-{000000..000009}.tar", "keys and classes, separated by tabs"),
    ("wl extract -F json -f 'caption.txt json' -c 100 gs://bucket/train.tar | jq .json", "100 lines of JSON"),
)
FORMATS = ("tsv", "csv", "json", "parquet")


def configure(parser: argparse.ArgumentParser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser, 'columns: "cls txt;text"; alternatives are separated by ;')
    parser.add_argument("-a", "--all", action="store_true", help="all fields")
    parser.add_argument("-F", "--format", choices=FORMATS, help="tsv (or by the name of the output)")
    parser.add_argument("--nokey", action="store_true", help="no column with the key")
    parser.add_argument("--noheader", action="store_true", help="no line with the names of the columns")
    parser.add_argument(
        "--safe-csv",
        action="store_true",
        help="mark CSV cells that a spreadsheet would run as a formula (= + - @) with '",
    )
    parser.add_argument(
        "-d", "--decode", metavar="SPEC", default="basic", help="basic, raw (stored text), or rgb8 etc. for pixels"
    )
    parser.add_argument("-o", "--output", metavar="URL", default="-", help="where to write instead of stdout")


def run(options: argparse.Namespace) -> int:
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, reading, refuse_terminal
    from webdataset.cli.outputs import writing
    from webdataset.cli.progress import Progress
    from webdataset.tools.inspect.tables import write_table
    from webdataset.tools.transform.choosing import NOT_IN_MEMORY
    from webdataset.tools.transform.lazy import LazySample, field_decoder

    format = options.format or _by_name(options.output)
    dataset = reading(options, large=NOT_IN_MEMORY)
    if getattr(options, "code", None):
        dataset = dataset.compose(_changed_by(options.code, options.decode, handler_of(options)))
    progress = Progress(options, options.urls, options.count)
    decode = field_decoder(options.decode)
    rows = (LazySample(sample, decode) for sample in progress(dataset))
    if format == "parquet":
        refuse_terminal(options.output)
    table: dict[str, Any] = {"fields": columns(options), "format": format, "header": not options.noheader}
    table["safe_csv"] = getattr(options, "safe_csv", False)
    report = Report()
    with writing(options.output) as out, report.in_force():
        write_table(rows, out, **table, handler=handler_of(options))
    report.add(dataset.stats())
    return finished(options, progress, report.as_dict())


def columns(options: argparse.Namespace) -> list[str]:
    """The columns that were asked for; without any, the keys."""
    fields = (options.fields or "").split() + (["*"] if options.all else [])
    if options.nokey:
        return fields or ["__key__"]
    return fields if "__key__" in fields else ["__key__", *fields]


def _changed_by(code: str, decode: str, handler: Any) -> Any:
    """wl-extract -P: Python over each sample first."""
    from functools import partial

    from webdataset.cli.expressions import transformation
    from webdataset.tools.transform.mapping import map_samples

    make = partial(transformation, code, decode=decode)
    make()
    return map_samples(make, decode=decode, handler=handler)


def _by_name(output: str) -> str:
    ending = output.rpartition(".")[2].lower()
    return {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet"}.get(ending, "tsv")


def _tar2tsv(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    grammar.add_fields(parser, 'fields, "a;b c"')
    parser.add_argument("-c", "--count", type=grammar.count, default=None, help="stop after N samples")
    parser.add_argument("--nokey", action="store_true", help="no column with the key")
    parser.add_argument("--noheader", action="store_true", help="no header line")
    parser.set_defaults(decode="raw", format="tsv")


def _tar2json(parser: argparse.ArgumentParser) -> None:
    grammar.add_inputs(parser)
    parser.add_argument("-k", "--keys", dest="fields", metavar="FIELDS", help='fields, "a b"')
    parser.add_argument("-a", "--all", action="store_true", help="all fields")
    parser.add_argument(
        "-f", "--format", dest="kind", choices=("jsonlines", "json", "yaml"), default="jsonlines",
        help="a line each, a list, or a YAML document each",
    )  # fmt: skip
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    parser.add_argument("--nokey", action="store_true", help="no key")


def _run_tar2json(options: argparse.Namespace) -> int:
    """Their names of the formats."""
    options.format = {"jsonlines": "json", "json": "jsonlist", "yaml": "yaml"}[options.kind]
    return run(options)


def _wl_extract(parser: argparse.ArgumentParser) -> None:
    configure(parser)
    parser.add_argument("-P", "--code", metavar="CODE", help="Python over each sample first, as in `wl map`")
    parser.set_defaults(nokey=True, noheader=True)


OLD = {"tar2tsv": _tar2tsv, "tar2json": _tar2json, "wl-extract": _wl_extract}
OLD_RUN = {"tar2json": _run_tar2json}
