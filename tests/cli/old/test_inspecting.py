"""Old programs that show samples."""

from __future__ import annotations

from collections.abc import Callable

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


def test_tarshow_prints_padded_names_and_cut_values(small: str, capsysbinary: Capture) -> None:
    out = program(capsysbinary, "tarshow", "-c", "2", small)[1].decode()
    lines = [f"{name:<20}\t{value!r}"[:81] for name, value in {"__key__": "s0", **FIELDS}.items()]
    assert out.split("\n\n")[0] == "\n".join(lines)
    assert out.count("\n\n") == 2


def test_tarfirst_writes_the_first_picture(small: str, capsysbinary: Capture) -> None:
    assert program(capsysbinary, "tarfirst", small) == (0, b"\xff\xd8", "s0.jpg\n")
    assert program(capsysbinary, "tarfirst", "-S", "_['__key__'] == 's1'", "-f", "cls", small)[1] == b"5"
