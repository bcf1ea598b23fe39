"""wl cp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from webdataset.cli import main

Capture = pytest.CaptureFixture[bytes]


def wl(capture: Capture, *words: str) -> tuple[int, bytes, str]:
    code = main(list(words))
    told = capture.readouterr()
    return code, told.out, told.err.decode()


def test_cp_copies_and_passes_over(
    make_shards: Callable[..., list[str]], tmp_path: Path, capsysbinary: Capture
) -> None:
    make_shards(3)
    target = tmp_path / "copies"
    target.mkdir()
    words = ["cp", "-P", "2", f"{tmp_path}/shard-{{000000..000002}}.tar", f"{target}/"]
    assert wl(capsysbinary, *words)[0] == 0
    assert sorted(path.name for path in target.iterdir()) == [f"shard-00000{i}.tar" for i in range(3)]
    before = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    code, _, err = wl(capsysbinary, *words)
    assert (code, all(f"{target}/{name}: " in err for name in before)) == (0, True)
    assert {path.name: path.stat().st_mtime_ns for path in target.iterdir()} == before


def test_cp_takes_its_target_as_all_commands_do(
    make_shard: Callable[..., str], tmp_path: Path, capsysbinary: Capture
) -> None:
    shard, copy = make_shard(), tmp_path / "copy.tar"
    assert wl(capsysbinary, "cp", "-o", str(copy), shard)[0] == 0
    assert copy.read_bytes() == Path(shard).read_bytes()
    code, _, err = wl(capsysbinary, "cp", shard)
    assert (code, err.count("\n")) == (2, 1)
    assert "TARGET" in err
