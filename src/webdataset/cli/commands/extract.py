"""Extract fields of all samples as a table: TSV, CSV, JSON Lines or Parquet.

In TSV, a tab, newline or backslash inside a value is written as \\t, \\n or \\\\; bytes that are not text become
base64:...
"""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from webdataset.cli import grammar

if TYPE_CHECKING:
    from webdataset.base.stages import Stage
    from webdataset.handlers import Handler

EXAMPLES = (
    ("wl extract -f cls train-{000000..000009}.tar", "keys and classes, separated by tabs"),
    ("wl extract -F json -f 'caption.txt json' -c 100 gs://bucket/train.tar | jq .json", "100 lines of JSON"),
)
FORMATS = ("tsv", "csv", "json", "parquet")


def configure(parser: grammar.Parser) -> None:
    grammar.add_common(parser)
    grammar.add_fields(parser, 'columns: "cls txt;text"; alternatives are separated by ;')
    parser.switch("-a", "--all", help="all fields")
    parser.add_argument("-F", "--format", choices=FORMATS, help="format (default: by the output's name, else tsv)")
    parser.switch("--nokey", help="no column with the key")
    parser.switch("--noheader", help="no line with column names")
    parser.switch("--safe-csv", help="put ' before CSV cells that a spreadsheet would run as a formula (= + - @)")
    parser.add_argument(
        "-d", "--decode", metavar="SPEC", default="basic", help="basic, raw (text as stored), or rgb8 etc. for pixels"
    )
    grammar.add_output(parser, help="where to write (default: stdout)")


def run(options: Namespace) -> int:
    from webdataset.base.redact import redacted
    from webdataset.base.reports import Report
    from webdataset.cli.flow import finished, handler_of, reading, refuse_terminal
    from webdataset.cli.outputs import writing
    from webdataset.cli.progress import ProgressDisplay
    from webdataset.tools.inspect.tables import write_table
    from webdataset.tools.transform.choosing import NOT_IN_MEMORY
    from webdataset.tools.transform.lazy import LazySample, field_decoder

    format = options.format or _by_name(options.output)
    dataset = reading(options, large=NOT_IN_MEMORY)
    if getattr(options, "code", None):
        dataset = dataset.compose(_mapping(options.code, options.decode, handler_of(options)))
    progress = ProgressDisplay.of(options)
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
    written = "stdout" if options.output == "-" else redacted(options.output)
    return finished(options, progress, report.as_dict(), written)


def columns(options: Namespace) -> list[str]:
    """Return the requested columns; if there are none, the key."""
    fields = (options.fields or "").split() + (["*"] if options.all else [])
    if options.nokey:
        return fields or ["__key__"]
    return fields if "__key__" in fields else ["__key__", *fields]


def _mapping(code: str, decode: str, handler: Handler) -> Stage:
    """Return the stage of wl-extract's -P: Python code that runs on each sample first."""
    from webdataset.cli.expressions import transformation
    from webdataset.tools.transform.mapping import map_samples

    make = partial(transformation, code, decode=decode)
    make()
    return map_samples(make, decode=decode, handler=handler)


def _by_name(output: str) -> str:
    ending = output.rpartition(".")[2].lower()
    return {"csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "parquet": "parquet"}.get(ending, "tsv")
