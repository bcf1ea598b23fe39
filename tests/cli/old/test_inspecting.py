"""Old programs that show samples."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from webdataset.cli.old.programs import main as old

Capture = pytest.CaptureFixture[bytes]


def program(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = old(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


@pytest.fixture
def small(make_shard: Callable[..., str]) -> str:
    return make_shard("small.tar", files=[(f"s{i}.{ext}", data) for i in range(3) for ext, data in FIELDS.items()])


FIELDS = {"cls": b"5", "jpg": b"\xff\xd8", "json": b'{"a": 1}'}


def test_tar2tsv_prints_keys_and_fields(small: str, capsysbinary: Capture) -> None:
    assert program(capsysbinary, "tar2tsv", "-f", "cls", small)[:2] == (0, b"__key__\tcls\ns0\t5\ns1\t5\ns2\t5\n")
    assert program(capsysbinary, "tar2tsv", "-f", "cls", "--nokey", "--noheader", "-c", "1", small)[1] == b"5\n"


def test_tar2json_prints_lines_of_json(small: str, capsysbinary: Capture) -> None:
    out = program(capsysbinary, "tar2json", "-k", "cls json", small)[1]
    assert json.loads(out.splitlines()[0]) == {"__key__": "s0", "cls": 5, "json": {"a": 1}}


def test_tarshow_prints_padded_names_and_cut_values(small: str, capsysbinary: Capture) -> None:
    out = program(capsysbinary, "tarshow", "-c", "2", small)[1].decode()
    lines = [f"{name:<20}\t{value!r}"[:81] for name, value in {"__key__": "s0", **FIELDS}.items()]
    assert out.split("\n\n")[0] == "\n".join(lines)
    assert out.count("\n\n") == 2


def test_tarfirst_writes_the_first_picture(small: str, capsysbinary: Capture) -> None:
    assert program(capsysbinary, "tarfirst", small) == (0, b"\xff\xd8", "s0.jpg\n")
    assert program(capsysbinary, "tarfirst", "-S", "_['__key__'] == 's1'", "-f", "cls", small)[1] == b"5"


def test_wl_cat_extract_dump_info_and_test_work_under_their_old_names(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert program(capsysbinary, "wl-cat", small, "cls", "1")[:2] == (0, b"5")
    assert program(capsysbinary, "wl-extract", "-f", "__key__ cls", "-c", "2", small)[1] == b"s0\t5\ns1\t5\n"
    assert program(capsysbinary, "wl-dump", small)[1] == b"out-000000.jpg\n"
    assert program(capsysbinary, "wl-info", "-d", "raw", small)[1].startswith(b"3 samples")
    assert b"bound by" in program(capsysbinary, "wl-test", "--batchsize", "2", small)[1]
    assert b"s0" in program(capsysbinary, "wl-show", "-f", "cls", small)[1]
