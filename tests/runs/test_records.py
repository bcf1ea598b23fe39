"""Records: every complete line counts, from any number of writers, in folders and in stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from webdataset.runs import records
from webdataset.runs.places import Place
from webdataset.runs.records import AttemptRecord, RecordReader, RecordWriter, records_of


def test_a_record_is_a_line(tmp_path: Path) -> None:
    record = AttemptRecord("007", "done", samples_out=0, result={"a": [1]}, final=True)
    assert AttemptRecord.parsed(record.line()) == record
    assert record.line().endswith(b"\n")


@pytest.mark.parametrize("line", [b'{"item":"a","stat', b"[]", b"3", b'{"status":"done"}', b"\xff"])
def test_a_line_that_is_no_record(line: bytes) -> None:
    assert AttemptRecord.parsed(line) is None


def test_fields_of_later_versions_are_left_out() -> None:
    assert AttemptRecord.parsed(b'{"item":"a","status":"done","mood":"good"}') == AttemptRecord("a", "done")


def test_a_reader_sees_what_is_new(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    one, two = RecordWriter(place), RecordWriter(place)
    reader = RecordReader(place)
    one.write(AttemptRecord("a", "start"))
    assert [record.item for record in reader.new()] == ["a"]
    two.write(AttemptRecord("b", "start"))
    one.write(AttemptRecord("a", "done"))
    assert sorted((record.item, record.status) for record in reader.new()) == [("a", "done"), ("b", "start")]
    assert list(reader.new()) == []
    assert len(list(RecordReader(place).new())) == 3


def test_a_half_line_counts_when_it_is_whole(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    reader = RecordReader(place)
    line = AttemptRecord("a", "done").line()
    place.append("records/x.jsonl", line[:10])
    assert list(reader.new()) == []
    place.append("records/x.jsonl", line[10:])
    assert [record.item for record in reader.new()] == ["a"]


def test_a_reader_may_look_at_one_task_only(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    for task in ("00000001-aa-bb-1", "00000001-aa-bb-12", "00000002-cc-bb-1"):
        RecordWriter(place, task).write(AttemptRecord(task, "done"))
    reader = RecordReader(place, records_of("00000001-aa-bb-1"))
    assert [record.item for record in reader.new()] == ["00000001-aa-bb-1"]
    assert len(list(RecordReader(place).new())) == 3


def test_in_a_store_files_are_written_anew_and_stay_short(s3_prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_LINES", 2)
    place = Place(s3_prefix)
    writer, reader = RecordWriter(place), RecordReader(place)
    for name in "abcde":
        writer.write(AttemptRecord(name, "done"))
    assert sorted(record.item for record in reader.new()) == [*"abcde"]
    assert len(place.sizes("records/")) == 3
    assert list(reader.new()) == []
