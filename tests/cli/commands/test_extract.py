"""wl extract."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from inspected import Capture, mixed_shard, wl


@pytest.fixture
def shard(make_shard: Callable[..., str]) -> str:
    return mixed_shard(make_shard)


def test_extract_makes_a_table(shard: str, capsysbinary: Capture) -> None:
    code, out, err = wl(capsysbinary, "extract", "-f", "cls txt", "-c", "2", shard)
    assert (code, out) == (0, b"__key__\tcls\ttxt\ns0\t0\thello\ns1\t1\thello\n")
    assert err.startswith("2 samples (52.2 kB) ")


def test_extract_makes_json_that_other_programs_read(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    output = tmp_path / "a.jsonl"
    assert wl(capsysbinary, "extract", "-a", "-s", "1", "-c", "1", "-o", str(output), shard)[:2] == (0, b"")
    shown = subprocess.run(["jq", "-c", ".json.n, .npy, .txt", output], capture_output=True, text=True, check=True)
    assert shown.stdout == '1\n[[0.0,0.0,0.0],[0.0,0.0,0.0]]\n"hello"\n'.replace("0.0", "0")


def test_extract_leaves_no_half_table(shard: str, tmp_path: Path, capsysbinary: Capture) -> None:
    code, _, err = wl(capsysbinary, "extract", "-f", "nope", "-o", str(tmp_path / "t.tsv"), shard)
    assert code == 1
    assert "cls json npy png txt" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_extract_can_skip_bad_samples(make_shard: Callable[..., str], capsysbinary: Capture) -> None:
    path = make_shard(files=[("a.cls", b"1"), ("b.cls", b"dog"), ("c.cls", b"3")])
    assert wl(capsysbinary, "extract", "--nokey", "--noheader", "-f", "cls", path)[0] == 1
    code, out, err = wl(capsysbinary, "extract", "--on-error", "skip", "--nokey", "--noheader", "-f", "cls", path)
    assert (code, out) == (0, b"1\n3\n")
    assert "1 sample\n" in err
    code, out, _ = wl(capsysbinary, "extract", "-d", "raw", "--nokey", "--noheader", "-f", "cls", path)
    assert (code, out) == (0, b"1\ndog\n3\n")
