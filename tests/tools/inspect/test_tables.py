"""Fields as tables."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webdataset.errors import EncodingError, MissingPackageError
from webdataset.handlers import ignore_and_continue
from webdataset.tools.inspect.tables import write_table


def table(samples: list[dict[str, object]], **options: object) -> str:
    out = io.BytesIO()
    write_table(samples, out, **options)  # type: ignore[arg-type]
    return out.getvalue().decode()


def test_tsv_has_a_header_and_a_line_a_sample() -> None:
    samples = [{"__key__": "a", "cls": 7}, {"__key__": "b", "cls": 8}]
    assert table(samples, fields="__key__ cls") == "__key__\tcls\na\t7\nb\t8\n"


def test_tsv_keeps_one_line_a_sample_whatever_the_text() -> None:
    assert table([{"txt": "a\tb\nc\\d\r"}], fields="txt", header=False) == "a\\tb\\nc\\\\d\\r\n"


def test_alternatives_take_the_first_field_there_is() -> None:
    samples = [{"jpg": "1"}, {"png": "2"}]
    assert table(samples, fields="jpg;png") == "jpg;png\n1\n2\n"


def test_a_missing_field_lists_the_fields_there_are() -> None:
    with pytest.raises(ValueError, match="cls txt"):
        table([{"__key__": "a", "cls": 1, "txt": "x"}], fields="text")


def test_a_missing_field_can_be_skipped() -> None:
    samples = [{"cls": 1}, {"txt": "x"}, {"cls": 3}]
    assert table(samples, fields="cls", header=False, handler=ignore_and_continue) == "1\n3\n"


def test_json_lines_hold_values_as_they_are() -> None:
    sample = {"__key__": "a", "json": {"x": [1, None, True]}, "npy": np.array([[1.5, 2.0]]), "bin": b"\xff"}
    assert json.loads(table([sample], fields="__key__ json npy bin", format="json")) == {
        "__key__": "a",
        "json": {"x": [1, None, True]},
        "npy": [[1.5, 2.0]],
        "bin": "base64:/w==",
    }


def test_json_lines_are_json_also_for_numbers_that_json_has_not() -> None:
    line = table([{"npy": np.array([np.nan, np.inf, -np.inf])}], fields="npy", format="json")
    assert json.loads(line, parse_constant=pytest.fail) == {"npy": ["NaN", "Infinity", "-Infinity"]}


def test_a_star_stands_for_all_fields() -> None:
    samples = [{"__key__": "a", "__url__": "x", "txt": "t", "cls": 1}, {"__key__": "b", "txt": "u", "cls": 2}]
    assert table(samples, fields="__key__ *") == "__key__\tcls\ttxt\na\t1\tt\nb\t2\tu\n"


def test_names_that_are_no_text_are_shown_by_number() -> None:
    assert table([{"__key__": "a\udcff"}], fields="__key__", header=False, format="csv") == "a\\xff\n"


def test_a_value_without_a_place_in_a_table_is_an_error() -> None:
    with pytest.raises(EncodingError, match="-d none"):
        table([{"x": object()}], fields="x")


def test_an_unknown_format_lists_the_formats() -> None:
    with pytest.raises(ValueError, match="jsonlist"):
        table([], format="xml")


def test_parquet_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingPackageError, match=r"webdataset\[parquet\]"):
        table([{"cls": 1}], fields="cls", format="parquet")


def test_parquet_is_read_back_with_its_types() -> None:
    from pyarrow import parquet

    out = io.BytesIO()
    samples = [
        {"__key__": f"{i:04d}", "cls": i, "txt": f"text\t{i}", "bin": bytes([i % 256, 255]), "npy": np.arange(3) + i}
        for i in range(2500)
    ]
    assert write_table(samples, out, fields="__key__ cls txt bin npy", format="parquet") == 2500
    read = parquet.read_table(io.BytesIO(out.getvalue()))
    assert [str(field.type) for field in read.schema][:4] == ["string", "int64", "string", "binary"]
    assert read.column("cls").to_pylist() == list(range(2500))
    assert read.column("txt")[2499].as_py() == "text\t2499"
    assert read.column("bin")[300].as_py() == b"\x2c\xff"
    assert read.column("npy")[7].as_py() == [7, 8, 9]
    assert parquet.ParquetFile(io.BytesIO(out.getvalue())).num_row_groups == 3


def test_parquet_of_nothing_is_a_table_without_rows() -> None:
    from pyarrow import parquet

    out = io.BytesIO()
    assert write_table([], out, fields="__key__ cls", format="parquet") == 0
    assert parquet.read_table(io.BytesIO(out.getvalue())).column_names == ["__key__", "cls"]


def test_a_column_of_two_types_is_an_error_in_parquet() -> None:
    with pytest.raises(EncodingError, match="type"):
        table([{"a": 1}, {"a": "x"}], fields="a", format="parquet")


def test_a_list_and_documents_are_json_and_yaml() -> None:
    import yaml

    samples = [{"__key__": "a: b", "cls": 7}, {"__key__": "é\n- c", "cls": [1, {"x": None}]}]
    assert json.loads(table(samples, fields="__key__ cls", format="jsonlist")) == samples
    assert list(yaml.safe_load_all(table(samples, fields="__key__ cls", format="yaml"))) == samples
    assert json.loads(table([], fields="cls", format="jsonlist")) == []


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_csv_gives_every_text_back(rows: list[tuple[str, str]]) -> None:
    text = table([{"a": a, "b": b} for a, b in rows], fields="a b", format="csv", header=False)
    back = [tuple(row) for row in csv.reader(io.StringIO(text, newline=""), strict=True)]
    assert back == rows


@given(st.lists(TEXTS, min_size=2, max_size=5))
def test_tsv_gives_every_text_back(values: list[str]) -> None:
    names = [f"f{i}" for i in range(len(values))]
    line = table([dict(zip(names, values, strict=True))], fields=names, header=False)
    assert line.endswith("\n")
    assert [undone(cell) for cell in line[:-1].split("\t")] == values


def undone(cell: str) -> str:
    plain = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}
    return re.sub(r"\\(x..|.)", lambda match: plain.get(match[1]) or chr(int(match[1][1:], 16)), cell)
