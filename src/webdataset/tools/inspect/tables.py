"""Write fields of samples as a table: TSV, CSV, JSON Lines or Parquet.

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
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO, NoReturn

from webdataset.base.packages import imported
from webdataset.base.printing import MOST_NODES, harmless
from webdataset.errors import EncodingError, MissingPackageError
from webdataset.filters.fields import parse_field_spec
from webdataset.handlers import Handler, handled, reraise_exception
from webdataset.tools.transform.choosing import value_named

Sample = Mapping[str, Any]
Row = dict[str, Any]
Names = list[list[str]]
Rows = Iterator[Row]

FORMATS = ("tsv", "csv", "json", "jsonlist", "yaml", "parquet")

ROWS_PER_GROUP = 1000
"""Rows that are kept in memory before they are written to a Parquet file."""

_CSV_SPECIAL = re.compile(r'[",\r\n]|^\s|\s$')
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Characters that a terminal may interpret; tabs and line ends are handled by each format."""
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

    `fields` is "jpg;png cls": alternatives by `;`, columns by spaces; `json.score` is a part of a field, "*" stands for
    all fields, those of the first sample where the format needs columns. Bytes that are not text become `base64:...`,
    but stay bytes in Parquet; control characters become `\\x1b` and the like, in CSV, which has no
    escapes, only on a terminal, and so do there those that turn the direction of text. With
    `safe_csv`, CSV cells that a spreadsheet would take for a formula begin with an apostrophe.
    """
    if format not in FORMATS:
        raise ValueError(f"the format must be one of {', '.join(FORMATS)}, got {format!r}")
    names = parse_field_spec(fields)
    if ["*"] in names and format != "json":
        names, samples = _columns_of_first(names, samples)
    columns = [";".join(alternatives) for alternatives in names]
    count = 0

    def counted_rows() -> Rows:
        nonlocal count
        for row in handled(samples, lambda sample: _row(sample, names), handler):
            count += 1
            yield row

    if format == "parquet":
        _write_parquet(counted_rows(), out, columns)
        return count
    if format in ("tsv", "csv"):
        line_of = _tsv_line if format == "tsv" else partial(_csv_line, safe=safe_csv)
        pieces = _lines(counted_rows(), columns if header else None, line_of)
    else:
        pieces = {"json": _json_lines, "jsonlist": _json_list, "yaml": _yaml_documents}[format](counted_rows())
    is_shown = hasattr(out, "isatty") and out.isatty()  # a file that is published when it is complete has none
    for piece in pieces:
        out.write(harmless(piece.decode()).encode() if is_shown else piece)
    return count


def plain_value(value: object) -> Any:
    """Convert a value for JSON: arrays become lists, bytes become text or `base64:...`.

    >>> plain_value(b"hello"), plain_value(b"\\xff"), plain_value(float("nan"))
    ('hello', 'base64:/w==', 'NaN')
    """
    return _PlainValues().of(value)


class _PlainValues:
    """Converts nested values, up to a limit: a few references can stand for more than memory holds."""

    def __init__(self) -> None:
        self.left = MOST_NODES

    def of(self, value: object) -> Any:
        if self.left < 1:
            self._refuse()
        self.left -= 1
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.of(item) for item in value]
        if value is None or isinstance(value, (str, bool, int)):
            return _without_surrogates(value) if isinstance(value, str) else value
        if isinstance(value, float):
            # JSON has no such numbers, and readers reject what Python writes for them
            return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return _text(bytes(value))
        if isinstance(value, Mapping):
            return {str(_text_key(key)): self.of(item) for key, item in value.items()}
        if hasattr(value, "tolist"):
            if math.prod(getattr(value, "shape", ())) > self.left:
                self._refuse()
            return self.of(value.tolist())
        raise EncodingError(f"{type(value).__name__} cannot be in a table", hint="-d none writes the stored bytes")

    def _refuse(self) -> NoReturn:
        raise EncodingError(f"more than {MOST_NODES:,} values in one field", hint="-d none writes the stored bytes")


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
            row[";".join(alternatives)] = value_named(sample, alternatives)
    return row


def _tsv_line(cells: list[str]) -> bytes:
    return "\t".join(cell.translate(_TSV_ESCAPES) for cell in cells).encode() + b"\n"


def _csv_line(cells: list[str], *, safe: bool) -> bytes:
    """Unlike Python's csv, quote a lone carriage return, which readers would take for the end of the line."""
    if safe:
        cells = [f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell for cell in cells]
    if cells == [""]:
        return b'""\n'  # an empty line would not be a row
    quoted = ['"' + cell.replace('"', '""') + '"' if _CSV_SPECIAL.search(cell) else cell for cell in cells]
    return ",".join(quoted).encode() + b"\n"


def _lines(rows: Rows, columns: list[str] | None, line_of: Callable[[list[str]], bytes]) -> Iterator[bytes]:
    """Yield the header with the first row, so that a source that cannot be read leaves no output."""
    header = line_of(columns) if columns else b""
    for row in rows:
        yield header + line_of([_cell(value) for value in row.values()])
        header = b""
    if header:
        yield header


def _json_lines(rows: Rows) -> Iterator[bytes]:
    return (_json(plain_value(row)).encode() + b"\n" for row in rows)


def _json_list(rows: Rows) -> Iterator[bytes]:
    opening = b"[\n"
    for row in rows:
        yield opening + _json(plain_value(row)).encode()
        opening = b",\n"
    yield b"[]\n" if opening == b"[\n" else b"\n]\n"


def _yaml_documents(rows: Rows) -> Iterator[bytes]:
    """Yield a document per row: its keys as a YAML block, its values as JSON, which YAML understands."""
    for row in rows:
        cells = [f"{json.dumps(name)}: {json.dumps(plain_value(value))}\n" for name, value in row.items()]
        yield ("---\n" + "".join(cells)).encode()


def _write_parquet(rows: Rows, out: BinaryIO, columns: list[str]) -> None:
    pyarrow, parquet = _pyarrow()
    writer: Any = None
    while group := list(islice(rows, ROWS_PER_GROUP)):
        arrays = {name: [_parquet_value(row[name]) for row in group] for name in columns}
        try:
            table = pyarrow.table(arrays, schema=writer and writer.schema)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            hint = "choose other fields, or --format json"
            raise EncodingError(f"the values of a column are not of one type: {error}", hint=hint) from error
        writer = writer or parquet.ParquetWriter(out, table.schema)
        writer.write_table(table)
    if writer is None:
        writer = parquet.ParquetWriter(out, pyarrow.schema([(name, pyarrow.string()) for name in columns]))
    writer.close()


def _pyarrow() -> tuple[Any, Any]:
    try:
        pyarrow, parquet = imported("pyarrow"), imported("pyarrow.parquet")
    except ImportError as error:
        raise MissingPackageError(
            "Parquet files need pyarrow", hint="pip install 'webdataset[parquet]', or --format json"
        ) from error
    return pyarrow, parquet


def _parquet_value(value: object) -> object:
    return value if isinstance(value, (bytes, float)) else plain_value(value)


def _cell(value: object) -> str:
    value = plain_value(value)
    if isinstance(value, str):
        return value
    return "" if value is None else _json(value)


def _json(value: object) -> str:
    """Format JSON, and also escape the control characters from 0x7f to 0x9f, which a terminal may interpret."""
    return _CONTROL.sub(_unicode_escaped, json.dumps(value, ensure_ascii=False))


def _unicode_escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode("ascii")


def _text_key(key: object) -> object:
    return _text(key) if isinstance(key, bytes) else key


def _without_surrogates(text: str) -> str:
    """Escape what is not UTF-8: names in archives may be any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text
