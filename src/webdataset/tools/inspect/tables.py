"""Fields of samples as a table: TSV, CSV, JSON lines or Parquet.

>>> import io
>>> out = io.BytesIO()
>>> samples = [{"__key__": "a", "cls": 7, "txt": "one\\ttwo"}, {"__key__": "b", "cls": 8, "txt": "x"}]
>>> write_table(samples, out, fields="__key__ cls txt", format="tsv")
2
>>> out.getvalue().splitlines()
[b'__key__\\tcls\\ttxt', b'a\\t7\\tone\\\\ttwo', b'b\\t8\\tx']
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, islice
from typing import Any, BinaryIO

from webdataset.base.printing import MOST_NODES
from webdataset.errors import EncodingError, MissingPackageError
from webdataset.filters.fields import parse_field_spec
from webdataset.handlers import Handler, handled, reraise_exception
from webdataset.tools.alternatives import field_named

Sample = Mapping[str, Any]
Row = dict[str, Any]
Names = list[list[str]]
Rows = Iterator[Row]
Change = Callable[[str], str]

ROWS_PER_GROUP = 1000
"""Rows that are held in memory before they go into a Parquet file."""

_CSV_SPECIAL = re.compile(r'[",\r\n]|^\s|\s$')
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What a terminal may take for a command; tabs and ends of lines are the formats' own matter."""
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d[\d_]*(\.\d*)?([eE][+-]?\d+)?")
_TSV_ESCAPES: dict[int, str] = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r",
}  # fmt: skip


def write_table(
    samples: Iterable[Sample],
    out: BinaryIO,
    *,
    fields: str | Sequence[str] = "__key__",
    format: str = "tsv",
    header: bool = True,
    safe_csv: bool = False,
    handler: Handler = reraise_exception,
) -> int:
    """Write the chosen fields of every sample, one row each, and return the number of rows.

    `fields` is "jpg;png cls": alternatives by `;`, columns by spaces; "*" stands for all fields, those of the first
    sample where the format needs columns. Bytes that are no text become `base64:...`, but stay bytes in Parquet;
    control characters become `\\x1b` and their like, in CSV only on a terminal. With `safe_csv` a cell of a CSV file
    that a spreadsheet would take for a formula begins with an apostrophe.
    """
    write = _write_safe_csv if safe_csv and format == "csv" else WRITERS.get(format)
    if write is None:
        raise ValueError(f"the format must be one of {', '.join(WRITERS)}, got {format!r}")
    names = parse_field_spec(fields)
    if ["*"] in names and format != "json":
        names, samples = _columns_of_first(names, samples)
    rows = handled(samples, lambda sample: _row(sample, names), handler)
    return write(rows, out, [";".join(alternatives) for alternatives in names], header)


def plain_value(value: Any) -> Any:
    """A value as JSON has it: arrays become lists, text bytes become str, other bytes `base64:...`.

    >>> plain_value(b"hello"), plain_value(b"\\xff"), plain_value(float("nan"))
    ('hello', 'base64:/w==', 'NaN')
    """
    return _PlainValues().of(value)


class _PlainValues:
    """Makes plain values of nested ones, up to a number: a few references can stand for more than memory holds."""

    def __init__(self) -> None:
        self.left = MOST_NODES

    def of(self, value: Any) -> Any:
        self._check(1)
        self.left -= 1
        if value is None or isinstance(value, (str, bool, int)):
            return _without_surrogates(value) if isinstance(value, str) else value
        if isinstance(value, float):
            # JSON has no word for these numbers, and readers refuse the ones that Python writes
            return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _text(bytes(value))
        if isinstance(value, Mapping):
            return {str(_text_key(key)): self.of(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.of(item) for item in value]
        if hasattr(value, "tolist"):
            self._check(math.prod(getattr(value, "shape", ())))
            return self.of(value.tolist())
        raise EncodingError(f"{type(value).__name__} has no place in a table", hint="-d none gives the stored bytes")

    def _check(self, nodes: int) -> None:
        if nodes > self.left:
            raise EncodingError(f"more than {MOST_NODES:,} values in one field", hint="-d none gives the stored bytes")


def _columns_of_first(names: Names, samples: Iterable[Sample]) -> tuple[Names, Iterable[Sample]]:
    rest = iter(samples)
    first = list(islice(rest, 1))
    known = {name for alternatives in names for name in alternatives}
    more = [[name] for sample in first for name in sorted(sample) if not name.startswith("_") and name not in known]
    return [alternatives for alternatives in names if alternatives != ["*"]] + more, chain(first, rest)


def _row(sample: Sample, names: Names) -> Row:
    row: Row = {}
    for alternatives in names:
        if alternatives == ["*"]:
            row |= {name: sample[name] for name in sorted(sample) if not name.startswith("_")}
        else:
            row[";".join(alternatives)] = sample[field_named(sample, alternatives)]
    return row


def _write_tsv(rows: Rows, out: BinaryIO, columns: list[str], header: bool) -> int:
    return _write_lines(rows, out, columns if header else None, _tsv_line)


def _tsv_line(cells: list[str]) -> bytes:
    return "\t".join(cell.translate(_TSV_ESCAPES) for cell in cells).encode() + b"\n"


def _write_csv(rows: Rows, out: BinaryIO, columns: list[str], header: bool, change: Change | None = None) -> int:
    """CSV has no escapes: control characters are kept in a file, and made visible on a terminal."""
    changes = [change] if change else []
    changes += [_visible] if out.isatty() else []

    def line_of(cells: list[str]) -> bytes:
        for made in changes:
            cells = [made(cell) for cell in cells]
        return _csv_line(cells)

    return _write_lines(rows, out, columns if header else None, line_of)


def _write_safe_csv(rows: Rows, out: BinaryIO, columns: list[str], header: bool) -> int:
    return _write_csv(rows, out, columns, header, _no_formula)


def _no_formula(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def _visible(cell: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", cell)


def _csv_line(cells: list[str]) -> bytes:
    """Python's csv leaves a lone carriage return without quotes, and readers then end the line there."""
    if cells == [""]:
        return b'""\n'  # an empty line is no row
    quoted = ['"' + cell.replace('"', '""') + '"' if _CSV_SPECIAL.search(cell) else cell for cell in cells]
    return ",".join(quoted).encode() + b"\n"


def _write_lines(rows: Rows, out: BinaryIO, columns: list[str] | None, line_of: Callable[[list[str]], bytes]) -> int:
    """The header goes with the first row, so that a source that cannot be read gives nothing."""
    count = 0
    for row in rows:
        line = line_of([_cell(value) for value in row.values()])
        out.write(line_of(columns) + line if columns and not count else line)
        count += 1
    if columns and not count:
        out.write(line_of(columns))
    return count


def _write_json(rows: Rows, out: BinaryIO, columns: list[str], header: bool) -> int:  # noqa: ARG001 - rows say it all
    count = 0
    for row in rows:
        out.write(_json(plain_value(row)).encode() + b"\n")
        count += 1
    return count


def _write_json_list(rows: Rows, out: BinaryIO, columns: list[str], header: bool) -> int:  # noqa: ARG001 - as above
    count = 0
    for row in rows:
        out.write((b",\n" if count else b"[\n") + _json(plain_value(row)).encode())
        count += 1
    out.write(b"\n]\n" if count else b"[]\n")
    return count


def _write_yaml(rows: Rows, out: BinaryIO, columns: list[str], header: bool) -> int:  # noqa: ARG001 - as above
    """A document a row: its keys as YAML's block, its values as JSON, which YAML understands."""
    count = 0
    for row in rows:
        cells = [f"{json.dumps(name)}: {json.dumps(plain_value(value))}\n" for name, value in row.items()]
        out.write(("---\n" + "".join(cells)).encode())
        count += 1
    return count


def _write_parquet(rows: Rows, out: BinaryIO, columns: list[str], header: bool) -> int:  # noqa: ARG001 - has a schema
    pyarrow, parquet = _pyarrow()
    writer: Any = None
    count = 0
    while group := list(islice(rows, ROWS_PER_GROUP)):
        arrays = {name: [_parquet_value(row[name]) for row in group] for name in columns}
        try:
            table = pyarrow.table(arrays, schema=writer and writer.schema)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            hint = "choose other fields, or --format json"
            raise EncodingError(f"the values of a column are not of one type: {error}", hint=hint) from error
        writer = writer or parquet.ParquetWriter(out, table.schema)
        writer.write_table(table)
        count += len(group)
    if writer is None:
        writer = parquet.ParquetWriter(out, pyarrow.schema([(name, pyarrow.string()) for name in columns]))
    writer.close()
    return count


WRITERS: dict[str, Callable[[Rows, BinaryIO, list[str], bool], int]] = {
    "tsv": _write_tsv,
    "csv": _write_csv,
    "json": _write_json,
    "jsonlist": _write_json_list,
    "yaml": _write_yaml,
    "parquet": _write_parquet,
}


def _pyarrow() -> tuple[Any, Any]:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingPackageError(
            "Parquet files need pyarrow", hint="pip install 'webdataset[parquet]', or --format json"
        ) from error
    return pyarrow, parquet


def _parquet_value(value: Any) -> Any:
    return value if isinstance(value, (bytes, float)) else plain_value(value)


def _cell(value: Any) -> str:
    value = plain_value(value)
    if isinstance(value, str):
        return value
    return "" if value is None else _json(value)


def _json(value: Any) -> str:
    """JSON escapes control characters, but for those that a terminal obeys as well (0x7f to 0x9f)."""
    return _CONTROL.sub(_unicode_escaped, json.dumps(value, ensure_ascii=False))


def _unicode_escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode("ascii")


def _text_key(key: Any) -> Any:
    return _text(key) if isinstance(key, bytes) else key


def _without_surrogates(text: str) -> str:
    """Names in archives may be any bytes; what is no UTF-8 is shown by its number."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text
