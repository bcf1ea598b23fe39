"""wl test."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from webdataset.cli import main

Capture = pytest.CaptureFixture[bytes]


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = main(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def test_test_prints_rates_and_a_verdict(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    words = ["--decode", "basic", "-m", "_ if sum(i * i for i in range(30000)) else None", "--shuffle", "10", "-b", "4"]
    code, out, _ = wl(capsysbinary, "test", *words, make_shard("a.tar", 40))
    text = out.decode()
    assert code == 0
    assert [line.split()[0] for line in text.splitlines() if line] == [
        "open", "first", "first", "stage", "open", "first_byte", "read", "parse", "decode", "map", "shuffle", "batch",
        "all", "bound", 'workers="auto"', "verdict:",
    ]  # fmt: skip
    *_, bound, workers, verdict = text.splitlines()
    assert ("CPU" in bound, "'map'" in bound, "processes" in workers) == (True, True, True)
    assert verdict.endswith("map")


@pytest.mark.parametrize(
    ("code", "samples"),
    [("_ if cls % 2 else None", 20), ("[dict(_, __key__='a'), dict(_, __key__='b')]", 80), ("cls -= 1", 40)],
)
def test_test_goes_on_with_what_the_code_gives(
    make_shard: Callable[..., str], capsysbinary: Capture, code: str, samples: int
) -> None:
    (facts,) = json.loads(wl(capsysbinary, "test", "--json", "-m", code, "-f", "cls", make_shard("a.tar", 40))[1])
    assert facts["samples"] == samples


def test_test_gives_the_stages_behind_what_the_code_gives(
    make_shard: Callable[..., str], capsysbinary: Capture
) -> None:
    shard = make_shard("a.tar", 4)
    assert wl(capsysbinary, "test", "-m", "{'new': cls}", "-f", "new", "-b", "2", shard)[0] == 0
    code, _, err = wl(capsysbinary, "test", "-m", "{'new': cls}", "-f", "cls", shard)
    assert code == 1
    assert "cls" in err
    code, _, err = wl(capsysbinary, "test", "-m", "cls", shard)
    assert code == 1
    assert " int" in err


def test_test_says_that_the_code_dropped_everything(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "test", "-m", "None", make_shard("a.tar", 4))
    assert (code, err.count("\n")) == (1, 1)
    assert "-m" in err


def test_test_is_there_for_programs(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    (facts,) = json.loads(wl(capsysbinary, "test", "--json", "-c", "5", make_shard())[1])
    assert facts["samples"] == 5
    assert facts["bound_by"] in ("cpu", "disk")  # five samples take too short a time to be sure
